"""Search latency: VectorIndex over HTTP to the local vectors server, beside the bare engine in this process.

Both hold the same synthetic chunks and answer the same questions in turn, so that a busy machine slows both alike.
Run: `python -m benchmarks.search [--chunks 50000] [--questions 200]`.
"""

import argparse
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import qdrant_edge as edge

from ingestion.index import IndexPoint, SearchRequest, VectorIndex
from ingestion.sparse import SparseVector

DIMENSIONS = 384
LIMIT = 50
TERMS_PER_CHUNK = 110
TERMS_PER_QUESTION = 6
VOCABULARY = 60_000
TENANT, COLLECTION, SCOPE = (str(uuid.uuid4()) for _ in range(3))


def chunks(count: int, rng: np.random.Generator) -> Iterator[list[IndexPoint]]:
    """Yield batches of 256 chunks: vectors around 200 topics, words by Zipf's law, 50 chunks to a document."""
    topics = rng.standard_normal((200, DIMENSIONS))
    for start in range(0, count, 256):
        size = min(256, count - start)
        dense = topics[rng.integers(0, 200, size)] + rng.standard_normal((size, DIMENSIONS))
        batch = []
        for at in range(size):
            words = np.unique(rng.zipf(1.2, TERMS_PER_CHUNK) % VOCABULARY)
            document = str(uuid.UUID(int=(start + at) // 50 + 1))
            batch.append(
                IndexPoint(
                    id=str(uuid.UUID(int=start + at + 1)),
                    dense=dense[at].astype("float32").tolist(),
                    sparse=SparseVector(tuple(words.tolist()), tuple((0.5 + rng.random(len(words))).tolist())),
                    tenant_id=TENANT,
                    collection_id=COLLECTION,
                    document_id=document,
                    version_id=document,
                )
            )
        yield batch


def questions(count: int, rng: np.random.Generator) -> list[SearchRequest]:
    """Return questions of six words each, common and rare."""
    found = []
    for _ in range(count):
        words = np.unique(rng.zipf(1.2, TERMS_PER_QUESTION) % VOCABULARY)
        sparse = SparseVector(tuple(words.tolist()), (1.0,) * len(words))
        found.append(SearchRequest(TENANT, COLLECTION, rng.standard_normal(DIMENSIONS).tolist(), sparse, LIMIT))
    return found


@contextmanager
def server(folder: Path) -> Iterator[tuple[str, str, int]]:
    """Run the local vectors server and yield its URL, key and process id."""
    key = secrets.token_hex(16)
    (folder / "key").write_text(key)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "app.local.vectors", "--data", str(folder / "data"), "--port", str(port)]
    process = subprocess.Popen([*command, "--api-key-file", str(folder / "key")], stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                httpx.get(f"{url}/readyz").raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.1)
        yield url, key, process.pid
    finally:
        process.terminate()
        process.wait()


def bare_engine(folder: Path) -> edge.EdgeShard:
    """Return an empty shard of the engine, as the server makes it."""
    folder.mkdir()
    config = edge.EdgeConfig(
        vectors={"dense": edge.EdgeVectorParams(size=DIMENSIONS, distance=edge.Distance.Cosine)},
        sparse_vectors={"sparse": edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)},
        optimizers=edge.EdgeOptimizersConfig(indexing_threshold=10**9),
        max_search_threads=2,
    )
    shard = edge.EdgeShard.create(str(folder), config)
    for key in ("tenant_id", "tenant_collection_id", "document_id", "version_id"):
        shard.update(edge.UpdateOperation.create_field_index(key, edge.PayloadSchemaType.Keyword))
    return shard


def bare_points(batch: list[IndexPoint]) -> list[edge.Point]:
    """Return the engine's objects of a batch."""
    return [
        edge.Point(
            id=uuid.UUID(point.id),
            vector={
                "dense": list(point.dense),
                "sparse": edge.SparseVector(indices=list(point.sparse.indices), values=list(point.sparse.values)),
            },
            payload={
                "tenant_id": point.tenant_id,
                "tenant_collection_id": SCOPE,
                "collection_id": point.collection_id,
                "document_id": point.document_id,
                "version_id": point.version_id,
            },
        )
        for point in batch
    ]


def bare_search(shard: edge.EdgeShard, request: SearchRequest, legs: tuple[str, ...]) -> int:
    """Ask the engine what the server asks it for a search; return the number of hits."""
    where = edge.Filter(must=[edge.FieldCondition(key="tenant_collection_id", match=edge.MatchValue(SCOPE))])
    payload = edge.PayloadSelector.Include(["document_id", "version_id"])
    asked = []
    if "dense" in legs and request.dense is not None:
        query = edge.Query.Nearest(list(request.dense), using="dense")
        asked.append(edge.QueryRequest(limit=request.limit, query=query, filter=where, with_payload=payload))
    if "sparse" in legs and request.sparse is not None:
        vector = edge.SparseVector(indices=list(request.sparse.indices), values=list(request.sparse.values))
        params = edge.SearchParams(exact=True, idf=edge.IdfParams(corpus=where))
        query = edge.Query.Nearest(vector, using="sparse")
        asked.append(
            edge.QueryRequest(limit=request.limit, query=query, filter=where, with_payload=payload, params=params)
        )
    return sum(len(answer) for answer in shard.query_batch(edge.QueryBatchRequest(asked)))


@dataclass
class Series:
    """Milliseconds of each search, and the CPU seconds that all of them took on both sides."""

    milliseconds: list[float] = field(default_factory=list)
    cpu_s: float = 0.0

    def row(self, name: str, base: "Series") -> str:
        """Return a line of the table; the ratio is that of the p50 to the base's."""
        p50, p99 = np.percentile(self.milliseconds, [50, 99])
        cpu_ms = self.cpu_s * 1000 / len(self.milliseconds)
        ratio = p50 / np.percentile(base.milliseconds, 50)
        return f"{name:<44}{p50:>9.1f}{p99:>9.1f}{cpu_ms:>9.1f}{ratio:>9.2f}"


def timed(action: Callable[[], object], into: Series, server_pid: int | None = None) -> None:
    """Run an action and note its time, and the CPU time of this process and of the server."""
    cpu_s = time.process_time() + server_cpu_s(server_pid)
    started = time.perf_counter()
    action()
    into.milliseconds.append((time.perf_counter() - started) * 1000)
    into.cpu_s += time.process_time() + server_cpu_s(server_pid) - cpu_s


def server_cpu_s(pid: int | None) -> float:
    """Return the CPU seconds that a process has used (Linux; in steps of 10 ms)."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process (Linux)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def main() -> None:
    """Fill both, ask both in turn, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunks", type=int, default=50_000)
    parser.add_argument("--questions", type=int, default=200)
    given = parser.parse_args()
    rng = np.random.default_rng(11)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shard = bare_engine(folder / "bare")
        with server(folder) as (url, key, pid):
            index = VectorIndex(url, key, "chunks", DIMENSIONS, timeout_s=60)
            index.ensure()
            http_s = bare_s = 0.0
            for batch in chunks(given.chunks, rng):
                started = time.perf_counter()
                index.upsert(batch)
                http_s += time.perf_counter() - started
                made = bare_points(batch)
                started = time.perf_counter()
                shard.update(edge.UpdateOperation.upsert_points(made))
                bare_s += time.perf_counter() - started
            if index.count(TENANT) != given.chunks:
                raise SystemExit("the server lost points")
            asked = questions(given.questions, rng)
            time.sleep(3)  # the server's flush after the last write
            times = {name: Series() for name in ("http", "both", "dense", "sparse", "four")}
            for request in asked:
                timed(lambda request=request: index.search(request), times["http"], pid)  # type: ignore[misc]
                timed(lambda request=request: bare_search(shard, request, ("dense", "sparse")), times["both"])  # type: ignore[misc]
                timed(lambda request=request: bare_search(shard, request, ("dense",)), times["dense"])  # type: ignore[misc]
                timed(lambda request=request: bare_search(shard, request, ("sparse",)), times["sparse"])  # type: ignore[misc]

            def client(part: list[SearchRequest]) -> None:
                for request in part:
                    started = time.perf_counter()
                    index.search(request)
                    times["four"].milliseconds.append((time.perf_counter() - started) * 1000)

            threads = [threading.Thread(target=client, args=(asked[at::4],)) for at in range(4)]
            started, cpu_s = time.perf_counter(), time.process_time() + server_cpu_s(pid)
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            rate = given.questions / (time.perf_counter() - started)
            times["four"].cpu_s = time.process_time() + server_cpu_s(pid) - cpu_s
            print(
                f"{given.chunks} chunks, {DIMENSIONS} dimensions, {TERMS_PER_CHUNK} words; top {LIMIT} of each leg;"
                f" load average {os.getloadavg()[0]:.1f}"
            )
            print(f"{'':<44}{'p50 ms':>9}{'p99 ms':>9}{'cpu ms':>9}{'ratio':>9}")
            for name, series in (
                ("bare engine, both legs (base)", "both"),
                ("bare engine, dense leg", "dense"),
                ("bare engine, sparse leg", "sparse"),
                ("VectorIndex over HTTP, both legs", "http"),
                ("VectorIndex over HTTP, four clients at once", "four"),
            ):
                print(times[series].row(name, times["both"]))
            print(f"four clients: {rate:.0f} searches/s; server memory {rss_mib(pid):.0f} MiB")
            print(f"upsert, chunks/s: {given.chunks / http_s:.0f} over HTTP, {given.chunks / bare_s:.0f} bare")
            index.close()
        shard.close()


if __name__ == "__main__":
    main()
