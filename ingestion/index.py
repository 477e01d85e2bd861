"""The vector index: the only place that speaks to Qdrant. It holds vectors and ids, and can be rebuilt from the rows.

Every read and delete is bound to one tenant; callers give typed ids, never filters.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import UUID, uuid5

import httpx

from ingestion.sparse import SparseVector

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models
    from qdrant_client.common import client_exceptions
    from qdrant_client.http import exceptions
else:

    class _Lazy:
        """A module that is imported with its first use: qdrant_client costs over a second of CPU, in every process."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            _load()
            return getattr(importlib.import_module(self._name), attribute)

    models = _Lazy("qdrant_client.models")
    exceptions = _Lazy("qdrant_client.http.exceptions")
    client_exceptions = _Lazy("qdrant_client.common.client_exceptions")

DENSE = "dense"
SPARSE = "sparse"
# One id for the pair of tenant and collection: a search then has one condition to check for each point instead of two,
# which is five times faster without a graph, and a collection id beside the wrong tenant matches nothing.
_SCOPE = "tenant_collection_id"
_INDEXED_KEYS = (_SCOPE, "document_id", "version_id")
_REQUEST_BYTES = 8 * 1024 * 1024
_BYTES_PER_NUMBER = 22  # a double in JSON at full precision
_IDS_PER_FILTER = 1000
_SCROLL_POINTS = 1000
_UNAVAILABLE_STATUSES = frozenset({408, 425, 429})

_Result = TypeVar("_Result")


_loading = threading.RLock()


def _load() -> Any:
    """The whole client library, imported by one thread at a time: two that begin at different modules deadlock."""
    with _loading:
        return importlib.import_module("qdrant_client")


class IndexUnavailable(Exception):  # noqa: N818  (the name says what callers decide on)
    """The index does not answer now (refused, timed out, overloaded, 5xx); the same call may work later."""

    retryable = True


class IndexRejected(Exception):  # noqa: N818
    """The index refused the call (wrong input, wrong key, missing collection); repeating it does not help.

    `status` is the HTTP status, None when the input was refused before it was sent.
    """

    retryable = False

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class IndexPoint:
    """One chunk: its id (UUID), its vectors, and the ids that searches and deletes are bound to.

    `sparse` may be empty (a chunk of nothing but stop words): the point then has a dense vector only.
    """

    id: str
    dense: Sequence[float]
    sparse: SparseVector
    tenant_id: str
    collection_id: str
    document_id: str
    version_id: str


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One question to one collection of one tenant. A leg that is None or empty is not run.

    `document_ids` narrows the search; an empty sequence finds nothing, None means the whole collection.
    """

    tenant_id: str
    collection_id: str
    dense: Sequence[float] | None
    sparse: SparseVector | None
    limit: int
    document_ids: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A found chunk. Dense scores are cosines, sparse scores are BM25 sums: the two are not comparable."""

    id: str
    score: float
    document_id: str
    version_id: str


@dataclass(frozen=True, slots=True)
class Legs:
    """Hits of both legs, best first, equal scores ordered by id."""

    dense: list[Hit]
    sparse: list[Hit]


class VectorIndex:
    """One Qdrant collection, which holds the vectors of one embedding model for all tenants.

    Safe to share between threads, and after a fork. Every method but `ready` raises IndexUnavailable or IndexRejected.
    """

    def __init__(self, url: str, api_key: str, name: str, dimensions: int, *, timeout_s: int = 30) -> None:
        self.name = name
        self.dimensions = dimensions
        self._url = url.rstrip("/")
        self._api_key = api_key
        self._connect: Callable[[], QdrantClient] = lambda: _connect(url, api_key, timeout_s)
        self._is_server = True
        self._client: QdrantClient | None = None
        self._client_pid = 0
        self._lock = threading.Lock()

    @classmethod
    def in_memory(cls, name: str = "chunks", dimensions: int = 384) -> Self:
        """Return an index inside qdrant-client's own in-memory engine, for contract tests (not thread-safe)."""
        index = cls("", "", name, dimensions)
        client: QdrantClient = _load().QdrantClient(":memory:")
        index._connect = lambda: client
        index._is_server = False
        return index

    def ensure(self) -> None:
        """Create the collection and its payload indexes where they are missing; safe to repeat and to race.

        Raises IndexRejected when the collection exists with another dimension.
        """
        if not self._call(lambda client: client.collection_exists(self.name)):
            self._create()
        self._check_dimensions()
        if not self._is_server:
            return
        present = self._call(lambda client: client.get_collection(self.name)).payload_schema
        if "tenant_id" not in present:
            tenant = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
            self._call(lambda client: client.create_payload_index(self.name, "tenant_id", tenant, wait=True))
        for key in _INDEXED_KEYS:
            if key not in present:
                self._index_keyword(key)

    def upsert(self, points: Sequence[IndexPoint]) -> None:
        """Write points (insert or replace by id), durable when this returns; several requests, not one transaction."""
        per_request = max(1, _REQUEST_BYTES // (_BYTES_PER_NUMBER * (self.dimensions + 600)))
        for batch in _batches(points, per_request):
            self._write([self._struct(point) for point in batch])

    def search(self, request: SearchRequest) -> Legs:
        """Run both legs in one round trip. IDF is that of the tenant's collection, so no other tenant moves a score."""
        if request.limit < 1:
            raise IndexRejected(f"limit must be at least 1, not {request.limit}")
        if request.document_ids is not None and not request.document_ids:
            return Legs([], [])
        corpus = _filter(tenant_id=request.tenant_id, collection_id=request.collection_id)
        where = _filter(
            tenant_id=request.tenant_id, collection_id=request.collection_id, document_ids=request.document_ids
        )
        queries: dict[str, models.QueryRequest] = {}
        payload = ["document_id", "version_id"]
        if request.dense is not None:
            self._check_length(request.dense)
            queries[DENSE] = models.QueryRequest(
                query=list(request.dense), using=DENSE, filter=where, limit=request.limit, with_payload=payload
            )
        if request.sparse:
            queries[SPARSE] = models.QueryRequest(
                query=_sparse(request.sparse),
                using=SPARSE,
                params=models.SearchParams(idf=models.IdfCorpusParams(corpus=corpus)),
                filter=where,
                limit=request.limit,
                with_payload=payload,
            )
        if not queries:
            return Legs([], [])
        answers = self._call(lambda client: client.query_batch_points(self.name, list(queries.values())))
        found = {leg: _hits(answer.points) for leg, answer in zip(queries, answers, strict=True)}
        return Legs(dense=found.get(DENSE, []), sparse=found.get(SPARSE, []))

    def delete_versions(self, tenant_id: str, version_ids: Sequence[str]) -> None:
        """Delete every point of these versions; ids that are not there are no error."""
        for some in _batches(version_ids, _IDS_PER_FILTER):
            self._delete(_filter(tenant_id=tenant_id, version_ids=some))

    def delete_documents(self, tenant_id: str, document_ids: Sequence[str]) -> None:
        """Delete every point of these documents, whatever the version."""
        for some in _batches(document_ids, _IDS_PER_FILTER):
            self._delete(_filter(tenant_id=tenant_id, document_ids=some))

    def delete_collection(self, tenant_id: str, collection_id: str) -> None:
        """Delete every point of the tenant's collection (not Qdrant's collection, which all tenants share)."""
        self._delete(_filter(tenant_id=tenant_id, collection_id=collection_id))

    def count(
        self,
        tenant_id: str,
        collection_id: str | None = None,
        document_id: str | None = None,
        version_id: str | None = None,
    ) -> int:
        """Return the exact number of points that match all given ids."""
        where = _filter(
            tenant_id=tenant_id,
            collection_id=collection_id,
            document_ids=None if document_id is None else [document_id],
            version_ids=None if version_id is None else [version_id],
        )
        return self._call(lambda client: client.count(self.name, where, exact=True)).count

    def ids(self, tenant_id: str, version_id: str) -> set[str]:
        """Return the point ids of a version."""
        where = _filter(tenant_id=tenant_id, version_ids=[version_id])
        found: set[str] = set()
        offset: Any = None
        while True:
            records, offset = self._scroll(where, offset)
            found.update(str(record.id) for record in records)
            if offset is None:
                return found

    def ready(self) -> bool:
        """Say whether the index answers and the collection exists. A plain request: it does not load the client."""
        if not self._is_server:
            return self._call(lambda client: client.collection_exists(self.name))
        try:
            headers = {"api-key": self._api_key} if self._api_key else {}
            answer = httpx.get(f"{self._url}/collections/{self.name}/exists", headers=headers, timeout=2)
            return bool(answer.json()["result"]["exists"])
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return False

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        with self._lock:
            client, self._client = self._client, None
            if client is not None and self._is_server:
                client.close()

    def _create(self) -> None:
        try:
            self._call(
                lambda client: client.create_collection(
                    self.name,
                    {DENSE: models.VectorParams(size=self.dimensions, distance=models.Distance.COSINE)},
                    {SPARSE: models.SparseVectorParams(modifier=models.Modifier.IDF)},
                    # every search is bound to a tenant: graphs per tenant, none over all of them
                    hnsw_config=models.HnswConfigDiff(m=0, payload_m=16),
                )
            )
        except IndexRejected:
            if not self._call(lambda client: client.collection_exists(self.name)):
                raise  # otherwise another process was first

    def _check_dimensions(self) -> None:
        vectors = self._call(lambda client: client.get_collection(self.name)).config.params.vectors
        dense = vectors.get(DENSE) if isinstance(vectors, Mapping) else None
        if dense is None or dense.size != self.dimensions:
            size = None if dense is None else dense.size
            raise IndexRejected(
                f"collection {self.name} holds vectors of {size} dimensions, the model gives {self.dimensions}"
            )

    def _index_keyword(self, key: str) -> None:
        self._call(
            lambda client: client.create_payload_index(self.name, key, models.PayloadSchemaType.KEYWORD, wait=True)
        )

    def _struct(self, point: IndexPoint) -> models.PointStruct:
        self._check_length(point.dense)
        vector: dict[str, Any] = {DENSE: list(point.dense)}
        if point.sparse:
            vector[SPARSE] = _sparse(point.sparse)
        return models.PointStruct(
            id=_uuid(point.id),
            vector=vector,
            payload={
                "tenant_id": _uuid(point.tenant_id),
                _SCOPE: _scope_id(point.tenant_id, point.collection_id),
                "collection_id": _uuid(point.collection_id),
                "document_id": _uuid(point.document_id),
                "version_id": _uuid(point.version_id),
            },
        )

    def _check_length(self, dense: Sequence[float]) -> None:
        if len(dense) != self.dimensions:
            raise IndexRejected(f"a vector has {len(dense)} dimensions instead of {self.dimensions}")

    def _write(self, structs: list[models.PointStruct]) -> None:
        self._call(lambda client: client.upsert(self.name, structs, wait=True))

    def _scroll(self, where: models.Filter, offset: Any) -> tuple[list[models.Record], Any]:
        return self._call(
            lambda client: client.scroll(self.name, where, limit=_SCROLL_POINTS, offset=offset, with_payload=False)
        )

    def _delete(self, where: models.Filter) -> None:
        self._call(lambda client: client.delete(self.name, models.FilterSelector(filter=where), wait=True))

    def _call(self, action: Callable[[QdrantClient], _Result]) -> _Result:
        for attempt in (1, 2):
            try:
                return action(self._connected())
            except exceptions.ResponseHandlingException as error:
                # A kept connection that the server has closed meanwhile; every call here may be repeated.
                if attempt == 1 and isinstance(error.source, (httpx.RemoteProtocolError, httpx.ReadError)):
                    continue
                raise _transport_error(error) from error
            except client_exceptions.ResourceExhaustedResponse as error:
                raise IndexUnavailable("the vector index is overloaded") from error
            except exceptions.UnexpectedResponse as error:
                raise _status_error(error) from error
            except (
                ValueError,
                exceptions.ApiException,
            ) as error:  # qdrant-client's own checks and its in-memory engine
                raise IndexRejected(f"the vector index refused the call: {str(error)[:300]}") from error
        raise AssertionError("unreachable")

    def _connected(self) -> QdrantClient:
        """Return this process's client: sockets must not be shared across a fork."""
        with self._lock:
            if self._client is None or self._client_pid != os.getpid():
                self._client, self._client_pid = self._connect(), os.getpid()
            return self._client


def _connect(url: str, api_key: str, timeout_s: int) -> QdrantClient:
    client: QdrantClient = _load().QdrantClient(
        url=url,
        # as a header, because `api_key=` warns on every plain-HTTP address, also on the loopback
        headers={"api-key": api_key} if api_key else None,
        timeout=timeout_s,
        check_compatibility=False,
        limits=httpx.Limits(max_connections=64, max_keepalive_connections=16, keepalive_expiry=20),
    )
    return client


def _transport_error(error: exceptions.ResponseHandlingException) -> IndexUnavailable | IndexRejected:
    if isinstance(error.source, httpx.HTTPError):
        return IndexUnavailable(f"the vector index does not answer ({type(error.source).__name__})")
    return IndexRejected(f"the vector index gave an answer that we do not understand ({type(error.source).__name__})")


def _status_error(error: exceptions.UnexpectedResponse) -> IndexUnavailable | IndexRejected:
    status = error.status_code or 0
    try:
        detail = str(error.structured()["status"]["error"])[:300]
    except (ValueError, KeyError, TypeError):
        detail = error.reason_phrase
    if status in _UNAVAILABLE_STATUSES or status >= 500:
        return IndexUnavailable(f"the vector index answered {status}: {detail}")
    return IndexRejected(f"the vector index answered {status}: {detail}", status)


def _filter(
    *,
    tenant_id: str,
    collection_id: str | None = None,
    document_ids: Sequence[str] | None = None,
    version_ids: Sequence[str] | None = None,
) -> models.Filter:
    if collection_id is None:
        must: list[models.Condition] = [_is("tenant_id", _uuid(tenant_id))]
    else:
        must = [_is(_SCOPE, _scope_id(tenant_id, collection_id))]
    for key, values in (("document_id", document_ids), ("version_id", version_ids)):
        if values is not None:
            match = models.MatchAny(any=[_uuid(value) for value in values])
            must.append(models.FieldCondition(key=key, match=match))
    return models.Filter(must=must)


def _is(key: str, value: str) -> models.FieldCondition:
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


def _scope_id(tenant_id: str, collection_id: str) -> str:
    return str(uuid5(UUID(_uuid(tenant_id)), _uuid(collection_id)))


def _uuid(value: str) -> str:
    """Return the canonical spelling: payload matches compare strings."""
    try:
        return str(UUID(value))
    except (ValueError, AttributeError, TypeError) as error:
        raise IndexRejected("an id is not a UUID") from error


def _sparse(vector: SparseVector) -> models.SparseVector:
    return models.SparseVector(indices=list(vector.indices), values=list(vector.values))


def _hits(points: Sequence[models.ScoredPoint]) -> list[Hit]:
    hits = [
        Hit(
            id=str(point.id),
            score=float(point.score),
            document_id=str((point.payload or {}).get("document_id", "")),
            version_id=str((point.payload or {}).get("version_id", "")),
        )
        for point in points
    ]
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))


def _batches(items: Sequence[_Result], size: int) -> Iterator[list[_Result]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
