"""Routes of documents, pages and jobs."""

from typing import Annotated
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, File, Form, Path, Query, Response, UploadFile
from fastapi.responses import FileResponse
from sqlalchemy import select

from app.analysis import queue as analyses
from app.api.dependencies import (
    INTEGER_MAX,
    TEXT_PATTERN,
    CursorQuery,
    LimitQuery,
    PrincipalDep,
    ServicesDep,
    UnitDep,
)
from app.api.schemas import DocumentOut, Items, JobOut, JobRef, PageOut, UploadOut, VersionOut
from app.bootstrap import Services
from app.core.errors import FullreadError, NotFoundError, UnavailableError
from app.documents import access, library
from app.documents.tables import Page
from app.identity.permissions import Action, Principal
from app.jobs import hints, rows
from app.jobs.tables import Job

router = APIRouter(tags=["documents"])

NameForm = Annotated[str | None, Form(max_length=1000, description="name (relative path) to show; else the file's")]


def _page(page: Page) -> PageOut:
    return PageOut.model_validate(page, from_attributes=True)


def _job(job: Job) -> JobOut:
    return JobOut.model_validate(job, from_attributes=True)


def _forget_unused(services: Services, actor: Principal, sha256: str) -> None:
    """A refused upload leaves no bytes behind, unless a document holds the same ones."""
    with services.database.tenant(actor.tenant_id) as uow:
        library.lock_blob(uow, sha256)
        if not library.is_used(uow, sha256):
            services.blobs.delete(actor.tenant_id, sha256)


@router.post("/collections/{collection_id}/documents", status_code=202)
def upload_document(
    collection_id: UUID,
    file: Annotated[UploadFile, File(description="the file's bytes")],
    response: Response,
    services: ServicesDep,
    actor: PrincipalDep,
    name: NameForm = None,
) -> UploadOut:
    """Upload one file. 202 with the job that ingests it; 200 when the same bytes are in the collection already.

    A file of the same name with other bytes becomes a new version. Sending the same file again is harmless.
    """
    database, blobs = services.database, services.blobs
    with database.tenant(actor.tenant_id) as uow:
        access.open_collection(uow, actor, collection_id, Action.WRITE_DOCUMENTS)
    shown_name = library.checked_name(name or file.filename or "unnamed")
    for attempt in (1, 2):
        file.file.seek(0)
        blob = blobs.put(actor.tenant_id, file.file, max_bytes=services.settings.max_upload_bytes)
        path = blobs.path(actor.tenant_id, blob.sha256)
        try:
            with database.tenant(actor.tenant_id) as uow:
                made = library.add(uow, actor, collection_id, name=shown_name, blob=blob, is_stored=path.is_file)
            break
        except UnavailableError as error:
            if error.code != "blob_gone" or attempt == 2:
                raise
        except FullreadError:
            _forget_unused(services, actor, blob.sha256)
            raise
    if made.job is not None:
        hints.send(made.job.queue, made.job.id)
    else:
        response.status_code = 200
    return UploadOut(
        document=DocumentOut.of(made.view),
        job_id=made.job.id if made.job else None,
        duplicate_of=made.view.document.id if made.duplicate else None,
    )


@router.get("/collections/{collection_id}/documents")
def list_documents(
    collection_id: UUID,
    uow: UnitDep,
    actor: PrincipalDep,
    limit: LimitQuery = 100,
    cursor: CursorQuery = None,
    state: Annotated[str | None, Query(max_length=40, pattern=TEXT_PATTERN)] = None,
    name: Annotated[str | None, Query(max_length=1000, pattern=TEXT_PATTERN, description="exact name")] = None,
) -> Items[DocumentOut]:
    """Documents of the collection, oldest first."""
    views = library.page(uow, actor, collection_id, after=cursor, limit=limit, state=state, name=name)
    last = views[-1].document.id if len(views) == limit else None
    return Items(items=[DocumentOut.of(view) for view in views], next=str(last) if last else None)


@router.get("/documents/{document_id}")
def get_document(document_id: UUID, uow: UnitDep, actor: PrincipalDep) -> DocumentOut:
    """One document with its latest version."""
    return DocumentOut.of(library.view(uow, actor, document_id))


@router.delete("/documents/{document_id}", status_code=202)
def delete_document(document_id: UUID, services: ServicesDep, actor: PrincipalDep) -> JobRef:
    """Delete a document: no search finds it from now on; the job erases points, chunks, pages and bytes."""
    with services.database.tenant(actor.tenant_id) as uow:
        job = library.remove(uow, actor, document_id)
    hints.send(job.queue, job.id)
    return JobRef(job_id=job.id)


@router.post("/documents/{document_id}/retry", status_code=202)
def retry_document(document_id: UUID, services: ServicesDep, actor: PrincipalDep) -> UploadOut:
    """Ingest the latest version again after it failed, was cancelled or is only partly indexed."""
    with services.database.tenant(actor.tenant_id) as uow:
        view, job = library.retry(uow, actor, document_id)
    hints.send(job.queue, job.id)
    return UploadOut(document=DocumentOut.of(view), job_id=job.id, duplicate_of=None)


@router.post("/documents/{document_id}/cancel", status_code=202)
def cancel_document(document_id: UUID, uow: UnitDep, actor: PrincipalDep) -> DocumentOut:
    """Stop the ingestion of the latest version; a version that was active before stays active."""
    return DocumentOut.of(library.cancel(uow, actor, document_id))


@router.get("/documents/{document_id}/versions")
def list_versions(document_id: UUID, uow: UnitDep, actor: PrincipalDep) -> Items[VersionOut]:
    """All versions of a document, newest first."""
    found = library.versions(uow, actor, document_id)
    return Items(items=[VersionOut.model_validate(version, from_attributes=True) for version in found])


VersionQuery = Annotated[UUID | None, Query(alias="version_id", description="default: the active version")]


@router.get("/documents/{document_id}/pages")
def list_pages(
    document_id: UUID,
    uow: UnitDep,
    actor: PrincipalDep,
    limit: Annotated[int, Query(ge=1, le=50)] = 20,
    cursor: Annotated[int, Query(ge=0, le=INTEGER_MAX, description="number of the last page seen")] = 0,
    version: VersionQuery = None,
) -> Items[PageOut]:
    """Parsed pages with text, lines and elements."""
    document = access.open_document(uow, actor, document_id, Action.READ)
    shown = library.shown_version(uow, document, version)
    found = library.pages(uow, shown.id, after=cursor, limit=limit)
    return Items(items=[_page(page) for page in found], next=str(found[-1].number) if len(found) == limit else None)


@router.get("/documents/{document_id}/pages/{number}")
def get_page(
    document_id: UUID,
    number: Annotated[int, Path(ge=1, le=INTEGER_MAX)],
    uow: UnitDep,
    actor: PrincipalDep,
    version: VersionQuery = None,
) -> PageOut:
    """One parsed page; `number` is the 1-based index in the file."""
    document = access.open_document(uow, actor, document_id, Action.READ)
    shown = library.shown_version(uow, document, version)
    return _page(library.one_page(uow, shown.id, number))


@router.get("/documents/{document_id}/original", response_class=FileResponse)
def get_original(
    document_id: UUID, services: ServicesDep, actor: PrincipalDep, version: VersionQuery = None
) -> FileResponse:
    """The uploaded bytes, always as an attachment that no browser opens by itself."""
    with services.database.tenant(actor.tenant_id) as uow:
        document = access.open_document(uow, actor, document_id, Action.READ)
        shown = library.shown_version(uow, document, version)
        path = services.blobs.path(actor.tenant_id, shown.sha256)
        name = document.name.rsplit("/", 1)[-1]
    if not path.is_file():
        raise NotFoundError("blob_missing", "The stored file is gone. Upload it again.")
    return FileResponse(
        path,
        media_type="application/octet-stream",
        headers={
            # RFC 6266 with RFC 8187: the name is percent-encoded, so nothing in it reaches the header raw.
            "content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
            "content-security-policy": "sandbox; default-src 'none'",
        },
    )


@router.get("/jobs")
def list_jobs(
    uow: UnitDep,
    actor: PrincipalDep,
    limit: LimitQuery = 50,
    cursor: CursorQuery = None,
    state: Annotated[str | None, Query(max_length=40, pattern=TEXT_PATTERN)] = None,
) -> Items[JobOut]:
    """Jobs about collections that the caller sees, newest first."""
    visible = access.visible_collection_ids(actor)
    query = select(Job).where(Job.collection_id.in_(visible)).order_by(Job.id.desc()).limit(limit)
    if cursor is not None:
        query = query.where(Job.id < cursor)
    if state is not None:
        query = query.where(Job.state == state)
    found = uow.session.scalars(query).all()
    return Items(items=[_job(job) for job in found], next=str(found[-1].id) if len(found) == limit else None)


@router.get("/jobs/{job_id}")
def get_job(job_id: UUID, uow: UnitDep, actor: PrincipalDep) -> JobOut:
    """One job."""
    return _job(access.open_job(uow, actor, job_id, Action.READ))


@router.post("/jobs/{job_id}/cancel", status_code=202)
def cancel_job(job_id: UUID, uow: UnitDep, actor: PrincipalDep) -> JobOut:
    """Cancel a queued job, or ask a running one to stop. What erases runs to its end; an analysis is its asker's."""
    job = access.open_job(uow, actor, job_id, Action.READ)
    if job.kind == analyses.KIND_ANALYSIS:
        analyses.cancel(uow, actor, job)
    else:
        access.open_job(uow, actor, job_id, Action.WRITE_DOCUMENTS)
        library.cancel_job(uow, actor, job)
    uow.session.refresh(job)
    return _job(job)


@router.get("/jobs/{job_id}/events")
def job_events(job_id: UUID, uow: UnitDep, actor: PrincipalDep) -> Items[dict[str, object]]:
    """What happened to a job, in order."""
    job = access.open_job(uow, actor, job_id, Action.READ)
    return Items(
        items=[{"at": e.at.isoformat(), "event": e.event, "detail": e.detail} for e in rows.history(uow, job.id)]
    )
