"""Erasing: after the rows became invisible, points, chunks, pages and blobs go. Each step may be repeated."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import delete, select

from app.core.blobs import BlobStore
from app.core.errors import UnavailableError
from app.documents.library import is_used, lock_blob
from app.documents.tables import Chunk, Collection, Document, DocumentVersion
from app.jobs import claims
from app.jobs.claims import Lease
from ingestion.index import IndexUnavailable, VectorIndex

KIND_RETIRE_VERSION = "retire_version"


def index_away() -> UnavailableError:
    """The vector index does not answer: the job is set back and tried again."""
    return UnavailableError("index_unavailable", "The vector index does not answer. It is tried again.")


def purge_document(lease: Lease, index: VectorIndex, blobs: BlobStore) -> None:
    """Erase the deleted document `lease.claim.subject_id` from every store, then end the job."""
    claim = lease.claim
    assert claim.subject_id is not None
    _erase_documents(lease, index, blobs, [claim.subject_id])
    with lease.unit() as uow:
        claims.finish(uow, claim, "succeeded")


def purge_collection(lease: Lease, index: VectorIndex, blobs: BlobStore) -> None:
    """Erase every document of the deleted collection and the collection itself, then end the job."""
    claim = lease.claim
    assert claim.subject_id is not None
    with lease.unit() as uow:
        ids = list(uow.session.scalars(select(Document.id).where(Document.collection_id == claim.subject_id)))
    _erase_documents(lease, index, blobs, ids)
    try:
        index.delete_collection(str(claim.tenant_id), str(claim.subject_id))
    except IndexUnavailable as error:
        raise index_away() from error
    with lease.unit() as uow:
        uow.session.execute(delete(Collection).where(Collection.id == claim.subject_id))
        claims.finish(uow, claim, "succeeded")


def _erase_documents(lease: Lease, index: VectorIndex, blobs: BlobStore, ids: Sequence[UUID]) -> None:
    tenant_id = lease.claim.tenant_id
    for document_id in ids:
        try:
            index.delete_documents(str(tenant_id), [str(document_id)])
            left = index.count(str(tenant_id), document_id=str(document_id))
        except IndexUnavailable as error:
            raise index_away() from error
        if left:
            raise UnavailableError("points_left", "The index still holds points of the document. It is tried again.")
        with lease.unit() as uow:
            document = uow.session.get(Document, (tenant_id, document_id), with_for_update=True)
            if document is None:
                continue
            if document.deleted_at is None:
                raise AssertionError("a purge was asked for a document that is not deleted")
            digests = set(
                uow.session.scalars(select(DocumentVersion.sha256).where(DocumentVersion.document_id == document_id))
            )
            uow.session.execute(delete(Document).where(Document.id == document_id))
        for digest in digests:
            with lease.unit() as uow:
                # The lock is held over the unlink: an upload of the same bytes waits, then stores them again.
                lock_blob(uow, digest)
                if not is_used(uow, digest):
                    blobs.delete(tenant_id, digest)


def retire_version(lease: Lease, index: VectorIndex) -> None:
    """Take a superseded version out of search: its points and chunks go, its pages stay citable."""
    claim = lease.claim
    assert claim.subject_id is not None
    try:
        index.delete_versions(str(claim.tenant_id), [str(claim.subject_id)])
    except IndexUnavailable as error:
        raise index_away() from error
    with lease.unit() as uow:
        uow.session.execute(delete(Chunk).where(Chunk.version_id == claim.subject_id))
        claims.finish(uow, claim, "succeeded")
