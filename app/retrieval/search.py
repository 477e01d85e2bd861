"""Hybrid search of one collection: the index proposes, Postgres decides.

Every hit is read again in SQL under row level security: tenant, grant, active version, not deleted. A hit without a
row is dropped and counted. No transaction is open while the model or the index works.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import ARRAY, BigInteger, Select, Uuid, bindparam, func, select, text

from app.core import observability
from app.core.db import Database, UnitOfWork
from app.core.errors import InvalidInputError, UnavailableError, UpstreamError
from app.documents import access
from app.documents.tables import Chunk, Document, DocumentVersion
from app.identity.permissions import Action, Principal
from app.retrieval.fusion import Fused, Scored, fuse
from ingestion import sparse
from ingestion.embedding import EmbeddingClient, EmbeddingRejected, EmbeddingUnavailable
from ingestion.index import IndexRejected, IndexUnavailable, SearchRequest, VectorIndex

#: Hits asked of each leg; the fused list is cut to the caller's limit afterwards.
LEG_LIMIT = 60
MAX_QUERY_CHARS = 4000


@dataclass(frozen=True, slots=True)
class SearchTools:
    """What a search works with; made by `app.bootstrap`."""

    database: Database
    index: VectorIndex
    embedder: EmbeddingClient
    dense_weight: float
    #: An interactive seat at the embedding server for one query of a tenant.
    seat: Callable[[UUID], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class FoundChunk:
    """A hit that Postgres confirmed."""

    chunk_id: UUID
    document_id: UUID
    version_id: UUID
    document_name: str
    text: str
    header: str
    language: str
    char_start: int
    char_end: int
    page_from: int
    page_to: int
    score: float
    dense: float | None
    sparse: float | None


@dataclass(frozen=True, slots=True)
class Found:
    """Confirmed hits, best first, and what the legs proposed."""

    hits: tuple[FoundChunk, ...]
    dense_hits: int
    sparse_hits: int
    dropped: int
    languages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Frequencies:
    """How many chunks of the collection hold each term id, of how many chunks; and which of some documents hold it."""

    total_chunks: int
    by_term: dict[int, int]
    holders: dict[int, frozenset[str]]


def checked_query(query: str) -> str:
    """The query as it is searched. Raises InvalidInputError when it is empty, too long or holds NUL."""
    query = query.strip()
    if not query:
        raise InvalidInputError("empty_query", "Write a question.")
    if len(query) > MAX_QUERY_CHARS:
        raise InvalidInputError("query_long", f"A question has at most {MAX_QUERY_CHARS} characters.")
    if "\x00" in query or any(0xD800 <= ord(c) <= 0xDFFF for c in query):
        raise InvalidInputError("bad_characters", "The question holds characters that are not text.")
    return query


def search(
    tools: SearchTools,
    actor: Principal,
    collection_id: UUID,
    query: str,
    *,
    limit: int,
    document_ids: Collection[UUID] | None = None,
) -> Found:
    """Find chunks of the collection's active versions, or of some of its documents.

    Raises NotFoundError, UnavailableError, UpstreamError.
    """
    query = checked_query(query)
    with tools.database.tenant(actor.tenant_id) as uow:
        access.open_collection(uow, actor, collection_id, Action.ASK)
        spoken = languages(uow, collection_id)
    if not spoken:
        return Found((), 0, 0, 0, ())
    dense = embed_query(tools, actor.tenant_id, query)
    try:
        legs = tools.index.search(
            SearchRequest(
                tenant_id=str(actor.tenant_id),
                collection_id=str(collection_id),
                dense=dense,
                sparse=sparse.encode_query(query, spoken),
                limit=LEG_LIMIT,
                document_ids=None if document_ids is None else [str(document_id) for document_id in document_ids],
            )
        )
    except IndexUnavailable as error:
        raise UnavailableError("index_unavailable", "The vector index does not answer. Try again shortly.") from error
    except IndexRejected as error:
        raise UpstreamError("index_rejected", "The vector index refused the search.") from error
    fused = fuse(
        [Scored(hit.id, hit.score) for hit in legs.dense],
        [Scored(hit.id, hit.score) for hit in legs.sparse],
        tools.dense_weight,
    )
    with tools.database.tenant(actor.tenant_id) as uow:
        hits, dropped = confirm(uow, actor, collection_id, fused)
    return Found(tuple(hits[:limit]), len(legs.dense), len(legs.sparse), dropped, tuple(spoken))


def embed_query(tools: SearchTools, tenant_id: UUID, query: str) -> list[float]:
    """The query's dense vector, under a seat at the embedding server."""
    with _embedding_errors(), tools.seat(tenant_id):
        return tools.embedder.query(query)


@contextmanager
def _embedding_errors() -> Iterator[None]:
    try:
        yield
    except EmbeddingUnavailable as error:
        raise UnavailableError(
            "embeddings_unavailable", "The embedding server does not answer. Try again shortly."
        ) from error
    except EmbeddingRejected as error:
        raise UpstreamError("embedding_rejected", "The embedding server refused the question.") from error


def confirm(
    uow: UnitOfWork, actor: Principal, collection_id: UUID, fused: Sequence[Fused]
) -> tuple[list[FoundChunk], int]:
    """Read every proposed hit again under the caller's rights. Returns confirmed hits in order, and how many fell."""
    access.open_collection(uow, actor, collection_id, Action.ASK)
    by_id = {UUID(hit.id): hit for hit in fused}
    rows = {
        chunk.id: (chunk, name)
        for chunk, name in uow.session.execute(
            _searchable().where(Chunk.id.in_(by_id), Chunk.collection_id == collection_id)
        )
    }
    dropped = len(by_id) - len(rows)
    if dropped:
        observability.orphan_hits.inc(dropped)
    found = []
    for chunk_id, hit in by_id.items():
        if chunk_id not in rows:
            continue
        chunk, name = rows[chunk_id]
        found.append(_found(chunk, name, hit.score, hit.dense, hit.sparse))
    return found, dropped


def _searchable() -> Select[Chunk, str]:
    """Chunks of active versions with the names of their documents: what Postgres lets anybody see of a hit."""
    return (
        select(Chunk, Document.name)
        .join(Document, Document.id == Chunk.document_id)
        .where(Document.active_version_id == Chunk.version_id, Document.deleted_at.is_(None))
    )


def _found(
    chunk: Chunk, name: str, score: float, dense: float | None = None, sparse_score: float | None = None
) -> FoundChunk:
    return FoundChunk(
        chunk_id=chunk.id,
        document_id=chunk.document_id,
        version_id=chunk.version_id,
        document_name=name,
        text=chunk.text,
        header=chunk.header,
        language=chunk.language,
        char_start=chunk.char_start,
        char_end=chunk.char_end,
        page_from=chunk.page_from,
        page_to=chunk.page_to,
        score=score,
        dense=dense,
        sparse=sparse_score,
    )


def holding(
    uow: UnitOfWork, version_ids: Collection[UUID], terms: Collection[int], *, most: int
) -> tuple[list[FoundChunk], int]:
    """Passages of active versions that share the most terms, in the order of the documents, and how many there are.

    An equal number of each version, so that a long document does not hide a short one. The caller has checked the
    rights on the versions.
    """
    each = max(1, most // max(1, len(version_ids)))
    shared = text(
        "select id from (select c.id, row_number() over (partition by c.version_id order by"
        " cardinality(array(select unnest(c.stems) intersect select unnest(:ids))) desc, c.ordinal) as place"
        " from chunks c where c.version_id = any(:versions)) ranked where place <= :each"
    ).bindparams(bindparam("ids", type_=ARRAY(BigInteger)), bindparam("versions", type_=ARRAY(Uuid)))
    given = {"ids": list(terms), "versions": list(version_ids), "each": each}
    ids = list(uow.session.scalars(shared, given))
    rows = uow.session.execute(_searchable().where(Chunk.id.in_(ids)).order_by(Chunk.version_id, Chunk.ordinal)).all()
    total = uow.session.execute(select(func.count()).select_from(Chunk).where(Chunk.version_id.in_(version_ids)))
    return [_found(chunk, name, 0.0) for chunk, name in rows], total.scalar_one()


def first_passages(uow: UnitOfWork, version_ids: Collection[UUID]) -> list[FoundChunk]:
    """The passage that each active version opens with. The caller has checked the rights on the versions."""
    rows = uow.session.execute(
        _searchable().where(Chunk.version_id.in_(version_ids), Chunk.ordinal == 0).order_by(Chunk.version_id)
    ).all()
    return [_found(chunk, name, 0.0) for chunk, name in rows]


def languages(uow: UnitOfWork, collection_id: UUID) -> list[str]:
    """Languages of the chunks that can be found: the question is stemmed in each of them."""
    return sorted(
        language
        for (language,) in uow.session.execute(
            select(DocumentVersion.language)
            .join(Document, Document.active_version_id == DocumentVersion.id)
            .where(Document.collection_id == collection_id, Document.deleted_at.is_(None))
            .distinct()
        )
        if language is not None
    )


def frequencies(
    uow: UnitOfWork, collection_id: UUID, terms: Sequence[int], documents: Collection[UUID] = ()
) -> Frequencies:
    """Exact document frequencies of term ids over the searchable chunks, and which of `documents` hold each term."""
    active = (
        "from chunks c join documents d on d.tenant_id = c.tenant_id and d.id = c.document_id"
        " and d.active_version_id = c.version_id and d.deleted_at is null where c.collection_id = :collection"
    )
    given = {"collection": collection_id, "ids": list(set(terms))}
    ids = bindparam("ids", type_=ARRAY(BigInteger))
    total = uow.session.execute(text(f"select count(*) {active}"), {"collection": collection_id}).scalar_one()
    counted = uow.session.execute(
        text(
            f"select i.id, (select count(*) {active} and c.stems @> array[i.id]) from unnest(:ids) as i(id)"  # noqa: S608
        ).bindparams(ids),
        given,
    ).all()
    held = uow.session.execute(
        text(
            "select i.id, array(select distinct c.document_id::text from chunks c"
            " where c.document_id = any(:documents) and c.stems @> array[i.id]) from unnest(:ids) as i(id)"
        ).bindparams(ids, bindparam("documents", type_=ARRAY(Uuid))),
        {"ids": given["ids"], "documents": list(documents)},
    ).all()
    return Frequencies(
        total_chunks=total,
        by_term={term: count for term, count in counted},  # noqa: C416
        holders={term: frozenset(names) for term, names in held},
    )


def cosines(tools: SearchTools, tenant_id: UUID, query: str, texts: Sequence[str]) -> list[float]:
    """Cosines of texts to a query, both embedded now; in order. Raises UnavailableError, UpstreamError."""
    if not texts:
        return []
    wanted = embed_query(tools, tenant_id, query)
    with _embedding_errors(), tools.seat(tenant_id):
        vectors = tools.embedder.documents(texts, lane="interactive")
    # Both are unit vectors: the dot product is the cosine.
    return [sum(a * b for a, b in zip(wanted, vector, strict=True)) for vector in vectors]
