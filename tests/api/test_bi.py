"""The door for reporting tools: walks without gap or repeat while rows change, refreshes, deletions."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from app.core.ids import new_id
from app.exports.datasets import DATASETS
from tests.support import stack as stacks
from tests.support.doors import door, rows, value
from tests.support.reporting import LONG_AGO, NAMES, Ground, ground_of, local, new_answers, page, walk
from tests.support.stack import Stack

#: Acceptance 7.
MANY = 10_000


@pytest.fixture
def ground(stack: Stack) -> Iterator[Ground]:
    """A fresh tenant."""
    with ground_of(stack) as made:
        yield made


# --- walks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["answers", "citations"])
def test_many_rows_page_through_while_they_change(stack: Stack, name: str) -> None:
    account = stack.new_tenant(f"many-{uuid4()}")
    with stack.client(account.api_key) as client, door(stack, "fullread_owner") as other:
        collection = UUID(stacks.new_collection(client, "many"))
        user = UUID(client.get("/api/v1/me").json()["user_id"])
        made = new_answers(other, account.tenant_id, collection, user, MANY)
        if name == "citations":
            made = [
                row[0] for row in rows(other, "select id from citations where answer_id = any(%s) order by id", made)
            ]
        standing, gone, added = set(map(str, made)), set[str](), 0
        seen: list[str] = []
        target = f"/api/v1/bi/{name}?limit=700"
        while True:
            found = page(client, target)
            items = found["items"]
            # What was deleted before its page came is not there any more.
            assert not gone.intersection(item["id"] for item in items)
            seen += [item["id"] for item in items]
            if found["next"] is None:
                break
            # The worst rows: the last of this page, the first of the next one, and others on both sides.
            place = made.index(UUID(seen[-1])) if UUID(seen[-1]) in made else len(made) - 1
            victims = [made[at] for at in (0, place, place + 1, place + 350, len(made) - 9) if at < len(made)]
            other.execute(f"delete from {name} where id = any(%s)".encode(), (victims,))
            column = "text" if name == "answers" else "quote"
            other.execute(
                f"update {name} set {column} = 'changed' where id = any(%s)".encode(), (made[place - 40 : place + 40],)
            )
            other.commit()
            added += len(new_answers(other, account.tenant_id, collection, user, 7))
            gone.update(map(str, victims))
            made = [each for each in made if each not in victims]
            target = local(client, found["next"])
        assert seen == sorted(set(seen)), "no row twice, and in order"
        assert standing - gone <= set(seen), "no row is left out"
        assert len(gone) > 30
        assert added > 50
        # Replaced by id, the refresh turns what the walk gave into what there is.
        mirror = {item: {} for item in seen}
        for item in walk(client, name, updated_since=found["as_of"], limit=5000)[0]:
            mirror[item["id"]] = item
            if item["is_deleted"]:
                del mirror[item["id"]]
        fresh = {item["id"]: item for item in walk(client, name, limit=5000)[0]}
        assert mirror == fresh
        assert len(fresh) == MANY - len(gone) + added


def test_what_was_committed_late_comes_with_the_next_refresh(ground: Ground, stack: Stack) -> None:
    client = ground.clients.of(ground.owner.key)
    with door(stack, "fullread_app", tenant=ground.planted.tenant) as other:
        other.execute("update answers set text = 'late'")
        before, as_of = walk(client, "answers")
        other.commit()
    assert [item["text"] for item in before] == [""]
    began = datetime.fromisoformat(as_of)
    assert timedelta(minutes=1) < datetime.now(UTC) - began < timedelta(minutes=10)
    assert [item["text"] for item in ground.get(ground.owner, "answers", updated_since=as_of)] == ["late"]


def test_updated_since_is_half_open(ground: Ground) -> None:
    for name in NAMES:
        (row,) = ground.get(ground.owner, name)
        at = datetime.fromisoformat(row["updated_at"])
        assert ground.get(ground.owner, name, updated_since=row["updated_at"]) == [row], name
        later = (at + timedelta(microseconds=1)).isoformat().replace("+00:00", "Z")
        assert ground.get(ground.owner, name, updated_since=later) == [], name


def test_rows_are_flat_and_have_their_columns(ground: Ground) -> None:
    for dataset in DATASETS:
        (row,) = ground.get(ground.owner, dataset.name)
        assert list(row) == [column.name for column in dataset.columns]
        assert all(cell is None or isinstance(cell, str | int | float) for cell in row.values())
        assert row["is_deleted"] is False
    planted = ground.planted
    (answer,) = ground.get(ground.owner, "answers")
    assert answer["question"] == answer["collection"] == planted.word
    assert (answer["citations"], answer["citations_verified"]) == (1, 0)
    (document,) = ground.get(ground.owner, "documents")
    assert (document["id"], document["state"], document["version_number"]) == (str(planted.document), "failed", 1)
    (citation,) = ground.get(ground.owner, "citations")
    assert (citation["answer_id"], citation["created_at"]) == (answer["id"], answer["created_at"])


# --- changes -------------------------------------------------------------------------------------------------------

#: A change, and the datasets in which it can be seen.
CHANGES = {
    """update answers set coverage = '{"pages_total": 3, "pages_read": 1}'""": {"answers", "usage"},
    "update citations set verified = true": {"answers", "citations", "usage"},
    "update documents set name = 'another'": {"documents"},
    "update document_versions set pages_total = 9": {"documents"},
    "update document_versions set state = 'indexed'": {"documents"},
    "update collections set name = 'renamed ' || id": {"documents", "answers"},
    "update collections set description = 'described'": set(),
    "update answers set state = state": set(),
    "update citations set tenant_id = tenant_id": set(),
}  # fmt: skip


def test_a_change_that_shows_moves_the_row_on(ground: Ground) -> None:
    before = {name: ground.get(ground.owner, name)[0] for name in NAMES}
    for change, shown in CHANGES.items():
        with door(ground.stack, "fullread_app", tenant=ground.planted.tenant) as connection:
            assert connection.execute(change.encode()).rowcount == 1
            connection.commit()
        after = {name: ground.get(ground.owner, name)[0] for name in NAMES}
        assert {name for name in NAMES if after[name]["updated_at"] > before[name]["updated_at"]} == shown, change
        for name in set(NAMES) - shown:
            assert after[name] == before[name], change
        for name in shown:
            since = after[name]["updated_at"]
            assert ground.get(ground.owner, name, updated_since=since) == [after[name]], change
        before = after
    assert before["answers"]["pages_not_read"] == 2


def test_the_time_of_a_change_never_goes_back(ground: Ground) -> None:
    """Whatever the application's clock says: the database stamps."""
    for table in ("answers", "citations", "documents", "document_versions"):
        with door(ground.stack, "fullread_app", tenant=ground.planted.tenant) as connection:
            before = value(connection, f"select updated_at from {table}")
            connection.execute(f"update {table} set updated_at = '2001-01-01Z'".encode())
            assert value(connection, f"select updated_at from {table}") >= before, table
            connection.execute(f"update {table} set updated_at = '2101-01-01Z'".encode())
            assert value(connection, f"select updated_at < clock_timestamp() from {table}") is True, table


def test_a_new_citation_counts_in_its_answer(ground: Ground) -> None:
    (before,) = ground.get(ground.owner, "answers")
    with door(ground.stack, "fullread_app", tenant=ground.planted.tenant) as connection:
        connection.execute(
            "insert into citations (tenant_id, id, answer_id, ordinal, document_name, quote, verified)"
            " values (%s, %s, %s, 2, 'd', 'q', true)",
            (ground.planted.tenant, new_id(), ground.planted.answer),
        )
        connection.commit()
    (after,) = ground.get(ground.owner, "answers", updated_since=before["updated_at"])
    assert (after["citations"], after["citations_verified"]) == (2, 1)
    assert after["updated_at"] > before["updated_at"]


# --- deletions -----------------------------------------------------------------------------------------------------


def _only_an_id(row: dict[str, Any], expected: UUID | str) -> None:
    assert row["is_deleted"] is True
    assert {name for name, cell in row.items() if cell is not None} == {"id", "updated_at", "is_deleted"}
    assert row["id"] == str(expected)


def test_a_deleted_document_is_told_before_and_after_its_purge(ground: Ground, stack: Stack) -> None:
    owner, document = ground.clients.of(ground.owner.key), ground.planted.document
    since = ground.get(ground.owner, "documents")[0]["updated_at"]
    with door(stack, "fullread_app", tenant=ground.planted.tenant) as connection:
        # The moment between the deletion and its job, for as long as it is looked at.
        connection.execute("update documents set deleted_at = now()")
        connection.commit()
    for person in (ground.owner, ground.viewer):
        assert ground.get(person, "documents") == []
        (row,) = ground.get(person, "documents", updated_since=since)
        _only_an_id(row, document)
    assert ground.get(ground.outsider, "documents", updated_since=LONG_AGO) == []
    with door(stack, "fullread_app", tenant=ground.planted.tenant) as connection:
        connection.execute("update documents set deleted_at = null")
        connection.commit()
    job = owner.delete(f"/api/v1/documents/{document}").json()["job_id"]
    assert stacks.wait_for_job(owner, job)["state"] == "succeeded"
    with door(stack, "fullread_owner") as connection:
        assert value(connection, "select count(*) from documents where id = %s", document) == 0
    for person in (ground.owner, ground.viewer):
        assert ground.get(person, "documents") == []
        (row,) = ground.get(person, "documents", updated_since=since)
        _only_an_id(row, document)
        assert row["updated_at"] > since
    assert ground.get(ground.outsider, "documents", updated_since=LONG_AGO) == []


def test_a_purged_collection_leaves_what_a_client_must_learn(ground: Ground, stack: Stack) -> None:
    planted = ground.planted
    with door(stack, "fullread_owner") as connection:
        (own,) = new_answers(connection, planted.tenant, planted.collection, UUID(ground.viewer.user_id), 1)
        (quote,) = rows(connection, "select id from citations where answer_id = %s", own)[0]
        first_quote = value(connection, "select id from citations where answer_id = %s", planted.answer)
    owner = ground.clients.of(ground.owner.key)
    since = ground.get(ground.owner, "documents")[0]["updated_at"]
    job = owner.delete(f"/api/v1/collections/{planted.collection}").json()["job_id"]
    assert stacks.wait_for_job(owner, job)["state"] == "succeeded"
    everything = {
        "documents": {planted.document},
        "answers": {planted.answer, own},
        "citations": {first_quote, quote},
        "usage": {planted.answer, own},
    }
    # The grant is gone with the collection, and still its holder learns what it had seen: its own, nobody else's.
    of_viewer = {"documents": {planted.document}, "answers": {own}, "citations": {quote}, "usage": {own}}
    for person, expected in ((ground.owner, everything), (ground.viewer, of_viewer), (ground.outsider, {})):
        for name in NAMES:
            assert ground.get(person, name) == []
            found = {row["id"]: row for row in ground.get(person, name, updated_since=since)}
            assert set(found) == set(map(str, expected.get(name, ()))), name
            for row_id, row in found.items():
                _only_an_id(row, row_id)


def test_a_grant_taken_away_leaves_nothing(ground: Ground) -> None:
    planted, owner = ground.planted, ground.clients.of(ground.owner.key)
    assert len(ground.get(ground.viewer, "documents")) == 1
    gone = owner.delete(f"/api/v1/collections/{planted.collection}/grants/{ground.viewer.user_id}")
    assert gone.status_code == 204
    assert ground.get(ground.viewer, "documents", updated_since=LONG_AGO) == []
    job = owner.delete(f"/api/v1/collections/{planted.collection}").json()["job_id"]
    assert stacks.wait_for_job(owner, job)["state"] == "succeeded"
    assert ground.get(ground.viewer, "documents", updated_since=LONG_AGO) == []


def test_rows_and_tombstones_are_one_walk(ground: Ground, stack: Stack) -> None:
    planted = ground.planted
    with door(stack, "fullread_owner") as connection:
        made = new_answers(connection, planted.tenant, planted.collection, UUID(ground.owner.user_id), 40)
        connection.execute("delete from answers where id = any(%s)", (made[::2],))
        connection.commit()
    found = ground.get(ground.owner, "answers", updated_since=LONG_AGO, limit=3)
    assert [item["id"] for item in found] == sorted(map(str, [planted.answer, *made]))
    deleted = {item["id"] for item in found if item["is_deleted"]}
    assert deleted == set(map(str, made[::2]))
