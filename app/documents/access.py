"""The only ACL rules: which collections and documents a principal sees, and with which role.

What a caller may not see does not exist for it: the same NotFoundError as for a random id.
"""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Select, select

from app.core.db import UnitOfWork
from app.core.errors import NotFoundError
from app.documents.tables import Collection, CollectionGrant, Document
from app.identity.permissions import Action, Principal, Role, require
from app.jobs import rows
from app.jobs.tables import Job


@dataclass(frozen=True, slots=True)
class Access:
    """A collection that the caller sees, and the caller's role on it."""

    collection: Collection
    role: Role


def visible_collections(actor: Principal) -> Select[Collection, str | None]:
    """Collections (with the grant's role, None for owners and admins) that the actor may see."""
    grant = (
        select(CollectionGrant.role)
        .where(CollectionGrant.collection_id == Collection.id, CollectionGrant.user_id == actor.user_id)
        .scalar_subquery()
    )
    query = select(Collection, grant).where(Collection.deleted_at.is_(None))
    return query if actor.sees_all_collections else query.where(grant.is_not(None))


def open_collection(uow: UnitOfWork, actor: Principal, collection_id: UUID, action: Action) -> Access:
    """The collection, if the actor sees it and may do `action`. Raises NotFoundError, then ForbiddenError."""
    row = uow.session.execute(visible_collections(actor).where(Collection.id == collection_id)).one_or_none()
    if row is None:
        raise NotFoundError
    collection, grant = row
    role = Role(grant) if grant and not actor.sees_all_collections else actor.role
    require(actor, action, grant=role)
    return Access(collection, role)


def open_document(uow: UnitOfWork, actor: Principal, document_id: UUID, action: Action) -> Document:
    """The document, if the actor sees its collection and may do `action`. Raises NotFoundError, then ForbiddenError."""
    document = uow.session.get(Document, (uow.tenant_id, document_id))
    if document is None or document.deleted_at is not None:
        raise NotFoundError
    open_collection(uow, actor, document.collection_id, action)
    return document


def visible_collection_ids(actor: Principal) -> Select[UUID]:
    """Ids of the collections that the actor sees. Raises ForbiddenError for a key without the scope to read."""
    require(actor, Action.READ)
    return visible_collections(actor).with_only_columns(Collection.id)


def open_job(uow: UnitOfWork, actor: Principal, job_id: UUID, action: Action) -> Job:
    """A job about a collection that the actor sees; an administrator also sees jobs whose collection is gone."""
    job = rows.find(uow, job_id)
    if job is None or (job.collection_id is None and not actor.sees_all_collections):
        raise NotFoundError
    if job.collection_id is not None:
        collection = uow.session.get(Collection, (uow.tenant_id, job.collection_id))
        gone = collection is None or collection.deleted_at is not None
        if not (gone and actor.sees_all_collections):
            open_collection(uow, actor, job.collection_id, action)
            return job
    require(actor, action)
    return job
