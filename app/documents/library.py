"""Upload, new versions, retry, cancel, delete: what people do with documents. Work itself is done by jobs."""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from uuid import UUID

from sqlalchemy import exists, func, select, text, update

from app.audit import events
from app.core.blobs import StoredBlob
from app.core.clock import now
from app.core.db import UnitOfWork
from app.core.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from app.core.ids import new_id
from app.documents import access
from app.documents.tables import Document, DocumentVersion, Page
from app.identity.permissions import Action, Principal
from app.jobs import queues, rows
from app.jobs.tables import Job

KIND_INGEST = "ingest"
KIND_PURGE_DOCUMENT = "purge_document"
#: States in which nothing more happens by itself, but a retry may help.
RETRYABLE_STATES = ("failed", "cancelled", "needs_password", "needs_ocr", "partial")
WORKING_STATES = ("received", "parsing", "indexing")
_NAME_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class DocumentView:
    """A document with its latest version, as lists and answers show it."""

    document: Document
    version: DocumentVersion | None


@dataclass(frozen=True, slots=True)
class Upload:
    """What an upload led to. `duplicate` is True when the same bytes are in the collection already."""

    view: DocumentView
    job: Job | None
    duplicate: bool


def checked_name(name: str) -> str:
    """A document's name: a relative path with forward slashes, kept as text only (it never becomes a path of ours)."""
    name = name.replace("\\", "/").strip().strip("/")
    if not name or len(name) > _NAME_LIMIT:
        raise InvalidInputError("bad_name", f"A document name has 1 to {_NAME_LIMIT} characters.")
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
        raise InvalidInputError("bad_name", "A document name holds no control characters.")
    return name


def lock_blob(uow: UnitOfWork, sha256: str) -> None:
    """Until the commit nobody else registers or erases these bytes of the tenant."""
    uow.session.execute(
        text("select pg_advisory_xact_lock(hashtextextended('blob:' || :tenant || :sha256, 0))"),
        {"tenant": str(uow.tenant_id), "sha256": sha256},
    )


def add(
    uow: UnitOfWork,
    actor: Principal,
    collection_id: UUID,
    *,
    name: str,
    blob: StoredBlob,
    is_stored: Callable[[], bool],
) -> Upload:
    """Register uploaded bytes: a new document, a new version of the document of that name, or a duplicate.

    Row(s), job and outbox are written in this transaction. The same bytes in one collection are ingested once:
    the second upload names the first document (and restarts it when it had failed). `is_stored` says whether the
    bytes still lie in the store: a purge may have erased equal bytes meanwhile, then UnavailableError("blob_gone").
    """
    access.open_collection(uow, actor, collection_id, Action.WRITE_DOCUMENTS)
    name = checked_name(name)
    # Two uploads at the same moment must see each other: one at a time per collection, for milliseconds.
    uow.session.execute(
        text("select pg_advisory_xact_lock(hashtextextended('upload:' || :id, 0))"), {"id": str(collection_id)}
    )
    lock_blob(uow, blob.sha256)
    if not is_stored():
        raise UnavailableError("blob_gone", "The file was erased while it was uploaded. Send it again.")
    twins = uow.session.execute(
        select(Document, DocumentVersion)
        .join(DocumentVersion, DocumentVersion.id == Document.latest_version_id)
        .where(
            Document.collection_id == collection_id,
            Document.deleted_at.is_(None),
            DocumentVersion.sha256 == blob.sha256,
        )
        .order_by(Document.id)
    ).all()
    # What bytes mean depends on the extension too: a docx renamed to .xlsx is its own case, with its own failure.
    same_bytes = next((pair for pair in twins if _suffix(pair[0].name) == _suffix(name)), None)
    if same_bytes is not None:
        document, version = same_bytes
        job = None
        if version.state in ("failed", "cancelled"):
            job = _restart(uow, actor, document, version)
            events.append(uow, actor.actor, "document.retry", "document", document.id, request_id=actor.request_id)
        return Upload(DocumentView(document, version), job, duplicate=True)
    document_or_none = uow.session.scalars(
        select(Document).where(
            Document.collection_id == collection_id, Document.name == name, Document.deleted_at.is_(None)
        )
    ).one_or_none()
    if document_or_none is None:
        document = Document(
            tenant_id=uow.tenant_id,
            id=new_id(),
            collection_id=collection_id,
            name=name,
            active_version_id=None,
            latest_version_id=None,
            created_by=actor.user_id,
            created_at=now(),
            updated_at=now(),
            deleted_at=None,
        )
        uow.session.add(document)
        uow.session.flush()
        number = 1
    else:
        document = document_or_none
        number = 1 + (
            uow.session.scalar(
                select(func.max(DocumentVersion.number)).where(DocumentVersion.document_id == document.id)
            )
            or 0
        )
        if document.latest_version_id is not None:
            _stop_work(uow, document.latest_version_id)
    version = _new_version(uow, document, number, blob)
    document.latest_version_id = version.id
    document.updated_at = now()
    job = _enqueue_ingest(uow, actor, document, version)
    events.append(
        uow,
        actor.actor,
        "document.upload",
        "document",
        document.id,
        request_id=actor.request_id,
        version=version.id,
        number=number,
        sha256=blob.sha256,
    )
    return Upload(DocumentView(document, version), job, duplicate=False)


def is_used(uow: UnitOfWork, sha256: str) -> bool:
    """Whether a version of the tenant holds these bytes."""
    return bool(uow.session.scalar(select(exists().where(DocumentVersion.sha256 == sha256))))


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _new_version(uow: UnitOfWork, document: Document, number: int, blob: StoredBlob) -> DocumentVersion:
    version = DocumentVersion(
        tenant_id=uow.tenant_id,
        id=new_id(),
        document_id=document.id,
        collection_id=document.collection_id,
        number=number,
        sha256=blob.sha256,
        size_bytes=blob.size_bytes,
        state="received",
        code=None,
        message=None,
        media_type=None,
        language=None,
        title=None,
        facts={},
        parser_fingerprint=None,
        pages_total=0,
        pages_parsed=0,
        pages_indexed=0,
        chunks_total=0,
        chunks_indexed=0,
        created_at=now(),
        indexed_at=None,
    )
    uow.session.add(version)
    uow.session.flush()
    return version


def _enqueue_ingest(uow: UnitOfWork, actor: Principal, document: Document, version: DocumentVersion) -> Job:
    return rows.enqueue(
        uow,
        kind=KIND_INGEST,
        queue=queues.INGEST,
        subject_id=version.id,
        collection_id=document.collection_id,
        created_by=actor.user_id,
    )


def _stop_work(uow: UnitOfWork, version_id: UUID) -> None:
    for job in rows.live_jobs(uow, version_id, KIND_INGEST):
        rows.request_cancel(uow, job)


def page(
    uow: UnitOfWork,
    actor: Principal,
    collection_id: UUID,
    *,
    after: UUID | None,
    limit: int,
    state: str | None = None,
    name: str | None = None,
) -> Sequence[DocumentView]:
    """Documents of the collection, oldest first, after the id `after`; filters by state and by exact name."""
    access.open_collection(uow, actor, collection_id, Action.READ)
    query = (
        select(Document, DocumentVersion)
        .join(DocumentVersion, DocumentVersion.id == Document.latest_version_id, isouter=True)
        .where(Document.collection_id == collection_id, Document.deleted_at.is_(None))
        .order_by(Document.id)
        .limit(limit)
    )
    if after is not None:
        query = query.where(Document.id > after)
    if state is not None:
        query = query.where(DocumentVersion.state == state)
    if name is not None:
        query = query.where(Document.name == name)
    return [DocumentView(document, version) for document, version in uow.session.execute(query)]


def view(uow: UnitOfWork, actor: Principal, document_id: UUID) -> DocumentView:
    """One document with its latest version."""
    document = access.open_document(uow, actor, document_id, Action.READ)
    version = uow.session.get(DocumentVersion, (uow.tenant_id, document.latest_version_id))
    return DocumentView(document, version)


def versions(uow: UnitOfWork, actor: Principal, document_id: UUID) -> Sequence[DocumentVersion]:
    """All versions of a document, newest first."""
    access.open_document(uow, actor, document_id, Action.READ)
    return uow.session.scalars(
        select(DocumentVersion)
        .where(DocumentVersion.document_id == document_id)
        .order_by(DocumentVersion.number.desc())
    ).all()


def shown_version(uow: UnitOfWork, document: Document, version_id: UUID | None) -> DocumentVersion:
    """The version to read: the one asked for, else the active one, else the latest. Foreign ids are not found."""
    wanted = version_id or document.active_version_id or document.latest_version_id
    version = uow.session.get(DocumentVersion, (uow.tenant_id, wanted))
    if version is None or version.document_id != document.id:
        raise NotFoundError
    return version


def pages(uow: UnitOfWork, version_id: UUID, *, after: int, limit: int) -> Sequence[Page]:
    """Parsed pages of a version after page number `after`. The caller has checked the right to read."""
    return uow.session.scalars(
        select(Page).where(Page.version_id == version_id, Page.number > after).order_by(Page.number).limit(limit)
    ).all()


def one_page(uow: UnitOfWork, version_id: UUID, number: int) -> Page:
    """One parsed page of a version. Raises NotFoundError."""
    found = uow.session.get(Page, (uow.tenant_id, version_id, number))
    if found is None:
        raise NotFoundError
    return found


def retry(uow: UnitOfWork, actor: Principal, document_id: UUID) -> tuple[DocumentView, Job]:
    """Start the latest version again after it failed, was cancelled, or is only partly indexed."""
    document = access.open_document(uow, actor, document_id, Action.WRITE_DOCUMENTS)
    version = uow.session.get(DocumentVersion, (uow.tenant_id, document.latest_version_id), with_for_update=True)
    if version is None or version.state not in RETRYABLE_STATES:
        state = version.state if version else "none"
        raise ConflictError("not_retryable", f"A document in state '{state}' can not be retried.", state=state)
    job = _restart(uow, actor, document, version)
    events.append(uow, actor.actor, "document.retry", "document", document.id, request_id=actor.request_id)
    return DocumentView(document, version), job


def _restart(uow: UnitOfWork, actor: Principal, document: Document, version: DocumentVersion) -> Job:
    version.state, version.code, version.message = "received", None, None
    version.parser_fingerprint = None  # parse again: a retry of the same pages would only repeat the failure
    document.updated_at = now()
    return _enqueue_ingest(uow, actor, document, version)


def cancel(uow: UnitOfWork, actor: Principal, document_id: UUID) -> DocumentView:
    """Stop the ingestion of the latest version; a version that was active before stays active."""
    document = access.open_document(uow, actor, document_id, Action.WRITE_DOCUMENTS)
    version = uow.session.get(DocumentVersion, (uow.tenant_id, document.latest_version_id))
    if version is None or version.state not in WORKING_STATES:
        state = version.state if version else "none"
        raise ConflictError("not_working", f"A document in state '{state}' has nothing to cancel.", state=state)
    for job in rows.live_jobs(uow, version.id, KIND_INGEST):
        _cancel_ingest(uow, job)
    uow.session.refresh(version)
    events.append(uow, actor.actor, "document.cancel", "document", document.id, request_id=actor.request_id)
    return DocumentView(document, version)


def _cancel_ingest(uow: UnitOfWork, job: Job) -> None:
    # Lock order everywhere: job row, then document or version. The worker's units do the same.
    if rows.request_cancel(uow, job):
        uow.session.execute(
            update(DocumentVersion)
            .where(DocumentVersion.id == job.subject_id, DocumentVersion.state.in_(WORKING_STATES))
            .values(state="cancelled", code=None, message="Cancelled before it started.")
        )


def cancel_job(uow: UnitOfWork, actor: Principal, job: Job) -> None:
    """Cancel an ingest job through its document, so that the document's state follows."""
    if job.kind != KIND_INGEST or job.state not in rows.LIVE_STATES:
        raise ConflictError("not_cancellable", "This job is over, or must run to its end.", state=job.state)
    _cancel_ingest(uow, job)
    events.append(uow, actor.actor, "job.cancel", "job", job.id, request_id=actor.request_id)


def remove(uow: UnitOfWork, actor: Principal, document_id: UUID) -> Job:
    """Delete a document: invisible with the commit; the returned job erases points, chunks, pages and blob."""
    document = access.open_document(uow, actor, document_id, Action.WRITE_DOCUMENTS)
    if document.latest_version_id is not None:
        _stop_work(uow, document.latest_version_id)
    document.deleted_at = now()
    events.append(uow, actor.actor, "document.delete", "document", document.id, request_id=actor.request_id)
    return rows.enqueue(
        uow,
        kind=KIND_PURGE_DOCUMENT,
        queue=queues.CONTROL,
        subject_id=document.id,
        collection_id=document.collection_id,
        created_by=actor.user_id,
    )
