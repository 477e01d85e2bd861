"""One row of a tenant in every tenant-owned table, written as fullread_owner: what the isolation tests look for."""

from dataclasses import dataclass, fields
from uuid import UUID, uuid4

import psycopg
from psycopg import sql
from psycopg.types.json import Json

from app.core.ids import new_id


@dataclass(frozen=True, slots=True)
class Planted:
    """Ids of the planted rows; `word` stands in every text of them."""

    tenant: UUID
    word: str
    user: UUID
    collection: UUID
    document: UUID
    version: UUID
    chunk: UUID
    job: UUID
    answer: UUID
    key: UUID
    engine: UUID
    snapshot: UUID


#: Nothing is due: neither relay nor sweeper nor worker touches the planted rows.
FAR = "2099-01-01T00:00:00Z"


def uproot(connection: psycopg.Connection, made: Planted) -> None:
    """Take the planted rows away again, as fullread_owner. The caller commits."""
    own = sql.SQL("delete from {} where tenant_id = %s")
    connection.execute(own.format(sql.Identifier("audit_events")), (made.tenant,))
    for table, row in reversed(_rows(made, "")):
        if "tenant_id" in row:
            connection.execute(own.format(sql.Identifier(table)), (made.tenant,))
    connection.execute("delete from engines where id = %s", (made.engine,))
    connection.execute("delete from tenants where id = %s", (made.tenant,))


def plant(connection: psycopg.Connection, name: str) -> Planted:
    """Make a tenant with one row in each table. The caller commits."""
    ids = {field.name: new_id() for field in fields(Planted) if field.name != "word"}
    made = Planted(**ids, word=f"canary-{uuid4().hex}")  # type: ignore[arg-type]
    for table, row in _rows(made, name):
        columns = list(row)
        statement = sql.SQL("insert into {} ({}) values ({})").format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, columns)),
            sql.SQL(", ").join([sql.Placeholder()] * len(columns)),
        )
        connection.execute(statement, list(row.values()))
    connection.execute("select set_config('app.tenant_id', %s, true)", (str(made.tenant),))
    connection.execute(
        "select append_audit_event('user:test', 'tenant.plant', 'tenant', %s, 'ok', '', '{}')", (str(made.tenant),)
    )
    # Only now: document and version name each other.
    connection.execute("update documents set latest_version_id = %s where id = %s", (made.version, made.document))
    return made


def _rows(made: Planted, name: str) -> list[tuple[str, dict[str, object]]]:
    t = {"tenant_id": made.tenant}
    page = {"parser_fingerprint": "p", "state": "ok", "parser": "p", "lines": Json([]), "elements": Json([])}
    spans = {"ordinal": 0, "char_start": 0, "char_end": 1, "page_from": 1, "page_to": 1, "language": "en"}
    return [
        ("tenants", {"id": made.tenant, "name": name}),
        # Early, so that uproot empties it late: whatever is deleted leaves a row there.
        ("bi_tombstones", {**t, "dataset": "documents", "id": new_id(), "collection_id": made.collection}),
        ("users", {**t, "id": made.user, "email": f"{made.word}@test.example", "role": "owner"}),
        ("credentials", {**t, "user_id": made.user, "email": f"{made.word}@test.example", "password_hash": "x"}),
        (
            "login_sessions",
            {**t, "id": new_id(), "user_id": made.user, "token_hash": b"x", "expires_at": FAR},
        ),
        (
            "api_keys",
            {
                **t,
                "id": made.key,
                "user_id": made.user,
                "name": made.word,
                "secret_hash": b"x",
                "hint": "x",
                "scopes": ["read"],
                "revoked_at": "2020-01-01T00:00:00Z",
            },
        ),
        ("collections", {**t, "id": made.collection, "name": made.word, "created_by": made.user}),
        ("collection_grants", {**t, "collection_id": made.collection, "user_id": made.user, "role": "viewer"}),
        (
            "documents",
            {
                **t,
                "id": made.document,
                "collection_id": made.collection,
                "name": made.word,
                "created_by": made.user,
            },
        ),
        (
            "document_versions",
            {
                **t,
                "id": made.version,
                "document_id": made.document,
                "collection_id": made.collection,
                "number": 1,
                "sha256": "0" * 64,
                "size_bytes": 1,
                "state": "failed",
            },
        ),
        (
            "snapshots",
            {
                **t,
                "id": made.snapshot,
                "collection_id": made.collection,
                "digest": "0" * 64,
                "format": 1,
                "documents": Json([{"name": made.word}]),
                "documents_total": 1,
                "pages_total": 1,
                "chars_total": 1,
            },
        ),
        (
            "snapshot_plans",
            {
                **t,
                "snapshot_id": made.snapshot,
                "collection_id": made.collection,
                "tokenizer": "none",
                "section_tokens": 1,
                "shape": "none",
                "additive": False,
                "tokens": 1,
                "sections": Json([]),
            },
        ),
        ("pages", {**t, **page, "version_id": made.version, "number": 1, "text": made.word}),
        (
            "chunks",
            {
                **t,
                **spans,
                "id": made.chunk,
                "version_id": made.version,
                "document_id": made.document,
                "collection_id": made.collection,
                "header": "",
                "text": made.word,
                "stems": [1],
            },
        ),
        (
            "jobs",
            {
                **t,
                "id": made.job,
                "kind": "ingest",
                "queue": "none",
                "state": "queued",
                "run_after": FAR,
                "subject_id": made.version,
                "collection_id": made.collection,
            },
        ),
        ("job_events", {**t, "id": new_id(), "job_id": made.job, "event": "queued"}),
        ("outbox", {**t, "id": new_id(), "job_id": made.job, "queue": "none", "created_at": FAR}),
        (
            "idempotency_keys",
            {**t, "id": new_id(), "user_id": made.user, "key": made.word, "request_hash": "x"},
        ),
        (
            "answers",
            {
                **t,
                "id": made.answer,
                "collection_id": made.collection,
                "user_id": made.user,
                "question": made.word,
                "state": "failed",
                "route": "retrieval",
            },
        ),
        (
            "citations",
            {
                **t,
                "id": new_id(),
                "answer_id": made.answer,
                "ordinal": 1,
                "document_name": made.word,
                "quote": made.word,
                "verified": False,
            },
        ),
        ("engines", {"id": made.engine, "name": "planted", "url": "http://127.0.0.1:9", "model": "none", "slots": 1}),
        (
            "engine_leases",
            {
                **t,
                "engine_id": made.engine,
                "id": new_id(),
                "holder": "test",
                "lane": "batch",
                "blocks": 1,
                "fence": 1,
                "lease_until": FAR,
            },
        ),
        ("bi_logins", {**t, "login_name": f"none_{made.word}"}),
    ]
