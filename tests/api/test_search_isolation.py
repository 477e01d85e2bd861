"""Search stays inside the tenant: no foreign hit, no score that moves with strangers, no hit without its row."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from app.identity.permissions import Role
from tests.support import stack as stacks
from tests.support.doors import door
from tests.support.foreign import Clients, Estate, build
from tests.support.stack import Stack


@pytest.fixture(scope="module")
def theirs(stack: Stack) -> Estate:
    """The tenant whose words are looked for."""
    return build(stack, "searched")


@pytest.fixture(scope="module")
def ours(stack: Stack) -> Estate:
    """The tenant that looks."""
    return build(stack, "searching")


@pytest.fixture(scope="module")
def clients(stack: Stack) -> Iterator[Clients]:
    """Open connections by key."""
    made = Clients(stack)
    yield made
    made.close()


def _search(client: httpx.Client, collection: str, query: str, limit: int = 50) -> dict[str, Any]:
    answer = client.post(f"/api/v1/collections/{collection}/search", json={"query": query, "limit": limit})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def _scores(found: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(h["chunk_id"], h["score"].hex(), h["dense"], h["sparse"]) for h in found["hits"]]


def _ingest(client: httpx.Client, collection: str, name: str, text: str) -> dict[str, Any]:
    uploaded = stacks.upload(client, collection, name, text.encode())
    document = stacks.wait_for_end(client, uploaded["document"]["id"])
    assert document["state"] == "indexed", document
    return document


def test_scores_do_not_move_with_strangers(stack: Stack, clients: Clients, theirs: Estate, ours: Estate) -> None:
    """The idf of a term is counted over the caller's own tenant and collection: equal to the last bit."""
    client = clients.of(theirs.account.api_key)
    collection = theirs.ids["collection_id"]
    term = f"zephyrium{uuid4().hex[:6]}"
    for number in range(3):
        text = f"Report {number}. The {term if number == 0 else 'granite'} pump of plant {number} was serviced.\n"
        _ingest(client, collection, f"report-{number}.txt", text)
    before = _search(client, collection, f"{term} pump")
    assert before["hits"][0]["sparse"] > 0
    # The same rare word, now common: in another tenant, and in another collection of the same one.
    stranger = clients.of(ours.account.api_key)
    elsewhere = stacks.new_collection(client, f"elsewhere {term}")
    for owner, place in ((stranger, ours.ids["collection_id"]), (client, elsewhere)):
        for number in range(3):
            _ingest(owner, place, f"{term}-{number}.txt", f"{term} pump number {number}, {term} again: {term} pump.\n")
    after = _search(client, collection, f"{term} pump")
    assert _scores(after) == _scores(before)
    # In the caller's own collection the word does become more common: the comparison above is no accident.
    _ingest(client, collection, f"{term}.txt", f"Another {term} pump stands here.\n")
    moved = {hit["chunk_id"]: hit["sparse"] for hit in _search(client, collection, f"{term} pump")["hits"]}
    first = before["hits"][0]
    assert moved[first["chunk_id"]] != first["sparse"]


def test_search_finds_nothing_of_another_tenant(clients: Clients, theirs: Estate, ours: Estate) -> None:
    own = {ours.ids["document_id"]}
    queries = (
        theirs.word,
        f"notice period of {theirs.word}",
        "notice period ninety days written notice",
        theirs.ids["document_id"],
        f"tenant_id:{theirs.ids['tenant']}",
        f'{{"must": [{{"key": "tenant_id", "match": {{"value": "{theirs.ids["tenant"]}"}}}}]}}',
        "*",
        "%",
        "'; drop table chunks; --",
        '" or 1=1 --',
        "null",
        "\\",
        "😀" * 100,
    )
    for role in Role:
        client = clients.of(ours.people[role].key)
        for query in queries if role is Role.OWNER else queries[:2]:
            found = _search(client, ours.ids["collection_id"], query)
            assert theirs.word not in str(found["hits"]), query
            assert {hit["document_id"] for hit in found["hits"]} & set(theirs.ids.values()) == set(), query
            assert found["searched"]["dropped"] == 0, query
    found = _search(clients.of(ours.account.api_key), ours.ids["collection_id"], ours.word)
    assert {hit["document_id"] for hit in found["hits"]} >= own


def test_an_answer_quotes_nothing_of_another_tenant(clients: Clients, theirs: Estate, ours: Estate) -> None:
    answer = clients.of(ours.account.api_key).post(
        f"/api/v1/collections/{ours.ids['collection_id']}/answers",
        json={"question": f"What is the notice period of {theirs.word}?"},
    )
    assert answer.status_code == 200, answer.text
    body = {k: v for k, v in answer.json().items() if k not in ("question", "text")}
    assert theirs.word not in str(body)
    assert theirs.ids["document_id"] not in answer.text


@pytest.mark.parametrize(
    "body",
    [
        {"query": ""},
        {"query": "   "},
        {"query": "x" * 4001},
        {"query": "x\0"},
        {"query": ["x"]},
        {"query": None},
        {"query": {"must": []}},
        {"query": "x", "filter": {"must": []}},
        {"query": "x", "tenant_id": "*"},
        {"query": "x", "collection_id": "*"},
        {"query": "x", "document_ids": []},
        {"query": "x", "limit": "all"},
        {},
    ],
    ids=lambda body: ",".join(f"{k}:{str(v)[:12]!r}" for k, v in body.items()) or "nothing",
)
def test_a_malformed_search_is_refused(clients: Clients, ours: Estate, body: dict[str, Any]) -> None:
    client = clients.of(ours.account.api_key)
    path = f"/api/v1/collections/{ours.ids['collection_id']}"
    assert client.post(f"{path}/search", json=body).status_code == 422
    if "query" in body and "document_ids" not in body:  # a question may be narrowed to documents
        asked = {("question" if name == "query" else name): value for name, value in body.items()}
        assert client.post(f"{path}/answers", json=asked).status_code == 422


def _orphans(client: httpx.Client) -> float:
    lines = client.get("/metrics").text.splitlines()
    return float(next(line.split()[-1] for line in lines if line.startswith("vector_orphan_hits_total ")))


def test_a_hit_without_its_row_is_dropped_and_counted(stack: Stack, clients: Clients, theirs: Estate) -> None:
    client = clients.of(theirs.account.api_key)
    collection = stacks.new_collection(client, f"orphans {uuid4()}")
    gone = _ingest(client, collection, "gone.txt", "The orphaned heron stands in the reeds.\n")
    _ingest(client, collection, "kept.txt", "The heron of the other bank is well recorded.\n")
    assert len(_search(client, collection, "heron")["hits"]) == 2
    with door(stack, "fullread_owner") as connection:
        deleted = connection.execute("delete from chunks where document_id = %s", (gone["id"],)).rowcount
        assert deleted >= 1
        connection.commit()
    before = _orphans(client)
    found = _search(client, collection, "heron")
    assert {hit["document"] for hit in found["hits"]} == {"kept.txt"}
    assert found["searched"]["dropped"] == deleted
    assert _orphans(client) == before + deleted


@pytest.mark.parametrize(
    "change",
    [
        "update documents set deleted_at = now() where id = %s",
        "update documents set active_version_id = null where id = %s",
    ],
    ids=["deleted", "inactive"],
)
def test_a_point_of_a_hidden_document_is_no_hit(stack: Stack, clients: Clients, theirs: Estate, change: str) -> None:
    client = clients.of(theirs.account.api_key)
    collection = stacks.new_collection(client, f"hidden {uuid4()}")
    hidden = _ingest(client, collection, "hidden.txt", "The hidden heron stands in the reeds.\n")
    _ingest(client, collection, "kept.txt", "The heron of the other bank is well recorded.\n")
    with door(stack, "fullread_owner") as connection:
        connection.execute(change.encode(), (hidden["id"],))
        connection.commit()
    assert stack.index().count(str(theirs.tenant), document_id=hidden["id"]) >= 1, "the point is still there"
    found = _search(client, collection, "heron")
    assert {hit["document"] for hit in found["hits"]} == {"kept.txt"}
    answer = client.post(
        f"/api/v1/collections/{collection}/answers",
        json={"question": "Where does the hidden heron stand?", "route": "retrieval"},
    )
    assert "reeds" not in answer.text


def test_a_point_moved_to_another_tenant_brings_no_row(
    stack: Stack, clients: Clients, theirs: Estate, ours: Estate
) -> None:
    """Even an index that lies: a point that claims to be ours, with the id of a chunk of theirs."""
    from ingestion import sparse
    from ingestion.index import IndexPoint

    with door(stack, "fullread_owner") as connection:
        chunk = connection.execute(
            "select id::text, document_id::text, version_id::text from chunks where tenant_id = %s and text like %s",
            (theirs.tenant, f"%{theirs.word}%"),
        ).fetchall()[0]
    index = stack.index()
    point = IndexPoint(
        id=str(uuid4()),
        dense=[1.0] + [0.0] * (stack.settings.embeddings_dimensions - 1),
        sparse=sparse.encode_document(f"liar {theirs.word}", "en"),
        tenant_id=str(ours.tenant),
        collection_id=ours.ids["collection_id"],
        document_id=chunk[1],
        version_id=chunk[2],
    )
    try:
        index.upsert([point])
        client = clients.of(ours.account.api_key)
        found = _search(client, ours.ids["collection_id"], f"liar {theirs.word}")
        assert found["searched"]["dropped"] >= 1
        assert theirs.word not in str(found["hits"])
    finally:
        index.delete_versions(str(ours.tenant), [chunk[2]])
