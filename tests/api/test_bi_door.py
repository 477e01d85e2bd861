"""The door for reporting tools: who may read what, Basic, what may be asked, CSV, limits."""

import re
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

import httpx
import pytest

from app.api import problems
from app.core.errors import UnavailableError
from app.exports import reading
from app.exports.datasets import ANSWERS
from app.identity.permissions import Principal, Role, Scope
from tests.support import stack as stacks
from tests.support.doors import door
from tests.support.foreign import add_person
from tests.support.reporting import (
    LONG_AGO,
    NAMES,
    Ground,
    ground_of,
    local,
    new_answers,
    page,
    read_csv,
    refused,
    walk,
)
from tests.support.stack import Account, Stack

DANGEROUS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1")


@pytest.fixture
def ground(stack: Stack) -> Iterator[Ground]:
    """A fresh tenant."""
    with ground_of(stack) as made:
        yield made


# --- rights --------------------------------------------------------------------------------------------------------


def test_another_tenant_sees_only_its_own(ground: Ground, stack: Stack, stranger: Account) -> None:
    with stack.client(stranger.api_key) as client:
        for name in NAMES:
            for query in ({}, {"updated_since": LONG_AGO}, {"format": "csv"}):
                text = client.get(f"/api/v1/bi/{name}", params=query).text
                assert ground.planted.word not in text
                assert str(ground.planted.tenant) not in text
        own, theirs = walk(client, "answers")[0], ground.get(ground.owner, "answers")
    assert {item["id"] for item in theirs} == {str(ground.planted.answer)}
    assert not {item["id"] for item in own} & {item["id"] for item in theirs}


def test_a_viewer_sees_its_answers_and_granted_collections(ground: Ground, stack: Stack) -> None:
    planted, owner = ground.planted, ground.clients.of(ground.owner.key)
    hidden = UUID(stacks.new_collection(owner, f"hidden {uuid4()}"))
    viewer = UUID(ground.viewer.user_id)
    with door(stack, "fullread_owner") as connection:
        (own,) = new_answers(connection, planted.tenant, planted.collection, viewer, 1)
        # Asked once, in a collection that the viewer does not see (any more).
        (lost,) = new_answers(connection, planted.tenant, hidden, viewer, 1)
    for name in ("answers", "usage"):
        for query in ({}, {"updated_since": LONG_AGO}):
            assert [row["id"] for row in ground.get(ground.viewer, name, **query)] == [str(own)]
            assert {row["id"] for row in ground.get(ground.owner, name, **query)} == {
                str(planted.answer), str(own), str(lost),
            }  # fmt: skip
    assert {row["answer_id"] for row in ground.get(ground.viewer, "citations")} == {str(own)}
    assert [row["id"] for row in ground.get(ground.viewer, "documents")] == [str(planted.document)]
    for name in NAMES:
        assert ground.get(ground.outsider, name) == []


def test_reading_needs_the_scope_and_a_live_key(ground: Ground, stack: Stack) -> None:
    owner = ground.clients.of(ground.owner.key)
    writer = add_person(stack, ground.planted.tenant, Role.OWNER, scopes=frozenset({Scope.WRITE, Scope.ADMIN}))
    made = owner.post("/api/v1/api-keys", json={"name": "bi", "scopes": ["read"]}).json()
    keyed = ground.clients.of(made["token"])
    basic = basic_header(made["id"], made["token"])
    with stack.client("") as nobody:
        for name in NAMES:
            refused(ground.clients.of(writer.key).get(f"/api/v1/bi/{name}"), 403, "scope_forbids")
            assert keyed.get(f"/api/v1/bi/{name}").status_code == 200
            assert nobody.get(f"/api/v1/bi/{name}", headers=basic).status_code == 200
        assert owner.delete(f"/api/v1/api-keys/{made['id']}").status_code == 200
        for name in NAMES:
            refused(keyed.get(f"/api/v1/bi/{name}"), 401, "token_not_valid")
            refused(nobody.get(f"/api/v1/bi/{name}", headers=basic), 401, "token_not_valid")


def basic_header(user: str, password: str) -> dict[str, str]:
    """The header of a client that knows only user and password."""
    return {"authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}


def test_basic_takes_the_id_and_the_key_or_its_secret(ground: Ground, stack: Stack) -> None:
    owner = ground.clients.of(ground.owner.key)
    made, other = (owner.post("/api/v1/api-keys", json={"name": "k", "scopes": ["read"]}).json() for _ in range(2))
    secret = made["token"].split("_", 2)[2]
    session = {"authorization": f"Bearer {ground.owner.key}"}
    with stack.client("") as nobody:
        path = "/api/v1/bi/answers"
        for user in (made["id"], made["id"].upper()):
            for password in (made["token"], secret):
                answer = nobody.get(path, headers=basic_header(user, password))
                assert answer.json()["items"] == owner.get(path).json()["items"] != []
        assert nobody.get(path, headers=session).status_code == 200
        wrong = [
            (other["id"], made["token"]),
            (other["id"], secret),
            (made["id"], other["token"]),
            (made["id"], secret[:-1]),
            (made["id"], ""),
            ("", made["token"]),
            ("owner", made["token"]),
            (made["token"], ""),
            (made["id"], made["token"].replace("frk_", "frs_")),
            (made["id"], f"{secret}:x"),
        ]
        for user, password in wrong:
            answer = nobody.get(path, headers=basic_header(user, password))
            refused(answer, 401, "token_not_valid")
            assert answer.headers["www-authenticate"] == 'Basic realm="Fullread", charset="UTF-8"'
        for header in ("Basic", "Basic %%%", "Basic w6k", f"Basic {b64encode(bytes([255, 254])).decode()}", ""):
            answer = nobody.get(path, headers={"authorization": header} if header else {})
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Basic ")
        # Nowhere else: there a browser would keep the key and send it along.
        for place in ("/api/v1/me", "/api/v1/answers", "/api/v1/collections"):
            answer = nobody.get(place, headers=basic_header(made["id"], made["token"]))
            refused(answer, 401, "no_credentials")
            assert answer.headers["www-authenticate"].startswith("Bearer ")
        refused(nobody.get(path, params={"key": made["token"]}), 422, "secret_in_url")
        refused(nobody.get(path, params={"cursor": made["token"]}), 422, "secret_in_url")


# --- what is asked -------------------------------------------------------------------------------------------------


def test_a_page_holds_what_was_asked_for_and_the_next_one_keeps_it(ground: Ground, stack: Stack) -> None:
    planted, client = ground.planted, ground.clients.of(ground.owner.key)
    with door(stack, "fullread_owner") as other:
        new_answers(other, planted.tenant, planted.collection, UUID(ground.owner.user_id), 4)
    first = client.get(
        "/api/v1/bi/answers",
        params={"limit": "2", "updated_since": "2020-01-01T01:00:00+01:00", "format": "csv", "bom": "true"},
        headers={"host": "evil.example", "x-forwarded-host": "evil.example", "forwarded": "host=evil.example"},
    )
    assert first.content.startswith(b"\xef\xbb\xbf")
    assert len(read_csv(first)) == 2
    link = re.fullmatch(r'<(.+)>; rel="next"', first.headers["link"])
    assert link is not None
    assert "evil" not in str(first.headers)
    query = parse_qs(urlsplit(link[1]).query)
    assert {k: v for k, v in query.items() if k != "cursor"} == {
        "limit": ["2"], "updated_since": [LONG_AGO], "format": ["csv"], "bom": ["true"],
    }  # fmt: skip
    second = client.get(local(client, link[1]))
    assert second.content.startswith(b"\xef\xbb\xbf")
    assert len(read_csv(second)) == 2
    assert second.headers["fullread-as-of"] == first.headers["fullread-as-of"]
    third = client.get(local(client, re.sub("[<>]", "", second.headers["link"].split(";")[0])))
    assert len(read_csv(third)) == 1
    assert "link" not in third.headers
    found = {row["id"] for answer in (first, second, third) for row in read_csv(answer)}
    assert len(found) == 5
    # The last page is full, and still the last.
    assert page(client, "/api/v1/bi/answers", limit=5)["next"] is None


def test_a_cursor_of_another_walk_is_refused(ground: Ground, stack: Stack) -> None:
    planted = ground.planted
    with door(stack, "fullread_owner") as connection:
        new_answers(connection, planted.tenant, planted.collection, UUID(ground.owner.user_id), 3)
    owner, viewer = ground.clients.of(ground.owner.key), ground.clients.of(ground.viewer.key)
    address = page(owner, "/api/v1/bi/answers", limit=1, updated_since=LONG_AGO)["next"]
    cursor = parse_qs(urlsplit(address).query)["cursor"][0]
    assert owner.get("/api/v1/bi/answers", params={"cursor": cursor}).status_code == 200
    for name in ("documents", "citations", "usage"):
        refused(owner.get(f"/api/v1/bi/{name}", params={"cursor": cursor}), 422, "bad_cursor")
    refused(viewer.get("/api/v1/bi/answers", params={"cursor": cursor}), 422, "bad_cursor")
    other = {"cursor": cursor, "updated_since": "2021-01-01T00:00:00Z"}
    refused(owner.get("/api/v1/bi/answers", params=other), 422, "bad_cursor")
    for garbage in ("x", "", cursor[:-1], f"{cursor}x", str(uuid4())):
        refused(owner.get("/api/v1/bi/answers", params={"cursor": garbage}), 422, "bad_cursor")


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"}, {"limit": "5001"}, {"offset": "5"}, {"$filter": "id eq 1"}, {"format": "xml"},
        {"updated_since": "2026"}, {"updated_since": "1700000000"}, {"updated_since": "2026-01-01"},
        {"updated_since": "2026-01-01T00:00:00"}, {"updated_since": "0001-01-01T00:00:00+14:00"},
        {"updated_since": "9999-12-31T23:59:59-14:00"}, {"updated_since": ""}, {"bom": "maybe"},
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(client: httpx.Client, query: dict[str, str]) -> None:
    for name in NAMES:
        refused(client.get(f"/api/v1/bi/{name}", params=query), 422, "invalid_request")


def test_other_datasets_do_not_exist(client: httpx.Client) -> None:
    for name in ("users", "pages", "answers.csv", "", "DOCUMENTS"):
        assert client.get(f"/api/v1/bi/{name}").status_code == 404


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "application/json"), ("text/csv", "text/csv"), ("Text/CSV;header=present", "text/csv"),
        ("text/csv, application/json", "text/csv"), ("application/json, text/csv;q=0.5", "application/json"),
        ("text/csv;q=0", "application/json"), ("text/csv;q=x", "application/json"),
        ("text/html,*/*", "application/json"),
    ],
)  # fmt: skip
def test_the_accept_header_chooses_unless_the_address_does(client: httpx.Client, accept: str, kind: str) -> None:
    answer = client.get("/api/v1/bi/usage", headers={"accept": accept})
    assert answer.headers["content-type"].split(";")[0] == kind
    assert answer.headers["vary"] == "accept"
    for form, chosen in (("json", "application/json"), ("csv", "text/csv")):
        answer = client.get("/api/v1/bi/usage", params={"format": form}, headers={"accept": accept})
        assert answer.headers["content-type"].split(";")[0] == chosen


def test_a_walk_is_audited_once(ground: Ground, stack: Stack) -> None:
    planted, owner = ground.planted, ground.clients.of(ground.owner.key)
    with door(stack, "fullread_owner") as connection:
        new_answers(connection, planted.tenant, planted.collection, UUID(ground.owner.user_id), 5)
    walk(owner, "answers", limit=1)
    owner.get("/api/v1/bi/usage", params={"format": "csv"})
    owner.get("/api/v1/bi/usage", params={"limit": "0"})
    events = [e for e in owner.get("/api/v1/audit").json()["items"] if e["action"] == "bi.read"]
    assert [(e["object_id"], e["detail"]["format"]) for e in events] == [("usage", "csv"), ("answers", "json")]
    assert {e["actor"][:4] for e in events} == {"key:"}


def test_a_slow_database_is_a_503_that_says_when_to_come_back(ground: Ground, stack: Stack) -> None:
    actor = Principal(ground.planted.tenant, UUID(ground.owner.user_id), Role.OWNER, "")
    database = stack.database()
    try:
        with door(stack, "fullread_owner") as blocker:
            blocker.execute("lock table answers in access exclusive mode")
            with database.tenant(ground.planted.tenant) as uow:
                begun = reading.begin(uow, ANSWERS, None)
            with pytest.raises(UnavailableError) as slow, database.tenant(ground.planted.tenant) as uow:
                reading.read(uow, actor, ANSWERS, begun, 10, timeout_s=0.2)
        assert slow.value.code == "bi_timeout"
        answer = problems.respond(slow.value, "r")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        # The limit was the transaction's: the pooled connection is without it again.
        with database.tenant(ground.planted.tenant) as uow:
            assert reading.read(uow, actor, ANSWERS, begun, 10).last is None
    finally:
        database.dispose()


def test_a_page_ends_early_when_its_texts_are_large(
    ground: Ground, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PAGE_CHARS", 100)
    actor = Principal(ground.planted.tenant, UUID(ground.owner.user_id), Role.OWNER, "")
    with door(stack, "fullread_owner") as connection:
        user = UUID(ground.owner.user_id)
        made = new_answers(connection, ground.planted.tenant, ground.planted.collection, user, 3)
        connection.execute("update answers set text = repeat('x', 40000) where id = any(%s)", (made,))
        connection.commit()
    database = stack.database()
    try:
        with database.tenant(ground.planted.tenant) as uow:
            found = reading.read(uow, actor, ANSWERS, reading.begin(uow, ANSWERS, None), 3)
            assert found.last is not None
            assert 1 <= len(found.rows) < 3
    finally:
        database.dispose()
    # A cell is cut where a spreadsheet would refuse it.
    assert {len(row["text"]) for row in ground.get(ground.owner, "answers") if row["id"] in map(str, made)} == {32_766}


# --- CSV -----------------------------------------------------------------------------------------------------------


def test_csv_says_the_same_as_json(ground: Ground) -> None:
    client = ground.clients.of(ground.owner.key)
    for name in NAMES:
        answer = client.get(f"/api/v1/bi/{name}", params={"format": "csv"})
        assert answer.headers["content-disposition"] == f'attachment; filename="{name}.csv"'
        (row,) = ground.get(ground.owner, name)
        said = {"True": "true", "False": "false", "None": ""}
        assert read_csv(answer) == [{column: said.get(str(cell), str(cell)) for column, cell in row.items()}]


def test_a_cell_that_begins_like_a_formula_is_text(ground: Ground, stack: Stack) -> None:
    client = ground.clients.of(ground.owner.key)
    for text in DANGEROUS:
        with door(stack, "fullread_app", tenant=ground.planted.tenant) as connection:
            connection.execute(
                "update answers set question = %s, text = %s, seconds = -1.5", (text, f"{text},\"';=2+2")
            )
            connection.execute("update citations set quote = %s", (text,))
            connection.commit()
        (row,) = read_csv(client.get("/api/v1/bi/answers", params={"format": "csv"}))
        assert row["question"] == f"'{text}"
        assert row["text"] == f"'{text},\"';=2+2"
        assert row["seconds"] == "-1.5"
        (quote,) = read_csv(client.get("/api/v1/bi/citations", headers={"accept": "text/csv"}))
        assert quote["quote"] == f"'{text}"
        # JSON needs no guard, and has none.
        assert ground.get(ground.owner, "answers")[0]["question"] == text
