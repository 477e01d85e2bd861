"""The local vectors server as a process under test, and points and scores for the suites that use it."""

import random
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import httpx
import pytest
from qdrant_client import QdrantClient

from ingestion.index import Hit, IndexPoint, VectorIndex
from ingestion.sparse import encode_document

DIMENSIONS = 8
KEY = "a-key-for-tests"
_WORDS = """
notice termination fee liability cap supplier customer payment invoice delivery warranty breach interest renewal
audit insurance indemnity confidential arbitration jurisdiction
"""
WORDS = tuple(_WORDS.split())


class LocalServer:
    """The local vectors server as a real process on a free port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key_file = folder / "key"
        self.key_file.parent.mkdir(parents=True, exist_ok=True)
        self.key_file.write_text(KEY + "\n")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_file = folder / "log"
        self.start()

    def command(self, port: int) -> list[str]:
        return [
            *(sys.executable, "-m", "app.local.vectors", "--data", str(self.folder / "data")),
            *("--port", str(port), "--api-key-file", str(self.key_file)),
        ]

    def start(self) -> None:
        with self.log_file.open("a") as log:
            self.process = subprocess.Popen(self.command(self.port), stderr=log)
        deadline = time.monotonic() + 30
        while True:
            assert self.process.poll() is None, self.log_file.read_text()
            try:
                if httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200:
                    return
            except httpx.HTTPError:
                assert time.monotonic() < deadline, "not ready in 30 s"
                time.sleep(0.05)

    def stop(self, with_signal: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        self.process.wait(timeout=20)

    def index(self, name: str = "chunks", dimensions: int = DIMENSIONS, timeout_s: int = 20) -> VectorIndex:
        return VectorIndex(self.url, KEY, name, dimensions, timeout_s=timeout_s)

    def client(self) -> QdrantClient:
        return QdrantClient(url=self.url, headers={"api-key": KEY}, check_compatibility=False)


def new_id() -> str:
    return str(uuid.uuid4())


def text_of(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(5, 40)))


def make_points(
    seed: int, count: int, tenant: str, collection: str, documents: list[str], version: str | None = None
) -> list[IndexPoint]:
    draw = random.Random(seed)
    return [
        IndexPoint(
            id=str(uuid.UUID(int=draw.getrandbits(128), version=4)),
            dense=[draw.gauss(0, 1) for _ in range(DIMENSIONS)],
            sparse=encode_document(text_of(draw), "en"),
            tenant_id=tenant,
            collection_id=collection,
            document_id=documents[number % len(documents)],
            version_id=version or documents[number % len(documents)],
        )
        for number in range(count)
    ]


def assert_same_scores(found: list[Hit], expected: list[Hit]) -> None:
    assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected], rel=1e-5, abs=1e-6)
    # Points of equal score may change places, also across the limit: compare those clearly above the last one.
    edge = expected[-1].score + 1e-5 if expected else 0
    theirs = {hit.id: hit for hit in expected if hit.score > edge}
    ours = {hit.id: hit for hit in found if hit.score > edge}
    assert set(ours) == set(theirs)
    assert all(
        (hit.document_id, hit.version_id) == (theirs[name].document_id, theirs[name].version_id)
        for name, hit in ours.items()
    )
