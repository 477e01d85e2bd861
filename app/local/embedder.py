"""The local embeddings server: POST /v1/embeddings over the packaged multilingual-e5-small, in a process of its own.

Two lanes: `interactive` for questions; `batch` (header X-Fullread-Lane: batch) for documents, its threads at nice 19.
"""

import argparse
import asyncio
import base64
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp
from tokenizers import Tokenizer

from app.local.cores import usable_cores
from app.local.e5_onnx import MAX_TOKENS
from app.local.front import ApiError, application, busy, read_key, read_object, serve, unless_gone

MODEL_ID = "multilingual-e5-small-int8"
DIMENSIONS = 384
LANE_HEADER = "x-fullread-lane"
LANE_NICE = {"interactive": 0, "batch": 19}
WAITING_LIMIT = {"interactive": 64, "batch": 8}
MAX_INPUTS = 2048
MAX_INPUT_CHARS = 200_000
MAX_BODY_BYTES = 16 * 1024 * 1024

_END = 2  # </s>

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Embedded:
    """Unit vectors in the order of the inputs, with what was read of them."""

    vectors: Vectors
    tokens_read: int
    inputs_truncated: int
    tokens_left_out: int


class Encoder:
    """Texts to unit vectors. Make and use it on one thread: its onnxruntime threads inherit that thread's niceness."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.enable_mem_pattern = False  # shapes differ from run to run
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the engine needs the cores
        self._session = onnxruntime.InferenceSession(
            str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self._tokenizer = tokenizer  # shared: 300 MB, and encoding does not change it

    def embed(self, texts: Sequence[str], stop: threading.Event) -> Embedded:
        """L2-normalised vectors, n x 384. Ends early (with zero rows) once `stop` is set: nobody reads them then."""
        ids = [self._tokenizer.encode(text).ids for text in texts]
        left_out = [max(0, len(one) - MAX_TOKENS) for one in ids]
        ids = [one if len(one) <= MAX_TOKENS else [*one[: MAX_TOKENS - 1], _END] for one in ids]
        vectors = np.zeros((len(texts), DIMENSIONS), np.float32)
        for row, one in enumerate(ids):
            if stop.is_set():
                break
            # One text a run: a batch gains nothing on a CPU, padding costs, and a vector must not depend on neighbours.
            (found,) = self._session.run(["sentence_embedding"], {"input_ids": np.array([one], np.int64)})
            vectors[row] = found[0]
        return Embedded(
            vectors=vectors,
            tokens_read=sum(len(one) for one in ids),
            inputs_truncated=sum(1 for tokens_lost in left_out if tokens_lost),
            tokens_left_out=sum(left_out),
        )


class Lane:
    """One worker thread with an encoder of its own; requests queue in front of it up to a limit."""

    def __init__(self, name: str, folder: Path, tokenizer: Tokenizer, threads: int) -> None:
        self.name = name
        self.pending = 0
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"embed-{name}")
        self._encoder = self._pool.submit(self._make, folder, tokenizer, threads, LANE_NICE[name]).result()

    @staticmethod
    def _make(folder: Path, tokenizer: Tokenizer, threads: int, nice: int) -> Encoder:
        if nice:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
        return Encoder(folder, tokenizer, threads)

    def running(self) -> float:
        """Requests at work: 0 or 1."""
        return min(self.pending, 1)

    def waiting(self) -> float:
        """Requests behind the one at work."""
        return max(self.pending - 1, 0)

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Wait for the lane and encode. Raises ApiError 503 when too many requests wait already."""
        if self.pending > WAITING_LIMIT[self.name]:
            raise busy(f"{self.pending} requests wait in the {self.name} lane: try again.", retry_after_s=2)
        stop = threading.Event()
        self.pending += 1
        try:
            return await asyncio.wrap_future(self._pool.submit(self._encoder.embed, texts, stop))
        finally:
            stop.set()
            self.pending -= 1


class Metrics:
    """Counters and gauges of /metrics; gauges carry vLLM's names so that one dashboard reads both."""

    def __init__(self, lanes: Mapping[str, Lane]) -> None:
        self.registry = CollectorRegistry()
        label = ["lane"]
        self.texts = Counter("fullread_embeddings_texts", "Texts embedded", label, registry=self.registry)
        self.tokens = Counter("fullread_embeddings_tokens", "Tokens read", label, registry=self.registry)
        self.truncated = Counter("fullread_embeddings_truncated", "Texts cut", label, registry=self.registry)
        self.seconds = Counter("fullread_embeddings_seconds", "Waiting and work", label, registry=self.registry)
        running = Gauge("vllm:num_requests_running", "Requests at work", label, registry=self.registry)
        waiting = Gauge("vllm:num_requests_waiting", "Requests waiting", label, registry=self.registry)
        for name, lane in lanes.items():
            running.labels(name).set_function(lane.running)
            waiting.labels(name).set_function(lane.waiting)

    def count(self, lane: str, done: Embedded, seconds: float) -> None:
        """Add one request."""
        self.texts.labels(lane).inc(len(done.vectors))
        self.tokens.labels(lane).inc(done.tokens_read)
        self.truncated.labels(lane).inc(done.inputs_truncated)
        self.seconds.labels(lane).inc(seconds)


def texts_of(body: Mapping[str, Any]) -> list[str]:
    """The texts of a request. Raises ApiError for what this server does not take."""
    given = body.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise ApiError(400, "`input` must be a string or a list of strings (token ids are not taken).", param="input")
    if len(texts) > MAX_INPUTS:
        raise ApiError(400, f"`input` holds {len(texts)} texts; the limit is {MAX_INPUTS}.", param="input")
    if any(not text.strip() for text in texts):
        raise ApiError(400, "`input` holds an empty text.", param="input")
    if any(len(text) > MAX_INPUT_CHARS for text in texts):
        raise ApiError(400, f"A text is over {MAX_INPUT_CHARS} characters.", param="input")
    if body.get("dimensions") not in (None, DIMENSIONS):
        raise ApiError(400, f"This model gives {DIMENSIONS} dimensions and no other number.", param="dimensions")
    if body.get("encoding_format") not in (None, "float", "base64"):
        raise ApiError(400, "`encoding_format` is `float` or `base64`.", param="encoding_format")
    if body.get("model") not in (None, "", MODEL_ID):
        raise ApiError(404, f"There is no such model here; this server has {MODEL_ID}.", kind="NotFoundError")
    return texts


def _reply(body: Mapping[str, Any], done: Embedded) -> dict[str, Any]:
    packed = body.get("encoding_format") == "base64"
    return {
        "object": "list",
        "model": MODEL_ID,
        "data": [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64.b64encode(vector.tobytes()).decode() if packed else vector.tolist(),
            }
            for index, vector in enumerate(done.vectors.astype("<f4"))
        ],
        "usage": {
            "prompt_tokens": done.tokens_read,
            "total_tokens": done.tokens_read,
            "truncated_inputs": done.inputs_truncated,
            "truncated_tokens": done.tokens_left_out,
        },
    }


def build(models_dir: Path, *, key: str = "", threads: int = 0) -> ASGIApp:
    """Load the model and return the app. `threads` of each lane: 0 means every core this process may use."""
    folder = models_dir / "e5"
    if not (folder / "model.onnx").is_file():
        raise SystemExit(f"{folder} holds no embedding model: run `fullread models pull`")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    lanes = {name: Lane(name, folder, tokenizer, threads or usable_cores()) for name in LANE_NICE}
    metrics = Metrics(lanes)

    async def embeddings(request: Request) -> Response:
        body = await read_object(request, MAX_BODY_BYTES)
        texts = texts_of(body)
        lane = "batch" if request.headers.get(LANE_HEADER, "").lower() == "batch" else "interactive"
        started = time.monotonic()
        done = await unless_gone(request, lanes[lane].embed(texts))
        metrics.count(lane, done, time.monotonic() - started)
        return JSONResponse(_reply(body, done))

    async def health(_request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def models(_request: Request) -> Response:
        entry = {"id": MODEL_ID, "object": "model", "created": 0, "owned_by": "fullread", "max_model_len": MAX_TOKENS}
        return JSONResponse({"object": "list", "data": [entry]})

    async def show_metrics(_request: Request) -> Response:
        return Response(generate_latest(metrics.registry), media_type="text/plain; version=0.0.4")

    return application(
        [
            Route("/v1/embeddings", embeddings, methods=["POST"]),
            Route("/v1/models", models),
            Route("/health", health),
            Route("/metrics", show_metrics),
        ],
        key,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `python -m app.local.embedder`."""
    parser = argparse.ArgumentParser(prog="python -m app.local.embedder", description=__doc__)
    parser.add_argument("--models", type=Path, required=True, help="the models folder")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--api-key-file", type=Path)
    parser.add_argument("--threads", type=int, default=0, help="threads of each lane (default: the usable cores)")
    given = parser.parse_args(arguments)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its pool would not be at the lane's niceness
    serve(build(given.models, key=read_key(given.api_key_file), threads=given.threads), given.host, given.port)


if __name__ == "__main__":
    main()
