"""The ingest job: parse page ranges, chunk, embed, index, and make the version active in one transaction.

Every step stores its result before the next one starts, so that a rerun after a kill repeats at most one page
range or one batch. No transaction is open while a parser, a model or the index works.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

import structlog
from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.audit import events
from app.core.blobs import BlobStore
from app.core.clock import now
from app.core.db import Database
from app.core.errors import FullreadError, UnavailableError, UpstreamError
from app.core.ids import derived_id
from app.documents.purge import KIND_RETIRE_VERSION, index_away
from app.documents.tables import Chunk, Document, DocumentVersion, Page
from app.jobs import claims, queues, rows
from app.jobs.claims import JobCancelledError, Lease
from ingestion import pipeline, sparse
from ingestion.canonical import ParsedPage
from ingestion.chunking import Chunk as TextChunk
from ingestion.chunking import chunk as chunk_text
from ingestion.embedding import EmbeddingClient, EmbeddingRejected, EmbeddingUnavailable
from ingestion.errors import ParseError
from ingestion.index import IndexPoint, IndexRejected, IndexUnavailable, VectorIndex
from ingestion.sandbox import PARSER_FINGERPRINT, Probe, Sandbox

log = structlog.get_logger()

EMBED_BATCH = 8
INSERT_BATCH = 500


@dataclass(frozen=True, slots=True)
class IngestTools:
    """What the job works with; made once per worker process by `app.bootstrap`."""

    database: Database
    blobs: BlobStore
    sandbox: Sandbox
    embedder: EmbeddingClient
    index: VectorIndex
    #: A seat at the embedding server for one batch of a tenant.
    seat: Callable[[UUID], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class _Source:
    version_id: UUID
    document_id: UUID
    collection_id: UUID
    name: str
    sha256: str
    number: int


class StoppedError(Exception):
    """The document can not be indexed: its state, code and sentence for a person. Not a failure of ours."""

    def __init__(self, state: str, code: str, message: str) -> None:
        super().__init__(message)
        self.state = state
        self.code = code
        self.message = message


def run(lease: Lease, tools: IngestTools) -> None:
    """Ingest the version `lease.claim.subject_id` and end its job.

    Raises UnavailableError (try again later), JobCancelledError (then call `cancelled`) and FenceLostError.
    """
    try:
        source = _begin(lease)
        if source is None:
            return
        probe = _parse(lease, tools, source)
        _chunk(lease, source, probe)
        _index(lease, tools, source)
        _activate(lease, source)
    except StoppedError as stop:
        _stop(lease, stop)


def _begin(lease: Lease) -> _Source | None:
    with lease.unit() as uow:
        version = uow.session.get(DocumentVersion, (uow.tenant_id, lease.claim.subject_id), with_for_update=True)
        document = uow.session.get(Document, (uow.tenant_id, version.document_id)) if version else None
        if version is None or document is None or document.deleted_at is not None:
            claims.finish(uow, lease.claim, "cancelled", code="deleted")
            return None
        version.state, version.code, version.message = "parsing", None, None
        if version.parser_fingerprint != PARSER_FINGERPRINT:
            # Another parser (or a wanted retry): what was parsed before is not mixed with what comes now.
            uow.session.execute(delete(Page).where(Page.version_id == version.id))
            uow.session.execute(delete(Chunk).where(Chunk.version_id == version.id))
            version.parser_fingerprint = PARSER_FINGERPRINT
            version.pages_parsed = version.chunks_total = version.chunks_indexed = 0
        lease.progress(uow, phase="parsing")
        return _Source(version.id, document.id, document.collection_id, document.name, version.sha256, version.number)


def _parse(lease: Lease, tools: IngestTools, source: _Source) -> Probe:
    path = tools.blobs.path(lease.claim.tenant_id, source.sha256)
    if not path.is_file():
        raise StoppedError("failed", "blob_missing", "The stored file is gone. Upload it again.")
    try:
        probe = tools.sandbox.probe(path, source.name)
    except ParseError as error:
        if error.retryable:
            raise UnavailableError(error.code, error.message) from error
        raise _stopped(error) from error
    with lease.unit() as uow:
        uow.session.execute(
            update(DocumentVersion)
            .where(DocumentVersion.id == source.version_id)
            .values(
                pages_total=probe.page_count,
                media_type=probe.media_type,
                title=(probe.title or "")[:500] or None,
                facts=dict(probe.facts),
            )
        )
        done = set(uow.session.scalars(select(Page.number).where(Page.version_id == source.version_id)))
        lease.progress(uow, pages_total=probe.page_count)
    for first, last in pipeline.ranges(probe.page_count):
        lease.check()
        if done.issuperset(range(first, last + 1)):
            continue
        try:
            pages = tools.sandbox.parse(path, source.name, first, last)
        except ParseError as error:
            if error.retryable:
                raise UnavailableError(error.code, error.message) from error
            raise _stopped(error) from error
        with lease.unit() as uow:
            for page in pages:
                _store_page(uow.session, uow.tenant_id, source.version_id, page)
            parsed = uow.session.scalar(
                select(func.count()).select_from(Page).where(Page.version_id == source.version_id)
            )
            uow.session.execute(
                update(DocumentVersion).where(DocumentVersion.id == source.version_id).values(pages_parsed=parsed)
            )
            lease.progress(uow, pages_parsed=parsed or 0)
    return probe


def _stopped(error: ParseError) -> StoppedError:
    state = error.code if error.code in ("needs_password", "needs_ocr") else "failed"
    return StoppedError(state, error.code, error.message)


def _store_page(session: Session, tenant_id: UUID, version_id: UUID, page: ParsedPage) -> None:
    value = page.to_json()
    columns = {
        "parser_fingerprint": PARSER_FINGERPRINT,
        "label": page.label,
        "width": page.width,
        "height": page.height,
        "rotation": page.rotation,
        "state": page.state,
        "code": page.code,
        "message": page.message,
        "parser": page.parser,
        "text": page.text,
        "lines": value["lines"],
        "elements": value["elements"],
    }
    statement = insert(Page).values(tenant_id=tenant_id, version_id=version_id, number=page.number, **columns)
    session.execute(statement.on_conflict_do_update(index_elements=["tenant_id", "version_id", "number"], set_=columns))


def _chunk(lease: Lease, source: _Source, probe: Probe) -> None:
    with lease.unit() as uow:
        pages = [
            ParsedPage.from_json(
                {
                    "number": row.number,
                    "label": row.label,
                    "width": row.width,
                    "height": row.height,
                    "rotation": row.rotation,
                    "text": row.text,
                    "lines": row.lines,
                    "elements": row.elements,
                    "state": row.state,
                    "code": row.code,
                    "message": row.message,
                    "parser": row.parser,
                }
            )
            for row in uow.session.scalars(
                select(Page).where(Page.version_id == source.version_id).order_by(Page.number)
            )
        ]
        have = uow.session.scalar(select(func.count()).select_from(Chunk).where(Chunk.version_id == source.version_id))
        version = uow.session.get(DocumentVersion, (uow.tenant_id, source.version_id))
        assert version is not None
        if have and have == version.chunks_total:
            return  # chunked before the last kill: the ids are the same, go on with what is not indexed yet
    if len(pages) != probe.page_count:
        raise UnavailableError("pages_missing", "Not every page was stored. It is tried again.")
    _refuse_empty(pages)
    canonical = pipeline.canonical_of(pages)
    title = probe.title or source.name
    chunks = chunk_text(canonical, pages, title=title)
    language = pipeline.language_of(canonical.text)
    with lease.unit() as uow:
        for page in pages:
            start = canonical.page_starts[page.number - 1]
            uow.session.execute(
                update(Page)
                .where(Page.version_id == source.version_id, Page.number == page.number)
                .values(char_start=start, char_end=start + len(page.text))
            )
        uow.session.execute(delete(Chunk).where(Chunk.version_id == source.version_id))
        for batch in batched_rows(_chunk_rows(uow.tenant_id, source, chunks)):
            uow.session.execute(insert(Chunk), batch)
        uow.session.execute(
            update(DocumentVersion)
            .where(DocumentVersion.id == source.version_id)
            .values(state="indexing", language=language, chunks_total=len(chunks), chunks_indexed=0)
        )
        lease.progress(uow, phase="indexing", chunks_total=len(chunks))


def _refuse_empty(pages: Sequence[ParsedPage]) -> None:
    """An empty result from a non-empty file is a failure with a reason, never a success."""
    if any(page.state == "ok" and page.text.strip() for page in pages):
        return
    states = {page.state for page in pages}
    if "needs_ocr" in states:
        raise StoppedError(
            "needs_ocr", "needs_ocr", "The pages are images without text. They need text recognition (OCR)."
        )
    failed = next((page for page in pages if page.state == "failed"), None)
    if failed is not None:
        raise StoppedError("failed", failed.code or "corrupt", failed.message or "No page could be read.")
    raise StoppedError("failed", "no_text", "The file holds no text.")


def _chunk_rows(tenant_id: UUID, source: _Source, chunks: Sequence[TextChunk]) -> Iterator[dict[str, object]]:
    for chunk in chunks:
        vector = sparse.encode_document(pipeline.embedding_text(chunk), chunk.language)
        yield {
            "tenant_id": tenant_id,
            "id": derived_id(source.version_id, chunk.ordinal),
            "version_id": source.version_id,
            "document_id": source.document_id,
            "collection_id": source.collection_id,
            "ordinal": chunk.ordinal,
            "char_start": chunk.start,
            "char_end": chunk.end,
            "page_from": chunk.page_from,
            "page_to": chunk.page_to,
            "header": chunk.header,
            "text": chunk.text,
            "language": chunk.language,
            "stems": list(vector.indices),
        }


def batched_rows(values: Iterator[dict[str, object]]) -> Iterator[list[dict[str, object]]]:
    """Lists of at most INSERT_BATCH rows."""
    while batch := list(islice(values, INSERT_BATCH)):
        yield batch


def _index(lease: Lease, tools: IngestTools, source: _Source) -> None:
    tenant = str(lease.claim.tenant_id)
    try:
        have = tools.index.ids(tenant, str(source.version_id))
        with lease.unit() as uow:
            todo = list(
                uow.session.execute(
                    select(Chunk.id, Chunk.header, Chunk.text, Chunk.language)
                    .where(Chunk.version_id == source.version_id)
                    .order_by(Chunk.ordinal)
                )
            )
        known = {str(row.id) for row in todo}
        if have - known:
            # Points of an earlier, different chunking of this version: they must not survive beside the new ones.
            tools.index.delete_versions(tenant, [str(source.version_id)])
            have = set()
        todo = [row for row in todo if str(row.id) not in have]
        done = len(known) - len(todo)
        for start in range(0, len(todo), EMBED_BATCH):
            lease.check()
            batch = todo[start : start + EMBED_BATCH]
            texts = [pipeline.headed(row.header, row.text) for row in batch]
            with tools.seat(lease.claim.tenant_id):
                vectors = tools.embedder.documents(texts)
            lease.check()
            tools.index.upsert(
                [
                    IndexPoint(
                        id=str(row.id),
                        dense=vector,
                        sparse=sparse.encode_document(text, row.language),
                        tenant_id=tenant,
                        collection_id=str(source.collection_id),
                        document_id=str(source.document_id),
                        version_id=str(source.version_id),
                    )
                    for row, text, vector in zip(batch, texts, vectors, strict=True)
                ]
            )
            done += len(batch)
            with lease.unit() as uow:
                uow.session.execute(
                    update(DocumentVersion).where(DocumentVersion.id == source.version_id).values(chunks_indexed=done)
                )
                lease.progress(uow, chunks_indexed=done)
        if tools.index.count(tenant, version_id=str(source.version_id)) != len(known):
            raise UnavailableError("points_missing", "The index does not hold every chunk. It is tried again.")
    except IndexRejected as error:
        if error.status != 404:
            raise UpstreamError("index_rejected", "The vector index refused the document.") from error
        # The index was replaced by an empty one: make its collection, then try again.
        tools.index.ensure()
        raise index_away() from error
    except (IndexUnavailable, EmbeddingUnavailable) as error:
        if isinstance(error, EmbeddingUnavailable):
            raise UnavailableError(
                "embeddings_unavailable", "The embedding server does not answer. It is tried again."
            ) from error
        raise index_away() from error
    except EmbeddingRejected as error:
        raise StoppedError("failed", "embedding_rejected", "The embedding server refused the text.") from error


def _activate(lease: Lease, source: _Source) -> None:
    """One transaction makes the version active, retires the one before it, writes the audit row and ends the job."""
    with lease.unit() as uow:
        document = uow.session.get(Document, (uow.tenant_id, source.document_id), with_for_update=True)
        version = uow.session.get(DocumentVersion, (uow.tenant_id, source.version_id), with_for_update=True)
        if document is None or version is None or document.deleted_at is not None:
            raise JobCancelledError
        counted = dict(
            uow.session.execute(
                select(Page.state, func.count()).where(Page.version_id == version.id).group_by(Page.state)
            ).all()
        )
        readable = counted.get("ok", 0) + counted.get("blank", 0)
        version.pages_indexed = readable
        version.chunks_indexed = version.chunks_total
        version.indexed_at = now()
        missing = version.pages_total - readable
        version.state = "indexed" if missing == 0 else "partial"
        if missing:
            version.code = "pages_missing"
            version.message = (
                f"{missing} of {version.pages_total} pages could not be read; they are listed with reasons."
            )
        previous = document.active_version_id
        if document.latest_version_id != version.id:
            # A newer upload came meanwhile: it decides, this one steps back.
            raise JobCancelledError
        document.active_version_id = version.id
        document.updated_at = now()
        if previous is not None and previous != version.id:
            uow.session.execute(
                update(DocumentVersion).where(DocumentVersion.id == previous).values(state="superseded")
            )
            rows.enqueue(uow, kind=KIND_RETIRE_VERSION, queue=queues.CONTROL, subject_id=previous)
        events.append(
            uow,
            f"job:{lease.claim.job_id}",
            "document.index",
            "document",
            document.id,
            version=version.id,
            pages=readable,
            chunks=version.chunks_total,
        )
        claims.finish(uow, lease.claim, "succeeded")


def _stop(lease: Lease, stop: StoppedError) -> None:
    with lease.unit() as uow:
        version = uow.session.get(DocumentVersion, (uow.tenant_id, lease.claim.subject_id), with_for_update=True)
        if version is not None:
            version.state, version.code, version.message = stop.state, stop.code, stop.message
            uow.session.execute(delete(Chunk).where(Chunk.version_id == version.id))
            version.chunks_total = version.chunks_indexed = 0
        claims.finish(uow, lease.claim, "failed", code=stop.code, message=stop.message)
    log.info("document_not_indexed", version_id=str(lease.claim.subject_id), code=stop.code)


def cancelled(lease: Lease, tools: IngestTools) -> None:
    """End a cancelled ingestion: its points and chunks go, the version says so. Runs outside `Lease.unit`."""
    claim = lease.claim
    assert claim.subject_id is not None
    try:
        tools.index.delete_versions(str(claim.tenant_id), [str(claim.subject_id)])
    except IndexUnavailable as error:
        raise index_away() from error
    with tools.database.tenant(claim.tenant_id) as uow:
        version = uow.session.get(DocumentVersion, (uow.tenant_id, claim.subject_id), with_for_update=True)
        if version is not None:
            uow.session.execute(delete(Chunk).where(Chunk.version_id == version.id))
            version.state, version.code, version.message = "cancelled", None, "Cancelled."
            version.chunks_total = version.chunks_indexed = 0
        claims.finish(uow, claim, "cancelled")


def died(database: Database, tenant_id: UUID, version_id: UUID, error: FullreadError) -> None:
    """Tell the version that its job ended for good without a result (attempts used up)."""
    with database.tenant(tenant_id) as uow:
        uow.session.execute(
            update(DocumentVersion)
            .where(DocumentVersion.id == version_id, DocumentVersion.state.in_(("received", "parsing", "indexing")))
            .values(state="failed", code=error.code, message=error.message)
        )
