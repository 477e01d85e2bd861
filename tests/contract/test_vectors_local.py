"""The local vectors server alone: HTTP details, what survives which end, and how a silent index looks to callers."""

import http.server
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import orjson
import pytest

from ingestion.index import IndexPoint, IndexRejected, IndexUnavailable, SearchRequest, VectorIndex
from ingestion.sparse import SparseVector, encode_query
from tests.support.vectors_server import DIMENSIONS, KEY, WORDS, LocalServer, assert_same_scores, make_points, new_id


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    server = LocalServer(tmp_path_factory.mktemp("vectors"))
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[LocalServer]:
    server = LocalServer(tmp_path)
    yield server
    server.stop()


POINTS = "/collections/shape/points"
QUERY = f"{POINTS}/query"
COUNT = f"{POINTS}/count"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("GET", "/collections/absent", None, 404, "Collection `absent` doesn't exist"),
        ("POST", "/collections/absent/points/count", {}, 404, "Collection `absent` doesn't exist"),
        ("PUT", "/collections/shape", {"vectors": {"size": 4, "distance": "Cosine"}}, 409, "already exists"),
        ("PUT", "/collections/..%2Fx", {"vectors": {"size": 4, "distance": "Cosine"}}, 404, "no such route"),
        ("PUT", "/collections/.hidden", {"vectors": {"size": 4, "distance": "Cosine"}}, 422, "collection name"),
        ("PUT", "/collections/n1", {"vectors": {"size": 0, "distance": "Cosine"}}, 422, "vectors.size"),
        ("PUT", "/collections/n1", {"vectors": {"size": 4, "distance": "Warp"}}, 400, "vectors.distance"),
        ("PUT", POINTS, {"points": [{"id": 1, "vector": [1, 2, 3]}]}, 400, "expected dim: 4, got 3"),
        ("PUT", POINTS, {"points": [{"id": "x", "vector": [1, 2, 3, 4]}]}, 400, "not a valid point ID"),
        ("PUT", POINTS, {"points": [{"id": -1, "vector": [1, 2, 3, 4]}]}, 400, "not a valid point ID"),
        ("PUT", POINTS, {"points": [{"id": 1, "vector": [1, 2, 3, "4"]}]}, 400, "numbers"),
        ("PUT", POINTS, {"points": [{"id": 1, "vector": {"no": [1]}}]}, 400, "Not existing vector name"),
        ("PUT", POINTS, {"points": [{"id": 1, "vector": {"s": {"indices": [1, 1], "values": [1, 1]}}}]}, 422, "unique"),
        ("PUT", POINTS, {"points": [{"id": 1, "vector": {"s": {"indices": [1], "values": []}}}]}, 422, "same length"),
        (
            "PUT",
            POINTS,
            {"points": [{"id": 1, "vector": {"s": {"indices": [-1], "values": [1]}}}]},
            400,
            "unsigned 32-bit",
        ),
        ("PUT", POINTS, {"points": []}, 400, "Empty update request"),
        ("PUT", POINTS, {"points": [{"id": 1, "vector": [1, 2, 3, 4], "extra": 1}]}, 400, "unknown field"),
        ("POST", QUERY, {"query": [1, 2]}, 400, "expected dim: 4, got 2"),
        ("POST", QUERY, {"query": [1, 2, 3, 4], "limit": 0}, 422, "1 or larger"),
        ("POST", QUERY, {"query": {"recommend": {}}}, 400, "is not served"),
        ("POST", QUERY, {"query": {"fusion": "rrf"}}, 400, "without prefetches"),
        ("POST", QUERY, {"query": [1, 2, 3, 4], "fliter": {}}, 400, "unknown field `fliter`"),
        ("POST", COUNT, {"filter": {"must": [{"key": "a"}]}}, 400, "match"),
        ("POST", COUNT, {"filter": {"most": []}}, 400, "unknown field `most`"),
        ("POST", COUNT, {"filter": {"must": [{"key": "a[", "match": {"value": 1}}]}}, 400, "JSON path"),
        ("POST", COUNT, {"filter": {"must": [{"key": "a", "match": {"any": ["x", 1]}}]}}, 400, "match.any"),
        ("POST", COUNT, {"filter": {"must": [{"key": "a", "geo_radius": {}}]}}, 400, "geo_radius"),
        ("POST", "/collections/shape/points/delete", {}, 400, "either `points` or `filter`"),
        ("POST", "/collections/shape/points/delete", {"filter": None}, 400, "filter must be an object"),
        ("POST", COUNT, [], 400, "must be an object"),
        ("GET", "/collections/shape/points/5", None, 404, "Point with id 5"),
        ("PATCH", "/collections/shape", {}, 405, "Wrong method"),
        ("GET", "/telemetry", None, 404, "no such route"),
    ],
)
def test_errors_have_the_status_and_shape_of_qdrant(
    shared_server: LocalServer, method: str, path: str, body: object, status: int, words: str
) -> None:
    headers = {"api-key": KEY}
    vectors = {"": {"size": 4, "distance": "Cosine"}}
    httpx.put(
        f"{shared_server.url}/collections/shape",
        headers=headers,
        json={"vectors": vectors, "sparse_vectors": {"s": {}}},
    )
    answer = httpx.request(
        method, shared_server.url + path, headers=headers, content=None if body is None else orjson.dumps(body)
    )
    assert answer.status_code == status, answer.text
    assert words in answer.json()["status"]["error"]


def test_a_filter_nested_too_deep_and_broken_json_are_refused(shared_server: LocalServer) -> None:
    shared_server.index("deep").ensure()
    where: dict[str, object] = {"key": "a", "match": {"value": 1}}
    for _ in range(50):
        where = {"must": [where]}
    url = f"{shared_server.url}/collections/deep/points/count"
    answer = httpx.post(url, headers={"api-key": KEY}, content=orjson.dumps({"filter": where}))
    assert (answer.status_code, "deeper" in answer.text) == (400, True)
    answer = httpx.post(url, headers={"api-key": KEY}, content=b"{")
    assert (answer.status_code, "Format error" in answer.text) == (400, True)


def test_every_data_route_needs_the_key_and_health_does_not(shared_server: LocalServer) -> None:
    for path in ("/", "/readyz", "/livez", "/healthz"):
        assert httpx.get(shared_server.url + path).status_code == 200
    for headers in ({}, {"api-key": "wrong"}, {"api-key": ""}, {"authorization": f"Bearer {KEY}x"}):
        answer = httpx.get(f"{shared_server.url}/collections", headers=headers)
        assert answer.status_code == 401
        assert "result" not in answer.json()
        answer = httpx.delete(f"{shared_server.url}/collections/shape", headers=headers)
        assert answer.status_code == 401
    assert httpx.get(f"{shared_server.url}/collections", headers={"authorization": f"Bearer {KEY}"}).status_code == 200
    with pytest.raises(IndexRejected) as caught:
        VectorIndex(shared_server.url, "wrong", "chunks", DIMENSIONS).ensure()
    assert caught.value.status == 401


def test_a_body_over_the_limit_is_refused(shared_server: LocalServer) -> None:
    head = f"PUT {POINTS} HTTP/1.1\r\nhost: local\r\napi-key: {KEY}\r\nconnection: close\r\n"
    with socket.create_connection(("127.0.0.1", shared_server.port), timeout=10) as connection:
        connection.sendall(f"{head}content-length: {64 * 1024 * 1024}\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 413")  # before a byte of the body was sent
    with socket.create_connection(("127.0.0.1", shared_server.port), timeout=10) as connection:
        connection.sendall(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
        megabyte = b"100000\r\n" + b" " * 1024 * 1024 + b"\r\n"
        try:
            for _ in range(40):
                connection.sendall(megabyte)
            answer = connection.recv(1000)
        except (BrokenPipeError, ConnectionResetError):
            answer = b"HTTP/1.1 413"  # closed while we were still sending
        assert answer.startswith(b"HTTP/1.1 413")


def test_the_dimension_of_an_existing_collection_is_checked(shared_server: LocalServer) -> None:
    shared_server.index("sized").ensure()
    with pytest.raises(IndexRejected, match="8 dimensions"):
        shared_server.index("sized", dimensions=16).ensure()
    tenant = new_id()
    other = shared_server.index("sized", dimensions=16)
    point = IndexPoint(new_id(), [1.0] * 16, SparseVector((), ()), tenant, new_id(), new_id(), new_id())
    with pytest.raises(IndexRejected, match="expected dim: 8, got 16") as caught:
        other.upsert([point])
    assert caught.value.status == 400
    with pytest.raises(IndexRejected, match="doesn't exist") as caught:
        shared_server.index("never-made").count(tenant)
    assert caught.value.status == 404
    assert not shared_server.index("never-made").ready()


def run_together(actions: list[Callable[[], None]]) -> None:
    failures: list[BaseException] = []

    def guarded(action: Callable[[], None]) -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001  (reported below)
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_many_processes_may_ensure_write_and_search_at_once(shared_server: LocalServer) -> None:
    tenant, collection = new_id(), new_id()
    run_together([shared_server.index("raced").ensure for _ in range(6)])
    index = shared_server.index("raced")
    query = SearchRequest(tenant, collection, [1.0] * DIMENSIONS, encode_query(" ".join(WORDS), ["en"]), 10)
    documents = [new_id() for _ in range(4)]

    def write(at: int) -> None:
        for part in range(5):
            index.upsert(make_points(100 + at * 10 + part, 30, tenant, collection, [documents[at]]))

    def search() -> None:
        for _ in range(20):
            found = index.search(query)
            assert len(found.dense) <= 10

    run_together([*(lambda at=at: write(at) for at in range(4)), search, search])
    assert [index.count(tenant, document_id=document) for document in documents] == [150] * 4
    index.close()


def test_everything_is_there_after_a_restart(own_server: LocalServer) -> None:
    index = own_server.index()
    index.ensure()
    tenant, collection, document = new_id(), new_id(), new_id()
    index.upsert(make_points(30, 300, tenant, collection, [document]))
    index.delete_versions(tenant, [new_id()])
    request = SearchRequest(tenant, collection, [1.0] * DIMENSIONS, encode_query("notice fee", ["en"]), 50)
    before = index.search(request)
    own_server.stop()
    own_server.start()
    # the same client: its kept connection is gone, and nobody has to know
    assert index.count(tenant) == 300
    after = index.search(request)
    assert_same_scores(after.dense, before.dense)
    assert_same_scores(after.sparse, before.sparse)
    index.ensure()
    schema = own_server.client().get_collection("chunks").payload_schema
    assert set(schema) == {"tenant_id", "tenant_collection_id", "document_id", "version_id"}
    assert schema["tenant_id"].params is not None


def test_nothing_acknowledged_is_lost_by_kill_9(own_server: LocalServer) -> None:
    index = own_server.index()
    index.ensure()
    tenant, collection = new_id(), new_id()
    document, gone = new_id(), new_id()
    index.upsert(make_points(40, 50, tenant, collection, [gone]))
    index.delete_documents(tenant, [gone])
    acknowledged: set[str] = set()
    stopped = threading.Event()

    def write() -> None:
        for batch in range(10_000):
            points = make_points(1000 + batch, 20, tenant, collection, [document])
            try:
                index.upsert(points)
            except IndexUnavailable:
                stopped.set()
                return
            acknowledged.update(point.id for point in points)

    writer = threading.Thread(target=write)
    writer.start()
    while len(acknowledged) < 200:
        time.sleep(0.01)
    own_server.stop(signal.SIGKILL)
    writer.join()
    assert stopped.is_set()
    own_server.start()
    stored = index.ids(tenant, document)
    assert acknowledged <= stored
    assert len(stored) - len(acknowledged) in (0, 20)  # at most the batch that was under way
    assert index.count(tenant, document_id=gone) == 0
    index.upsert(make_points(41, 5, tenant, collection, [gone]))
    assert index.count(tenant, document_id=gone) == 5


def test_refused_writes_leave_no_trace_in_the_log(own_server: LocalServer) -> None:
    index = own_server.index()
    index.ensure()
    tenant = new_id()
    index.upsert(make_points(50, 10, tenant, new_id(), [new_id()]))
    headers = {"api-key": KEY}
    good = {"id": 1, "vector": {"dense": [0.5] * DIMENSIONS}}
    bad = {"id": 2, "vector": {"dense": [0.5]}}
    answer = httpx.put(f"{own_server.url}/collections/chunks/points", headers=headers, json={"points": [good, bad]})
    assert answer.status_code == 400
    own_server.stop(signal.SIGKILL)
    own_server.start()
    assert own_server.client().count("chunks").count == 10


def test_a_dropped_collection_stays_away_and_half_made_ones_are_cleared(own_server: LocalServer) -> None:
    index = own_server.index("first")
    index.ensure()
    tenant = new_id()
    index.upsert(make_points(60, 10, tenant, new_id(), [new_id()]))
    assert own_server.client().delete_collection("first")
    assert not index.ready()
    index.ensure()
    assert index.count(tenant) == 0
    half_made = own_server.folder / "data" / "collections" / "second" / "shard"
    half_made.mkdir(parents=True)
    own_server.stop(signal.SIGKILL)
    own_server.start()
    assert [found.name for found in own_server.client().get_collections().collections] == ["first"]
    assert not half_made.exists()


def test_dead_points_are_cleared_before_ready_when_they_are_over_a_third(own_server: LocalServer) -> None:
    index = own_server.index()
    index.ensure()
    tenant, collection, kept, gone = new_id(), new_id(), new_id(), new_id()
    index.upsert(make_points(70, 1500, tenant, collection, [kept]))
    index.upsert(make_points(71, 1500, tenant, collection, [gone]))
    index.delete_versions(tenant, [gone])
    request = SearchRequest(tenant, collection, [1.0] * DIMENSIONS, encode_query("notice fee", ["en"]), 50)
    before = index.search(request)
    own_server.stop()
    described = own_server.folder / "data" / "collections" / "chunks" / "collection.json"
    assert orjson.loads(described.read_bytes())["dead"] == 1500
    own_server.start()
    assert orjson.loads(described.read_bytes())["dead"] == 0
    assert index.count(tenant) == 1500
    after = index.search(request)
    assert_same_scores(after.dense, before.dense)
    assert_same_scores(after.sparse, before.sparse)
    index.upsert(make_points(72, 10, tenant, collection, [gone]))
    index.delete_versions(tenant, [kept])
    own_server.stop(signal.SIGKILL)
    own_server.start()
    assert index.count(tenant) == 10


def test_a_second_server_on_the_same_folder_is_refused(own_server: LocalServer) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    second = subprocess.run(own_server.command(port), capture_output=True, text=True, timeout=30, check=False)
    assert second.returncode == 1
    assert "another process serves" in second.stderr
    assert own_server.index().ready() is False  # no collection yet, but it answers
    own_server.index().ensure()


def test_an_empty_key_file_is_refused(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("\n")
    command = [sys.executable, "-m", "app.local.vectors", "--data", str(tmp_path / "d"), "--port", "1"]
    ended = subprocess.run([*command, "--api-key-file", str(key_file)], capture_output=True, timeout=30, check=False)
    assert ended.returncode == 2


# What an index that does not answer looks like to callers.


def test_a_refused_connection_is_unavailable() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        index = VectorIndex(f"http://127.0.0.1:{probe.getsockname()[1]}", KEY, "chunks", DIMENSIONS)
        with pytest.raises(IndexUnavailable):
            index.count(new_id())
        assert not index.ready()


@pytest.mark.parametrize(
    ("status", "error"),
    [(503, IndexUnavailable), (500, IndexUnavailable), (429, IndexUnavailable), (403, IndexRejected)],
)
def test_statuses_decide_whether_a_retry_helps(status: int, error: type[Exception]) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.send_header("Retry-After", "1")
            self.end_headers()
            self.wfile.write(b'{"status":{"error":"no"},"time":0}')

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        index = VectorIndex(f"http://127.0.0.1:{server.server_address[1]}", KEY, "chunks", DIMENSIONS)
        with pytest.raises(error):
            index.count(new_id())
        index.close()
        server.shutdown()


def test_a_silent_server_is_unavailable_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        index = VectorIndex(f"http://127.0.0.1:{silent.getsockname()[1]}", KEY, "chunks", DIMENSIONS, timeout_s=1)
        started = time.monotonic()
        with pytest.raises(IndexUnavailable):
            index.count(new_id())
        assert time.monotonic() - started < 5
        index.close()
