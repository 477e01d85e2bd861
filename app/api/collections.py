"""Routes of collections, grants and search."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Response

from app.api.dependencies import (
    TEXT_PATTERN,
    CursorQuery,
    IdempotencyKey,
    LimitQuery,
    PrincipalDep,
    ServicesDep,
    UnitDep,
    etag_revision,
)
from app.api.schemas import (
    CollectionChange,
    CollectionCreate,
    CollectionOut,
    CollectionStatusOut,
    GrantOut,
    GrantSet,
    HitOut,
    Items,
    JobRef,
    SearchedOut,
    SearchIn,
    SearchOut,
)
from app.bootstrap import search_tools
from app.documents import access, collections
from app.documents.tables import Collection
from app.identity import idempotency
from app.identity.permissions import Action, Role, require
from app.jobs import hints
from app.retrieval import search

router = APIRouter(tags=["collections"])


def _collection(collection: Collection, role: Role) -> CollectionOut:
    return CollectionOut(
        id=collection.id,
        name=collection.name,
        description=collection.description,
        role=role,
        revision=collection.revision,
        created_at=collection.created_at,
    )


@router.get("/collections")
def list_collections(
    uow: UnitDep,
    actor: PrincipalDep,
    limit: LimitQuery = 100,
    cursor: CursorQuery = None,
    name: Annotated[str | None, Query(max_length=200, pattern=TEXT_PATTERN, description="exact name, any case")] = None,
) -> Items[CollectionOut]:
    """Collections that the caller sees, oldest first."""
    require(actor, Action.READ)
    found = collections.page(uow, actor, after=cursor, limit=limit, name=name)
    last = found[-1].collection.id if len(found) == limit else None
    return Items(items=[_collection(f.collection, f.role) for f in found], next=str(last) if last else None)


@router.post("/collections", status_code=201)
def create_collection(
    body: CollectionCreate, uow: UnitDep, actor: PrincipalDep, idempotency_key: IdempotencyKey = None
) -> CollectionOut:
    """Make a collection."""

    def make() -> dict[str, Any]:
        made = collections.create(uow, actor, name=body.name, description=body.description)
        role = actor.role if actor.sees_all_collections else Role.EDITOR
        return _collection(made, role).model_dump(mode="json")

    request = f"POST collections {body.model_dump_json()}"
    return CollectionOut.model_validate(idempotency.once(uow, actor, idempotency_key, request, make))


@router.get("/collections/{collection_id}")
def get_collection(collection_id: UUID, response: Response, uow: UnitDep, actor: PrincipalDep) -> CollectionOut:
    """One collection; its ETag guards changes."""
    found = access.open_collection(uow, actor, collection_id, Action.READ)
    response.headers["etag"] = f'"{found.collection.revision}"'
    return _collection(found.collection, found.role)


@router.patch("/collections/{collection_id}")
def change_collection(
    collection_id: UUID,
    body: CollectionChange,
    response: Response,
    uow: UnitDep,
    actor: PrincipalDep,
    revision: Annotated[int | None, Depends(etag_revision)],
) -> CollectionOut:
    """Rename or describe; with `If-Match` a change by somebody else meanwhile is a 409."""
    collections.change(uow, actor, collection_id, name=body.name, description=body.description, revision=revision)
    found = access.open_collection(uow, actor, collection_id, Action.READ)
    response.headers["etag"] = f'"{found.collection.revision}"'
    return _collection(found.collection, found.role)


@router.delete("/collections/{collection_id}", status_code=202)
def delete_collection(collection_id: UUID, services: ServicesDep, actor: PrincipalDep) -> JobRef:
    """Delete a collection with everything in it: invisible at once, erased by the job."""
    with services.database.tenant(actor.tenant_id) as uow:
        job = collections.remove(uow, actor, collection_id)
    hints.send(job.queue, job.id)
    return JobRef(job_id=job.id)


@router.get("/collections/{collection_id}/status")
def collection_status(collection_id: UUID, uow: UnitDep, actor: PrincipalDep) -> CollectionStatusOut:
    """Counts of documents per state, pages and chunks."""
    found = collections.status(uow, actor, collection_id)
    return CollectionStatusOut(
        documents=found.documents,
        pages_total=found.pages_total,
        pages_indexed=found.pages_indexed,
        chunks=found.chunks,
    )


@router.get("/collections/{collection_id}/grants")
def list_grants(collection_id: UUID, uow: UnitDep, actor: PrincipalDep) -> Items[GrantOut]:
    """Who has which role on the collection."""
    found = collections.grants(uow, actor, collection_id)
    return Items(items=[GrantOut(user_id=user.id, email=user.email, role=Role(grant.role)) for grant, user in found])


@router.put("/collections/{collection_id}/grants/{user_id}", status_code=204)
def set_grant(collection_id: UUID, user_id: UUID, body: GrantSet, uow: UnitDep, actor: PrincipalDep) -> None:
    """Give a user a role on the collection."""
    collections.set_grant(uow, actor, collection_id, user_id, body.role)


@router.delete("/collections/{collection_id}/grants/{user_id}", status_code=204)
def remove_grant(collection_id: UUID, user_id: UUID, uow: UnitDep, actor: PrincipalDep) -> None:
    """Take a user's role away: effective with the next request."""
    collections.remove_grant(uow, actor, collection_id, user_id)


@router.post("/collections/{collection_id}/search")
def search_collection(collection_id: UUID, body: SearchIn, services: ServicesDep, actor: PrincipalDep) -> SearchOut:
    """Passages of the collection, best first, with the scores of both legs."""
    found = search.search(search_tools(services), actor, collection_id, body.query, limit=body.limit)
    return SearchOut(
        hits=[
            HitOut(
                document=hit.document_name,
                document_id=hit.document_id,
                version_id=hit.version_id,
                chunk_id=hit.chunk_id,
                page=hit.page_from,
                page_to=hit.page_to,
                header=hit.header,
                text=hit.text,
                score=hit.score,
                dense=hit.dense,
                sparse=hit.sparse,
                char_start=hit.char_start,
                char_end=hit.char_end,
            )
            for hit in found.hits
        ],
        searched=SearchedOut(
            dense_hits=found.dense_hits,
            sparse_hits=found.sparse_hits,
            dropped=found.dropped,
            languages=list(found.languages),
        ),
    )
