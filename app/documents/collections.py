"""Collections and their grants: create, rename, list, delete, and the state of what lies in them."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from app.audit import events
from app.core.clock import now
from app.core.db import UnitOfWork
from app.core.errors import ConflictError, InvalidInputError, NotFoundError
from app.core.ids import new_id
from app.documents import access
from app.documents.tables import Chunk, Collection, CollectionGrant, Document, DocumentVersion
from app.identity.permissions import Action, Principal, Role, require
from app.identity.tables import User
from app.jobs import queues, rows
from app.jobs.tables import Job

KIND_PURGE_COLLECTION = "purge_collection"


@dataclass(frozen=True, slots=True)
class CollectionStatus:
    """What lies in a collection: documents per state, pages and chunks."""

    documents: dict[str, int]
    pages_total: int
    pages_indexed: int
    chunks: int


def create(uow: UnitOfWork, actor: Principal, *, name: str, description: str = "") -> Collection:
    """Make a collection; whoever is no administrator gets an editor's grant on what it made."""
    require(actor, Action.CREATE_COLLECTION)
    collection = Collection(
        tenant_id=uow.tenant_id,
        id=new_id(),
        name=_checked_name(name),
        description=description,
        revision=1,
        created_by=actor.user_id,
        created_at=now(),
        deleted_at=None,
    )
    uow.session.add(collection)
    _flush_unique(uow)
    if not actor.sees_all_collections:
        uow.session.add(
            CollectionGrant(
                tenant_id=uow.tenant_id,
                collection_id=collection.id,
                user_id=actor.user_id,
                role=Role.EDITOR.value,
                created_at=now(),
            )
        )
    events.append(uow, actor.actor, "collection.create", "collection", collection.id, request_id=actor.request_id)
    return collection


def _checked_name(name: str) -> str:
    name = name.strip()
    if not name or len(name) > 200 or any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
        raise InvalidInputError("bad_name", "A name has 1 to 200 characters and no control characters.")
    return name


def _flush_unique(uow: UnitOfWork) -> None:
    try:
        uow.session.flush()
    except IntegrityError as error:
        raise ConflictError("name_taken", "There is already a collection with this name.") from error


def page(uow: UnitOfWork, actor: Principal, *, after: UUID | None, limit: int, name: str | None) -> list[access.Access]:
    """Collections that the actor sees, oldest first, after the id `after`; `name` matches exactly, any case."""
    query = access.visible_collections(actor).order_by(Collection.id).limit(limit)
    if after is not None:
        query = query.where(Collection.id > after)
    if name is not None:
        query = query.where(func.lower(Collection.name) == name.strip().lower())
    return [
        access.Access(collection, Role(grant) if grant and not actor.sees_all_collections else actor.role)
        for collection, grant in uow.session.execute(query)
    ]


def change(
    uow: UnitOfWork,
    actor: Principal,
    collection_id: UUID,
    *,
    name: str | None,
    description: str | None,
    revision: int | None,
) -> Collection:
    """Rename or describe. `revision` (from the ETag) guards against a lost update: ConflictError when it is old."""
    collection = access.open_collection(uow, actor, collection_id, Action.EDIT_COLLECTION).collection
    if revision is not None and revision != collection.revision:
        raise ConflictError("changed_meanwhile", "Somebody changed this collection meanwhile: load it again.")
    if name is not None:
        collection.name = _checked_name(name)
    if description is not None:
        collection.description = description
    collection.revision += 1
    _flush_unique(uow)
    events.append(uow, actor.actor, "collection.change", "collection", collection.id, request_id=actor.request_id)
    return collection


def remove(uow: UnitOfWork, actor: Principal, collection_id: UUID) -> Job:
    """Delete a collection: invisible with the commit, erased by the returned job."""
    collection = access.open_collection(uow, actor, collection_id, Action.EDIT_COLLECTION).collection
    documents = uow.session.scalars(
        select(Document).where(Document.collection_id == collection_id, Document.deleted_at.is_(None))
    ).all()
    # Lock order everywhere: job rows first, then documents.
    for document in documents:
        if document.latest_version_id is not None:
            for job in rows.live_jobs(uow, document.latest_version_id):
                rows.request_cancel(uow, job)
    for document in documents:
        document.deleted_at = now()
    collection.deleted_at = now()
    events.append(uow, actor.actor, "collection.delete", "collection", collection.id, request_id=actor.request_id)
    return rows.enqueue(
        uow,
        kind=KIND_PURGE_COLLECTION,
        queue=queues.CONTROL,
        subject_id=collection.id,
        collection_id=collection.id,
        created_by=actor.user_id,
    )


def grants(uow: UnitOfWork, actor: Principal, collection_id: UUID) -> Sequence[tuple[CollectionGrant, User]]:
    """Who has which role on the collection."""
    access.open_collection(uow, actor, collection_id, Action.MANAGE_GRANTS)
    found = uow.session.execute(
        select(CollectionGrant, User)
        .join(User, User.id == CollectionGrant.user_id)
        .where(CollectionGrant.collection_id == collection_id)
        .order_by(User.email)
    )
    return [(grant, user) for grant, user in found]


def set_grant(uow: UnitOfWork, actor: Principal, collection_id: UUID, user_id: UUID, role: Role) -> None:
    """Give a user a role on the collection (or change it). An unknown user is NotFoundError."""
    access.open_collection(uow, actor, collection_id, Action.MANAGE_GRANTS)
    if role not in (Role.EDITOR, Role.REVIEWER, Role.VIEWER):
        raise InvalidInputError("grant_role", "A grant is editor, reviewer or viewer.")
    if uow.session.get(User, (uow.tenant_id, user_id)) is None:
        raise NotFoundError
    statement = insert(CollectionGrant).values(
        tenant_id=uow.tenant_id, collection_id=collection_id, user_id=user_id, role=role.value, created_at=now()
    )
    uow.session.execute(
        statement.on_conflict_do_update(
            index_elements=["tenant_id", "collection_id", "user_id"], set_={"role": role.value}
        )
    )
    events.append(
        uow, actor.actor, "grant.set", "collection", collection_id, request_id=actor.request_id, user=user_id, role=role
    )


def remove_grant(uow: UnitOfWork, actor: Principal, collection_id: UUID, user_id: UUID) -> None:
    """Take a user's role away; effective with the next request."""
    access.open_collection(uow, actor, collection_id, Action.MANAGE_GRANTS)
    gone = uow.session.execute(
        delete(CollectionGrant)
        .where(CollectionGrant.collection_id == collection_id, CollectionGrant.user_id == user_id)
        .returning(CollectionGrant.user_id)
    ).first()
    if gone is None:
        raise NotFoundError
    events.append(
        uow, actor.actor, "grant.remove", "collection", collection_id, request_id=actor.request_id, user=user_id
    )


def status(uow: UnitOfWork, actor: Principal, collection_id: UUID) -> CollectionStatus:
    """Counts per state, pages and chunks of the collection's documents."""
    access.open_collection(uow, actor, collection_id, Action.READ)
    counted = uow.session.execute(
        select(
            DocumentVersion.state,
            func.count(),
            func.coalesce(func.sum(DocumentVersion.pages_total), 0),
            func.coalesce(func.sum(DocumentVersion.pages_indexed), 0),
        )
        .join(Document, Document.latest_version_id == DocumentVersion.id)
        .where(Document.collection_id == collection_id, Document.deleted_at.is_(None))
        .group_by(DocumentVersion.state)
    ).all()
    chunks = uow.session.scalar(
        select(func.count())
        .select_from(Chunk)
        .join(Document, Document.active_version_id == Chunk.version_id)
        .where(Chunk.collection_id == collection_id, Document.deleted_at.is_(None))
    )
    return CollectionStatus(
        documents={state: count for state, count, _, _ in counted},
        pages_total=sum(total for _, _, total, _ in counted),
        pages_indexed=sum(indexed for _, _, _, indexed in counted),
        chunks=chunks or 0,
    )
