"""The local vectors server: the subset of Qdrant's REST API that the product uses, over Qdrant's own engine.

One process, one core, up to about 200,000 chunks: `python -m app.local.vectors --data DIR --port N --api-key-file F`.
"""

import argparse
import hmac
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson
import qdrant_edge as edge
import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from app.local import vectors_wire as wire
from app.local.vectors_filters import (
    WireError,
    bad_json,
    known_fields,
    mapping,
    parse_filter,
    point_id,
    point_ids,
    unsupported,
)
from app.local.vectors_store import Collection, Store, StoreInUseError

log = structlog.get_logger(__name__)

MAX_BODY_BYTES = 32 * 1024 * 1024  # Qdrant's own default
_API_VERSION = "1.20.0"  # the server release whose REST shapes these are
_OPEN_PATHS = frozenset({"/", "/healthz", "/livez", "/readyz"})
_HNSW = {"m": 16, "ef_construct": 100, "full_scan_threshold": 10000, "max_indexing_threads": 0}
_OPTIMIZER = {
    "deleted_threshold": 0.2,
    "vacuum_min_vector_number": 1000,
    "default_segment_number": 1,
    "flush_interval_sec": 2,
}


@dataclass(frozen=True, slots=True)
class Call:
    """One request: the store, the path parameters and the JSON body ({} without one)."""

    store: Store
    path: Mapping[str, str]
    body: dict[str, Any]

    @property
    def collection(self) -> Collection:
        """The collection of the path; WireError(404) without one."""
        return self.store.get(self.path["name"])


def list_collections(call: Call) -> Any:
    """GET /collections."""
    return {"collections": [{"name": name} for name in call.store.names()]}


def collection_exists(call: Call) -> Any:
    """GET /collections/{name}/exists."""
    return {"exists": call.store.has(call.path["name"])}


def create_collection(call: Call) -> Any:
    """PUT /collections/{name}."""
    wire.check_create(call.body)
    call.store.create(call.path["name"], call.body)
    return True


def drop_collection(call: Call) -> Any:
    """DELETE /collections/{name}."""
    return call.store.drop(call.path["name"])


def collection_info(call: Call) -> Any:
    """GET /collections/{name}."""
    collection = call.collection
    info = collection.read(lambda shard: shard.info())
    config = collection.config
    given = {key: value for key, value in (config.get("hnsw_config") or {}).items() if value is not None}
    params = {
        "vectors": config.get("vectors") or {},
        "shard_number": 1,
        "replication_factor": 1,
        "write_consistency_factor": 1,
        "on_disk_payload": True,
    }
    if config.get("sparse_vectors"):
        params["sparse_vectors"] = {name: value or {} for name, value in config["sparse_vectors"].items()}
    return {
        "status": "green",
        "optimizer_status": "ok",
        "points_count": info.points_count,
        "indexed_vectors_count": 0,
        "segments_count": info.segments_count,
        "config": {"params": params, "hnsw_config": _HNSW | given, "optimizer_config": _OPTIMIZER},
        "payload_schema": wire.index_info(info),
    }


def create_field_index(call: Call) -> Any:
    """PUT /collections/{name}/index."""
    name, params = wire.field_index(call.body)
    return _updated(call.collection, edge.UpdateOperation.create_field_index(name, params), 1)


def drop_field_index(call: Call) -> Any:
    """DELETE /collections/{name}/index/{field}."""
    return _updated(call.collection, edge.UpdateOperation.delete_field_index(call.path["field"]), 1)


def upsert_points(call: Call) -> Any:
    """PUT /collections/{name}/points."""
    collection = call.collection
    points = wire.points(call.body, collection.schema)
    return _updated(collection, edge.UpdateOperation.upsert_points(points), len(points))


def delete_points(call: Call) -> Any:
    """POST /collections/{name}/points/delete, by ids or by filter."""
    known_fields(call.body, frozenset({"points", "filter", "shard_key"}), "body")
    if ("points" in call.body) == ("filter" in call.body):
        raise bad_json("a delete needs either `points` or `filter`")
    if "points" in call.body:
        ids = point_ids(call.body["points"], "points")
        return _updated(call.collection, edge.UpdateOperation.delete_points(ids), len(ids))
    mapping(call.body["filter"], "filter")
    where = parse_filter(call.body["filter"]) or edge.Filter()
    return _updated(call.collection, edge.UpdateOperation.delete_points_by_filter(where), 1)


def get_point(call: Call) -> Any:
    """GET /collections/{name}/points/{id}."""
    text = call.path["id"]
    found = _retrieved(
        call.collection, [point_id(int(text) if text.isascii() and text.isdigit() else text)], True, True
    )
    if not found:
        raise WireError(404, f"Not found: Point with id {text[:40]} does not exists!")
    return found[0]


def retrieve_points(call: Call) -> Any:
    """POST /collections/{name}/points."""
    known_fields(call.body, frozenset({"ids", "with_payload", "with_vector", "shard_key"}), "body")
    ids = point_ids(call.body.get("ids"), "ids")
    payload = wire.payload_selector(call.body.get("with_payload", True))
    return _retrieved(call.collection, ids, payload, wire.vector_selector(call.body.get("with_vector")))


def scroll_points(call: Call) -> Any:
    """POST /collections/{name}/points/scroll."""
    allowed = frozenset({"offset", "limit", "filter", "with_payload", "with_vector", "order_by", "shard_key"})
    known_fields(call.body, allowed, "body")
    if call.body.get("order_by") is not None:
        raise unsupported("order_by")
    offset = call.body.get("offset")
    vectors = wire.vector_selector(call.body.get("with_vector"))
    request = edge.ScrollRequest(
        offset=None if offset is None else point_id(offset),
        limit=wire.limit_of(call.body),
        filter=parse_filter(call.body.get("filter")),
        with_payload=wire.payload_selector(call.body.get("with_payload", True)),
        with_vector=vectors,
    )
    records, following = call.collection.read(lambda shard: shard.scroll(request))
    return {
        "points": [wire.record_json(record, bool(vectors)) for record in records],
        "next_page_offset": None if following is None else wire.id_json(following),
    }


def count_points(call: Call) -> Any:
    """POST /collections/{name}/points/count."""
    known_fields(call.body, frozenset({"filter", "exact", "shard_key"}), "body")
    request = edge.CountRequest(exact=True, filter=parse_filter(call.body.get("filter")))
    return {"count": call.collection.read(lambda shard: shard.count(request))}


def query_points(call: Call) -> Any:
    """POST /collections/{name}/points/query."""
    return _queried(call.collection, [call.body])[0]


def query_batch(call: Call) -> Any:
    """POST /collections/{name}/points/query/batch."""
    known_fields(call.body, frozenset({"searches"}), "body")
    searches = call.body.get("searches")
    if not isinstance(searches, list):
        raise bad_json("searches must be a list")
    return _queried(call.collection, [mapping(search, "a search") for search in searches])


def _queried(collection: Collection, searches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    requests = [wire.query_request(search, collection.schema) for search in searches]
    if not requests:
        return []
    answers = collection.read(lambda shard: shard.query_batch(edge.QueryBatchRequest(requests)))
    return [
        {"points": [wire.scored_json(point, bool(search.get("with_vector"))) for point in answer]}
        for search, answer in zip(searches, answers, strict=True)
    ]


def _retrieved(collection: Collection, ids: list[Any], payload: Any, vectors: bool | list[str]) -> list[dict[str, Any]]:
    records = collection.read(lambda shard: shard.retrieve(ids, payload, vectors))
    return [wire.record_json(record, bool(vectors)) for record in records]


def _updated(collection: Collection, operation: edge.UpdateOperation, points: int) -> dict[str, Any]:
    return {"operation_id": collection.write(operation, points), "status": "completed"}


_ROUTES: list[tuple[str, str, Callable[[Call], Any]]] = [
    ("GET", "/collections", list_collections),
    ("GET", "/collections/{name}/exists", collection_exists),
    ("GET", "/collections/{name}", collection_info),
    ("PUT", "/collections/{name}", create_collection),
    ("DELETE", "/collections/{name}", drop_collection),
    ("PUT", "/collections/{name}/index", create_field_index),
    ("DELETE", "/collections/{name}/index/{field}", drop_field_index),
    ("PUT", "/collections/{name}/points", upsert_points),
    ("POST", "/collections/{name}/points", retrieve_points),
    ("POST", "/collections/{name}/points/delete", delete_points),
    ("POST", "/collections/{name}/points/scroll", scroll_points),
    ("POST", "/collections/{name}/points/count", count_points),
    ("POST", "/collections/{name}/points/query", query_points),
    ("POST", "/collections/{name}/points/query/batch", query_batch),
    ("GET", "/collections/{name}/points/{id}", get_point),
]


def create_app(data: Path, api_key: str) -> Starlette:
    """Return the server over the collections under `data`; it opens them at start-up and flushes them at shutdown.

    Raises StoreInUseError when another process serves the same folder.
    """
    store = Store(data)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await run_in_threadpool(store.open)
        log.info("vectors_ready", collections=len(store.names()))
        try:
            yield
        finally:
            await run_in_threadpool(store.close)

    async def root(_: Request) -> Response:
        return _json({"title": "fullread local vectors (qdrant-edge)", "version": _API_VERSION})

    async def alive(_: Request) -> Response:
        return PlainTextResponse("all shards are ready")

    def endpoint(action: Callable[[Call], Any]) -> Callable[[Request], Any]:
        async def handle(request: Request) -> Response:
            started = time.perf_counter()
            if not _authorised(request, api_key):
                return _error(401, "Must provide an API key or an Authorization bearer token", started)
            try:
                raw = await _body(request)
                return await run_in_threadpool(_answer, action, store, dict(request.path_params), raw, started)
            except WireError as error:
                return _error(error.status, error.message, started)

        return handle

    async def refused(_: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return _error(status, "Not found: no such route here" if status == 404 else "Wrong method", time.perf_counter())

    async def failed(request: Request, error: Exception) -> Response:
        log.error("vectors_request_failed", method=request.method, kind=type(error).__name__, exc_info=error)
        return _error(500, "Service internal error", time.perf_counter())

    open_routes = [Route(path, root if path == "/" else alive) for path in sorted(_OPEN_PATHS)]
    routes = [Route(path, endpoint(action), methods=[method]) for method, path, action in _ROUTES]
    return Starlette(
        routes=[*open_routes, *routes],
        lifespan=lifespan,
        exception_handlers={404: refused, 405: refused, Exception: failed},
    )


def _answer(action: Callable[[Call], Any], store: Store, path: dict[str, str], raw: bytes, started: float) -> Response:
    try:
        body = orjson.loads(raw) if raw else {}
    except orjson.JSONDecodeError as error:
        raise bad_json(str(error)) from error
    result = action(Call(store, path, mapping(body, "the body")))
    return _json({"result": result, "status": "ok", "time": time.perf_counter() - started})


def _authorised(request: Request, api_key: str) -> bool:
    given = request.headers.get("api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
    return hmac.compare_digest(given.encode(), api_key.encode())


async def _body(request: Request) -> bytes:
    declared = request.headers.get("content-length", "0")
    too_large = WireError(413, f"Wrong input: the body is larger than {MAX_BODY_BYTES} bytes")
    if declared.isdigit() and int(declared) > MAX_BODY_BYTES:
        raise too_large
    parts: list[bytes] = []
    size_bytes = 0
    async for part in request.stream():
        size_bytes += len(part)
        if size_bytes > MAX_BODY_BYTES:
            raise too_large
        parts.append(part)
    return b"".join(parts)


def _json(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status_code=status, media_type="application/json")


def _error(status: int, message: str, started: float) -> Response:
    return _json({"status": {"error": message}, "time": time.perf_counter() - started}, status)


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; exit code 1 when the folder or the key cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m app.local.vectors", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of the collections")
    parser.add_argument("--port", type=int, required=True, metavar="N", help="TCP port to listen on")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--api-key-file",
        type=Path,
        required=True,
        metavar="FILE",
        help="file with the key that every request must carry",
    )
    parser.add_argument("--version", action="version", version=f"qdrant-edge-py {version('qdrant-edge-py')}")
    given = parser.parse_args(arguments)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,  # no local variables: they hold vectors
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        api_key = given.api_key_file.read_text(encoding="utf-8").strip()
        if not api_key:
            parser.error(f"{given.api_key_file} is empty")
        app = create_app(given.data, api_key)
    except (OSError, StoreInUseError) as error:
        log.error("vectors_not_started", reason=str(error))  # noqa: TRY400
        return 1
    uvicorn.run(
        app, host=given.host, port=given.port, log_level="warning", access_log=False, server_header=False,
        timeout_keep_alive=75, timeout_graceful_shutdown=3,
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
