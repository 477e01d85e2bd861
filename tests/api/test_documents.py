"""What people do with documents, against the real stack: upload, same bytes, new version, cancel, retry, delete."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import httpx
import pytest
from sqlalchemy import text

from app.core.db import Database
from tests.support.stack import Stack, upload, wait_for_end, wait_for_job

ORIGINAL = b"# Lease\n\nThe monthly rent of the warehouse in Girona is 4,250 euros, payable on the fifth day.\n"
CHANGED = b"# Lease\n\nThe monthly rent of the warehouse in Girona is 4,900 euros, payable on the tenth day.\n"


@pytest.fixture(scope="module")
def database(stack: Stack) -> Iterator[Database]:
    made = stack.database()
    yield made
    made.dispose()


def rows(database: Database, tenant: UUID, table: str, column: str, value: str) -> int:
    with database.tenant(tenant) as uow:
        counted = uow.session.execute(text(f"select count(*) from {table} where {column} = :v"), {"v": value})
        return int(counted.scalar_one())


def found(client: httpx.Client, collection: str, query: str) -> list[str]:
    answer = client.post(f"/api/v1/collections/{collection}/search", json={"query": query, "limit": 5})
    assert answer.status_code == 200, answer.text
    return [hit["text"] for hit in answer.json()["hits"]]


def test_an_upload_becomes_searchable_with_exact_offsets(
    stack: Stack, client: httpx.Client, collection: str, database: Database
) -> None:
    made = upload(client, collection, "contracts/lease.md", ORIGINAL)
    document = wait_for_end(client, made["document"]["id"])
    assert (document["state"], document["name"]) == ("indexed", "contracts/lease.md")
    assert document["pages_indexed"] == document["pages_total"] == 1
    assert any("4,250" in text_ for text_ in found(client, collection, "monthly rent"))
    page = client.get(f"/api/v1/documents/{document['id']}/pages/1").json()
    with database.tenant(stack.owner.tenant_id) as uow:
        chunks = uow.session.execute(
            text("select char_start, char_end, text from chunks where document_id = :d"), {"d": document["id"]}
        ).all()
    assert chunks
    for start, end, chunk in chunks:
        assert page["text"][start - page["char_start"] : end - page["char_start"]] == chunk
    tenant = str(stack.owner.tenant_id)
    assert stack.index().count(tenant, document_id=document["id"]) == len(chunks) == document["chunks_total"]


def test_the_same_bytes_are_one_document_that_is_named(client: httpx.Client, collection: str) -> None:
    first = upload(client, collection, "a.md", ORIGINAL)
    wait_for_end(client, first["document"]["id"])
    again = upload(client, collection, "copy of a.md", ORIGINAL)
    assert again["duplicate_of"] == first["document"]["id"]
    assert again["job_id"] is None
    listed = client.get(f"/api/v1/collections/{collection}/documents").json()["items"]
    assert [d["name"] for d in listed] == ["a.md"]


def test_a_double_upload_at_the_same_moment_is_one_ingestion(client: httpx.Client, collection: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda i: upload(client, collection, f"{i}.md", ORIGINAL), range(6)))
    assert len({m["document"]["id"] for m in made}) == 1
    assert sum(m["job_id"] is not None for m in made) == 1


def test_a_new_version_replaces_the_old_one_in_search_and_keeps_it_readable(
    stack: Stack, client: httpx.Client, collection: str, database: Database
) -> None:
    first = wait_for_end(client, upload(client, collection, "lease.md", ORIGINAL)["document"]["id"])
    second = wait_for_end(client, upload(client, collection, "lease.md", CHANGED)["document"]["id"])
    assert second["id"] == first["id"]
    assert second["version_number"] == 2
    texts = found(client, collection, "monthly rent")
    assert any("4,900" in t for t in texts)
    assert not any("4,250" in t for t in texts)
    old = client.get(f"/api/v1/documents/{first['id']}/pages/1", params={"version_id": first["version_id"]}).json()
    assert "4,250" in old["text"], "an old version stays citable"
    tenant = str(stack.owner.tenant_id)
    deadline = time.monotonic() + 30
    while stack.index().count(tenant, version_id=first["version_id"]) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert stack.index().count(tenant, version_id=first["version_id"]) == 0
    assert rows(database, stack.owner.tenant_id, "pages", "version_id", first["version_id"]) == 1


def test_delete_leaves_nothing_and_the_file_can_come_back(
    stack: Stack, client: httpx.Client, collection: str, database: Database
) -> None:
    content = ORIGINAL + f"Reference {uuid4()}.\n".encode()
    document = wait_for_end(client, upload(client, collection, "gone.md", content)["document"]["id"])
    tenant = str(stack.owner.tenant_id)
    assert document["sha256"] in stack.blobs().digests(stack.owner.tenant_id)
    job = client.delete(f"/api/v1/documents/{document['id']}").json()["job_id"]
    assert found(client, collection, "monthly rent") == [], "invisible with the answer to the delete"
    assert client.get(f"/api/v1/documents/{document['id']}").status_code == 404
    assert wait_for_job(client, job)["state"] == "succeeded"
    assert stack.index().count(tenant, document_id=document["id"]) == 0
    for table in ("chunks", "document_versions"):
        assert rows(database, stack.owner.tenant_id, table, "document_id", document["id"]) == 0
    assert rows(database, stack.owner.tenant_id, "pages", "version_id", document["version_id"]) == 0
    assert document["sha256"] not in stack.blobs().digests(stack.owner.tenant_id)
    back = wait_for_end(client, upload(client, collection, "gone.md", content)["document"]["id"])
    assert back["state"] == "indexed"
    assert found(client, collection, "monthly rent")


def test_bytes_that_another_collection_uses_survive_a_delete(
    stack: Stack, client: httpx.Client, collection: str
) -> None:
    other = client.post("/api/v1/collections", json={"name": f"other {uuid4()}"}).json()["id"]
    content = ORIGINAL + f"Shared {uuid4()}.\n".encode()
    here = wait_for_end(client, upload(client, collection, "x.md", content)["document"]["id"])
    there = wait_for_end(client, upload(client, other, "x.md", content)["document"]["id"])
    assert here["id"] != there["id"]
    job = client.delete(f"/api/v1/documents/{here['id']}").json()["job_id"]
    assert wait_for_job(client, job)["state"] == "succeeded"
    original = client.get(f"/api/v1/documents/{there['id']}/original")
    assert original.content == content
    assert found(client, other, "monthly rent")


def test_a_deleted_collection_is_erased(
    stack: Stack, client: httpx.Client, collection: str, database: Database
) -> None:
    document = wait_for_end(client, upload(client, collection, "x.md", ORIGINAL)["document"]["id"])
    job = client.delete(f"/api/v1/collections/{collection}").json()["job_id"]
    assert client.get(f"/api/v1/collections/{collection}").status_code == 404
    assert client.get(f"/api/v1/documents/{document['id']}").status_code == 404
    assert wait_for_job(client, job)["state"] == "succeeded"
    assert stack.index().count(str(stack.owner.tenant_id), collection_id=collection) == 0
    assert rows(database, stack.owner.tenant_id, "collections", "id", collection) == 0


def test_cancel_stops_the_work_and_retry_finishes_it(
    stack: Stack, client: httpx.Client, collection: str, database: Database
) -> None:
    # Enough distinct paragraphs that embedding takes seconds.
    many = "\n\n".join(
        f"Clause {i}. The party of part {uuid4()} pays {i * 17} euros. " * 12 for i in range(200)
    ).encode()
    made = upload(client, collection, "long.md", many)
    document_id = made["document"]["id"]
    deadline = time.monotonic() + 60
    while client.get(f"/api/v1/documents/{document_id}").json()["chunks_indexed"] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert client.post(f"/api/v1/documents/{document_id}/cancel").status_code == 202
    document = wait_for_end(client, document_id, 30)
    assert document["state"] == "cancelled"
    tenant = str(stack.owner.tenant_id)
    assert stack.index().count(tenant, document_id=document_id) == 0
    assert rows(database, stack.owner.tenant_id, "chunks", "document_id", document_id) == 0
    assert client.get(f"/api/v1/jobs/{made['job_id']}").json()["state"] == "cancelled"
    assert client.post(f"/api/v1/documents/{document_id}/cancel").status_code == 409
    assert client.post(f"/api/v1/documents/{document_id}/retry").status_code == 202
    deadline = time.monotonic() + 30
    while client.get(f"/api/v1/documents/{document_id}").json()["state"] not in ("parsing", "indexing"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    job = client.get("/api/v1/jobs", params={"limit": 1}).json()["items"][0]
    assert client.post(f"/api/v1/jobs/{job['id']}/cancel").status_code == 202
    assert wait_for_end(client, document_id, 30)["state"] == "cancelled"


def test_an_upload_over_the_limit_leaves_nothing(stack: Stack, client: httpx.Client, collection: str) -> None:
    before = stack.blobs().digests(stack.owner.tenant_id)
    answer = client.post(
        f"/api/v1/collections/{collection}/documents", files={"file": ("big.txt", b"x" * (2 * 1024 * 1024))}
    )
    assert answer.status_code == 202
    assert client.post(f"/api/v1/collections/{collection}/documents", files={}).status_code == 422
    assert len(stack.blobs().digests(stack.owner.tenant_id)) == len(before) + 1


def test_lists_page_by_keyset_without_gap(client: httpx.Client, collection: str) -> None:
    names = [f"{i:02}.txt" for i in range(7)]
    for name in names:
        upload(client, collection, name, f"Line {name} of {uuid4()}.".encode())
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params = {"limit": "3", **({"cursor": cursor} if cursor else {})}
        answer = client.get(f"/api/v1/collections/{collection}/documents", params=params).json()
        seen += [item["name"] for item in answer["items"]]
        cursor = answer["next"]
        if cursor is None:
            break
    assert seen == names
