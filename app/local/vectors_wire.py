"""Points, vectors, queries and results between Qdrant's REST form (JSON) and the engine's objects; no disk, no HTTP."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import qdrant_edge as edge

from app.local.vectors_filters import (
    WireError,
    bad_json,
    invalid,
    known_fields,
    mapping,
    parse_filter,
    point_id,
    unsupported,
)

DEFAULT_LIMIT = 10
_MAX_LIMIT = 1_000_000  # the engine sets memory aside for as many results as are asked for
_MAX_PREFETCH_DEPTH = 4
_RRF_K = 2  # Qdrant's default
_DISTANCES = {name: getattr(edge.Distance, name) for name in ("Cosine", "Euclid", "Dot", "Manhattan")}
_DATATYPES = {
    "float32": edge.VectorStorageDatatype.Float32,
    "float16": edge.VectorStorageDatatype.Float16,
    "uint8": edge.VectorStorageDatatype.Uint8,
}
_SCHEMAS = {
    name: getattr(edge.PayloadSchemaType, name.capitalize())
    for name in ("keyword", "integer", "float", "bool", "datetime", "uuid")
}
_IGNORED_CREATE = frozenset(
    {"shard_number", "replication_factor", "write_consistency_factor", "on_disk_payload", "payload", "id_tracker",
     "hnsw_config", "wal_config", "optimizers_config", "strict_mode_config", "metadata"}
)  # fmt: skip
_QUERY_FIELDS = frozenset(
    {"shard_key", "prefetch", "query", "using", "filter", "params", "score_threshold", "limit", "offset", "with_vector",
     "with_payload", "lookup_from"}
)  # fmt: skip
_PREFETCH_FIELDS = _QUERY_FIELDS - {"shard_key", "offset", "with_vector", "with_payload"}


@dataclass(frozen=True, slots=True)
class Schema:
    """The vectors of a collection: name ("" for the unnamed one) to dimensions, and the sparse names."""

    dense: Mapping[str, int]
    sparse: frozenset[str]


def check_create(body: dict[str, Any]) -> None:
    """Refuse a create request that the engine cannot honour; settings that only tune speed are accepted."""
    known_fields(
        body, _IGNORED_CREATE | {"vectors", "sparse_vectors", "quantization_config", "sharding_method"}, "body"
    )
    if body.get("quantization_config") is not None:
        raise unsupported("quantization")
    if body.get("sharding_method") == "custom":
        raise unsupported("custom sharding")
    if not named_vectors(body) and not body.get("sparse_vectors"):
        raise bad_json("at least one vector must be configured")
    for name, params in named_vectors(body).items():
        given = mapping(params, f"vectors.{name}")
        size = given.get("size")
        if not isinstance(size, int) or not 1 <= size <= 65536:
            raise invalid("vectors.size: must be between 1 and 65536")
        if given.get("distance") not in _DISTANCES:
            raise bad_json(f"vectors.distance must be one of {', '.join(_DISTANCES)}")
        if given.get("datatype") not in (None, *_DATATYPES):
            raise bad_json(f"vectors.datatype must be one of {', '.join(_DATATYPES)}")
        if given.get("multivector_config") is not None or given.get("quantization_config") is not None:
            raise unsupported("a multivector or a quantized vector")
    for name, params in mapping(body.get("sparse_vectors") or {}, "sparse_vectors").items():
        if mapping(params or {}, f"sparse_vectors.{name}").get("modifier") not in (None, "none", "idf"):
            raise bad_json("sparse_vectors.modifier must be `none` or `idf`")


def named_vectors(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dense vector parameters by name; the form without names counts as the name ""."""
    vectors = mapping(body.get("vectors") or {}, "vectors")
    return {"": vectors} if "size" in vectors else vectors


def edge_config(body: dict[str, Any]) -> edge.EdgeConfig:
    """Return the engine's configuration for a checked create request."""
    dense = {
        name: edge.EdgeVectorParams(
            size=params["size"],
            distance=_DISTANCES[params["distance"]],
            datatype=_DATATYPES.get(params.get("datatype") or "float32"),
        )
        for name, params in named_vectors(body).items()
    }
    sparse = {
        name: edge.EdgeSparseVectorParams(
            modifier=edge.Modifier.Idf if (params or {}).get("modifier") == "idf" else None
        )
        for name, params in (body.get("sparse_vectors") or {}).items()
    }
    # No graph is ever built: searches are exact, and a vacuum at start only copies.
    optimizers = edge.EdgeOptimizersConfig(indexing_threshold=10**9, deleted_threshold=0.2)
    return edge.EdgeConfig(
        vectors=dense or None, sparse_vectors=sparse or None, optimizers=optimizers, max_search_threads=2
    )


def schema_of(body: Mapping[str, Any]) -> Schema:
    """Return the vectors of a checked create request."""
    return Schema(
        dense={name: int(params["size"]) for name, params in named_vectors(body).items()},
        sparse=frozenset(body.get("sparse_vectors") or {}),
    )


def field_index(body: dict[str, Any]) -> tuple[str, Any]:
    """Return the field name and the engine's index parameters of a payload index request."""
    known_fields(body, frozenset({"field_name", "field_schema"}), "body")
    name, given = body.get("field_name"), body.get("field_schema")
    if not isinstance(name, str) or not name:
        raise bad_json("field_name must be a string")
    options = {"type": given} if isinstance(given, str) else mapping(given, "field_schema")
    kind = options.get("type")
    if kind not in _SCHEMAS:
        raise unsupported(f"a payload index of type `{kind}`")
    if kind == "keyword":
        return name, edge.KeywordIndexParams(is_tenant=bool(options.get("is_tenant", False)))
    return name, _SCHEMAS[kind]


def index_info(info: Any) -> dict[str, Any]:
    """Return the payload indexes in the REST form."""
    names = {schema: name for name, schema in _SCHEMAS.items()}
    found: dict[str, Any] = {}
    for field, index in info.payload_schema.items():
        kind = names.get(index.data_type, "keyword")
        found[field] = {"data_type": kind, "points": index.points}
        if getattr(index.params, "is_tenant", None):
            found[field]["params"] = {"type": kind, "is_tenant": True}
    return found


def points(body: dict[str, Any], schema: Schema) -> list[edge.Point]:
    """Return the points of an upsert request (list or column form), each checked before the first one is written.

    The engine logs an operation before it applies it: a refused one must never reach it.
    """
    known_fields(body, frozenset({"points", "batch", "shard_key", "update_filter", "update_mode"}), "body")
    if body.get("shard_key") is not None or body.get("update_filter") is not None:
        raise unsupported("a shard key or a conditional upsert")
    if body.get("update_mode") not in (None, "upsert"):
        raise unsupported("an update mode other than `upsert`")
    given = body.get("points") if "points" in body else _rows(mapping(body.get("batch"), "batch"), schema)
    if not isinstance(given, list):
        raise bad_json("points must be a list")
    if not given:
        raise WireError(400, "Wrong input: Empty update request")
    return [_point(mapping(item, "a point"), schema) for item in given]


def _rows(batch: dict[str, Any], schema: Schema) -> list[dict[str, Any]]:
    ids, vectors, payloads = batch.get("ids"), batch.get("vectors"), batch.get("payloads")
    if not isinstance(ids, list) or not isinstance(vectors, (list, dict)):
        raise bad_json("batch needs `ids` and `vectors`")
    if isinstance(vectors, dict):
        columns: Any = [
            {name: column[at] for name, column in vectors.items()}
            for at in range(len(ids))
            if all(isinstance(column, list) and len(column) == len(ids) for column in vectors.values())
        ]
    else:
        columns = vectors
    payloads = [None] * len(ids) if payloads is None else payloads
    if not isinstance(payloads, list) or not len(ids) == len(columns) == len(payloads):
        raise invalid("number of ids, vectors and payloads must be equal")
    return [{"id": i, "vector": v, "payload": p} for i, v, p in zip(ids, columns, payloads, strict=True)]


def _point(given: dict[str, Any], schema: Schema) -> edge.Point:
    known_fields(given, frozenset({"id", "vector", "payload"}), "a point")
    payload = given.get("payload")
    if payload is not None:
        mapping(payload, "payload")
    vector = given.get("vector")
    named = vector if isinstance(vector, dict) else {"": vector}
    if vector is None:
        raise bad_json("a point needs `vector`")
    return edge.Point(
        id=point_id(given.get("id")),
        vector={name: _vector(value, name, schema) for name, value in named.items()},
        payload=payload or {},
    )


def _vector(value: Any, name: str, schema: Schema) -> Any:
    if isinstance(value, dict):
        if name not in schema.sparse:
            raise WireError(400, f"Wrong input: Not existing vector name error: {name}")
        return _sparse(value)
    if name not in schema.dense:
        raise WireError(400, f"Wrong input: Not existing vector name error: {name}")
    if not isinstance(value, list):
        raise unsupported("a vector that is not a list of numbers or a sparse vector")
    if len(value) != schema.dense[name]:
        expected = schema.dense[name]
        raise WireError(400, f"Wrong input: Vector dimension error: expected dim: {expected}, got {len(value)}")
    _numbers(value, "vector")
    return value


def _sparse(value: dict[str, Any]) -> edge.SparseVector:
    known_fields(value, frozenset({"indices", "values"}), "a sparse vector")
    indices, values = value.get("indices"), value.get("values")
    if not isinstance(indices, list) or not isinstance(values, list):
        raise bad_json("a sparse vector needs `indices` and `values`")
    if len(indices) != len(values):
        raise invalid("sparse vector: must be the same length as indices")
    try:
        array("I", indices)
    except (TypeError, OverflowError) as error:
        raise bad_json("sparse indices must be unsigned 32-bit integers") from error
    if len(set(indices)) != len(indices):
        raise invalid("sparse vector: indices must be unique")
    _numbers(values, "sparse values")
    return edge.SparseVector(indices=indices, values=values)


def _numbers(value: list[Any], what: str) -> None:
    try:
        array("f", value)
    except (TypeError, OverflowError) as error:
        raise bad_json(f"{what} must hold numbers only") from error


def query_request(body: dict[str, Any], schema: Schema) -> edge.QueryRequest:
    """Return the engine's query of one REST query (nearest with or without prefetches, or fusion)."""
    known_fields(body, _QUERY_FIELDS, "query")
    if body.get("shard_key") is not None:
        raise unsupported("a shard key")
    prefetches = _prefetches(body.get("prefetch"), schema, 1)
    offset = body.get("offset")
    if offset is not None and (not isinstance(offset, int) or offset < 0):
        raise bad_json("offset must be an unsigned integer")
    return edge.QueryRequest(
        **_search_fields(body, schema, bool(prefetches)),
        prefetches=prefetches,
        offset=min(offset or 0, _MAX_LIMIT),
        with_payload=payload_selector(body.get("with_payload", False)),
        with_vector=vector_selector(body.get("with_vector", False)),
    )


def _prefetches(value: Any, schema: Schema, depth: int) -> list[edge.Prefetch]:
    if value is None:
        return []
    if depth > _MAX_PREFETCH_DEPTH:
        raise bad_json(f"prefetches are nested deeper than {_MAX_PREFETCH_DEPTH}")
    found = []
    for item in value if isinstance(value, list) else [value]:
        given = mapping(item, "prefetch")
        known_fields(given, _PREFETCH_FIELDS, "prefetch")
        nested = _prefetches(given.get("prefetch"), schema, depth + 1)
        found.append(edge.Prefetch(**_search_fields(given, schema, bool(nested)), prefetches=nested))
    return found


def _search_fields(given: dict[str, Any], schema: Schema, has_prefetch: bool) -> dict[str, Any]:
    if given.get("lookup_from") is not None:
        raise unsupported("lookup_from")
    threshold = given.get("score_threshold")
    if threshold is not None and not isinstance(threshold, (int, float)):
        raise bad_json("score_threshold must be a number")
    return {
        "limit": limit_of(given),
        "query": _query(given.get("query"), given.get("using") or "", schema, has_prefetch),
        "filter": parse_filter(given.get("filter")),
        "params": _params(given.get("params")),
        "score_threshold": threshold,
    }


def _query(value: Any, using: str, schema: Schema, has_prefetch: bool) -> Any:
    if value is None:
        if has_prefetch:
            raise WireError(400, "Wrong input: a query is needed to merge prefetches")
        return None
    if isinstance(value, dict) and ("fusion" in value or "rrf" in value):
        if not has_prefetch:
            raise WireError(400, "Bad request: cannot apply Fusion without prefetches")
        if value.get("fusion") == "dbsf":
            return edge.Fusion.Dbsf()
        if value.get("fusion") not in (None, "rrf"):
            raise bad_json("fusion must be `rrf` or `dbsf`")
        given = mapping(value.get("rrf") or {}, "rrf")
        known_fields(given, frozenset({"k"}), "rrf")
        k = given.get("k")
        if k is not None and (not isinstance(k, int) or k < 1):
            raise bad_json("rrf.k must be an integer of at least 1")
        return edge.Fusion.Rrf(k or _RRF_K)
    if isinstance(value, dict) and "nearest" in value:
        if value.get("mmr") is not None:
            raise unsupported("mmr")
        value = value["nearest"]
    elif isinstance(value, dict) and "indices" not in value:
        raise unsupported(f"the query `{next(iter(value), '')}`")
    if not isinstance(value, (list, dict)):
        raise unsupported("a query by point ID")
    return edge.Query.Nearest(_vector(value, using, schema), using=using)


def _params(value: Any) -> edge.SearchParams | None:
    if value is None:
        return None
    given = mapping(value, "params")
    known_fields(given, frozenset({"hnsw_ef", "exact", "quantization", "indexed_only", "acorn", "idf"}), "params")
    idf = given.get("idf")
    if idf is None or idf == "global":
        return edge.SearchParams(exact=True)
    scope = mapping(idf, "params.idf")
    known_fields(scope, frozenset({"corpus"}), "params.idf")
    if scope.get("corpus") is None:
        raise bad_json("params.idf needs `corpus`")
    return edge.SearchParams(exact=True, idf=edge.IdfParams(corpus=parse_filter(scope["corpus"])))


def limit_of(given: Mapping[str, Any]) -> int:
    """Return the number of results asked for. Raises WireError(422) below 1."""
    limit = given.get("limit")
    if limit is None:
        return DEFAULT_LIMIT
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise bad_json("limit must be an unsigned integer")
    if limit < 1:
        raise invalid(f"limit: value {limit} invalid, must be 1 or larger")
    return min(limit, _MAX_LIMIT)


def payload_selector(value: Any) -> Any:
    """Return the engine's payload selector of `with_payload`."""
    if isinstance(value, dict) and len(value) == 1:
        ((kind, keys),) = value.items()
        if kind in ("include", "exclude") and isinstance(keys, list) and all(isinstance(key, str) for key in keys):
            return edge.PayloadSelector.Include(keys) if kind == "include" else edge.PayloadSelector.Exclude(keys)
    if isinstance(value, list) and all(isinstance(key, str) for key in value):
        return edge.PayloadSelector.Include(value)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise bad_json("with_payload must be a boolean, a list of keys, `include` or `exclude`")


def vector_selector(value: Any) -> bool | list[str]:
    """Return the engine's vector selector of `with_vector`."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return value
    if value is None or isinstance(value, bool):
        return bool(value)
    raise bad_json("with_vector must be a boolean or a list of vector names")


def id_json(value: Any) -> int | str:
    """Return a point id in the REST form."""
    return str(value) if isinstance(value, UUID) else int(value)


def record_json(record: Any, with_vector: bool) -> dict[str, Any]:
    """Return a stored point in the REST form."""
    found: dict[str, Any] = {"id": id_json(record.id), "payload": record.payload}
    if with_vector:
        found["vector"] = _vector_json(record.vector)
    return found


def scored_json(scored: Any, with_vector: bool) -> dict[str, Any]:
    """Return a found point in the REST form."""
    return {**record_json(scored, with_vector), "version": scored.version, "score": scored.score}


def _vector_json(value: Any) -> Any:
    if isinstance(value, dict):
        named = {name: _vector_json(vector) for name, vector in value.items()}
        return named[""] if set(named) == {""} else named
    if isinstance(value, edge.SparseVector):
        return {"indices": list(value.indices), "values": list(value.values)}
    return value
