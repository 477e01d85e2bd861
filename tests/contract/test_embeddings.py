"""The local embeddings server and the ingestion client for it; EMBEDDINGS_CONTRACT_URL (with _KEY, _MODEL and
_DIMENSIONS) names another server for the part that every server must pass."""

import asyncio
import base64
import json
import math
import os
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from openai import OpenAI

from app.local.embedder import DIMENSIONS, MAX_INPUTS, MODEL_ID, WAITING_LIMIT
from ingestion.embedding import EmbeddingClient, EmbeddingRejected, EmbeddingUnavailable, prefixes_of
from tests.support import model_servers

PASSAGES = [
    "The notice period for termination of the agreement is sixty days.",
    "El preaviso para resolver el contrato es de sesenta días.",
    "El termini de preavís per resoldre el contracte és de seixanta dies.",
    "The cat sleeps on the warm roof every afternoon.",
]


@dataclass(frozen=True, slots=True)
class Server:
    """The server under test."""

    url: str
    key: str
    model: str
    dimensions: int
    local: bool

    def client(self, key: str | None = None) -> EmbeddingClient:
        """The product's client for it."""
        return EmbeddingClient(self.url, self.key if key is None else key, self.model, self.dimensions)

    def post(self, body: Any, lane: str = "interactive") -> httpx.Response:
        """One bare request."""
        headers = {"Authorization": f"Bearer {self.key}", "X-Fullread-Lane": lane}
        return httpx.post(f"{self.url}/v1/embeddings", json=body, headers=headers, timeout=120)


@pytest.fixture(scope="module", params=["local", "external"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Each server in turn."""
    if request.param == "local":
        if why := model_servers.missing("e5"):
            pytest.skip(why)
        with model_servers.running("embedder", tmp_path_factory.mktemp("embedder")) as url:
            yield Server(url, model_servers.KEY, MODEL_ID, DIMENSIONS, local=True)
    else:
        url = os.environ.get("EMBEDDINGS_CONTRACT_URL", "")
        if not url:
            pytest.skip("set EMBEDDINGS_CONTRACT_URL to run this suite against another server")
        yield Server(
            url,
            os.environ.get("EMBEDDINGS_CONTRACT_KEY", ""),
            os.environ["EMBEDDINGS_CONTRACT_MODEL"],
            int(os.environ["EMBEDDINGS_CONTRACT_DIMENSIONS"]),
            local=False,
        )


@pytest.fixture
def local(server: Server) -> Server:
    """Only our own server."""
    if not server.local:
        pytest.skip("only of the local embedder")
    return server


def cosine(first: list[float], second: list[float]) -> float:
    """Of unit vectors."""
    return math.fsum(a * b for a, b in zip(first, second, strict=True))


def test_vectors_are_unit_long_and_in_order(server: Server) -> None:
    with server.client() as client:
        together = client.documents(PASSAGES)
        alone = [client.documents([text])[0] for text in PASSAGES]
    assert [len(vector) for vector in together] == [server.dimensions] * len(PASSAGES)
    for vector, same in zip(together, alone, strict=True):
        assert math.isclose(cosine(vector, vector), 1.0, abs_tol=1e-3)
        assert cosine(vector, same) > 0.99


def test_a_vector_does_not_depend_on_its_neighbours(local: Server) -> None:
    with local.client() as client:
        assert client.documents(PASSAGES)[1] == client.documents([PASSAGES[1]])[0]


def test_a_question_is_nearest_to_its_answer_in_each_language(server: Server) -> None:
    questions = ["How long is the notice period?", "¿Cuánto dura el preaviso?", "Quant dura el preavís?"]
    with server.client() as client:
        passages = client.documents(PASSAGES)
        for question in questions:
            scores = [cosine(client.query(question), passage) for passage in passages]
            assert max(scores[:3]) == max(scores)
            assert scores[3] == min(scores)


def test_the_async_query_is_the_same_as_the_other(server: Server) -> None:
    with server.client() as client:
        assert asyncio.run(client.aquery("notice period")) == pytest.approx(client.query("notice period"), abs=1e-4)


def test_over_long_texts_are_cut_and_it_is_said(local: Server) -> None:
    text = "palabra " * 3000
    answer = local.post({"model": MODEL_ID, "input": [text, "short"]}).json()
    assert answer["usage"]["truncated_inputs"] == 1
    assert answer["usage"]["truncated_tokens"] > 1000
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] <= 512 + 8


def test_a_cut_text_is_read_up_to_the_limit(local: Server) -> None:
    start = "El contrato termina en sesenta días. " * 200
    with local.client() as client:
        cut, other = client.documents([start + "tail one " * 500, start + "another tail " * 900])
    assert cosine(cut, other) > 0.9999


def test_both_encodings_hold_the_same_vector(local: Server) -> None:
    floats = local.post({"input": "words"}).json()["data"][0]["embedding"]
    packed = local.post({"input": "words", "encoding_format": "base64"}).json()["data"][0]["embedding"]
    assert list(struct.unpack(f"<{DIMENSIONS}f", base64.b64decode(packed))) == pytest.approx(floats, abs=1e-6)


def test_the_openai_client_works(server: Server) -> None:
    with OpenAI(base_url=f"{server.url}/v1", api_key=server.key or "none") as client:
        answer = client.embeddings.create(model=server.model, input=["one", "two"])
    assert [len(item.embedding) for item in answer.data] == [server.dimensions] * 2


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({}, 400, "input"),
        ({"input": []}, 400, "input"),
        ({"input": ["ok", " "]}, 400, "input"),
        ({"input": [[1, 2, 3]]}, 400, "input"),
        ({"input": [1, 2, 3]}, 400, "input"),
        ({"input": ["x"] * (MAX_INPUTS + 1)}, 400, "input"),
        ({"input": "x", "dimensions": 128}, 400, "dimensions"),
        ({"input": "x", "encoding_format": "int8"}, 400, "encoding_format"),
        ({"input": "x", "model": "another"}, 404, None),
        ([], 400, None),
    ],
)
def test_wrong_requests_are_refused_with_their_param(local: Server, body: Any, status: int, param: str | None) -> None:
    answer = local.post(body)
    assert answer.status_code == status
    assert answer.json()["error"]["param"] == param


def test_the_key_is_needed_for_all_but_health(local: Server) -> None:
    assert httpx.get(f"{local.url}/health").json() == {"status": "ok"}
    for path in ("/v1/models", "/metrics", "/v1/embeddings", "/nowhere"):
        assert httpx.get(f"{local.url}{path}", headers={"Authorization": "Bearer wrong"}).status_code == 401
    with local.client("wrong") as client, pytest.raises(EmbeddingRejected) as caught:
        client.query("words")
    assert caught.value.status == 401


def test_models_and_metrics(local: Server) -> None:
    headers = {"Authorization": f"Bearer {local.key}"}
    (model,) = httpx.get(f"{local.url}/v1/models", headers=headers).json()["data"]
    assert (model["id"], model["max_model_len"]) == (MODEL_ID, 512)
    before = _metric(local, 'fullread_embeddings_texts_total{lane="batch"}')
    local.post({"input": ["one", "two", "three"]}, lane="batch")
    assert _metric(local, 'fullread_embeddings_texts_total{lane="batch"}') == before + 3
    assert _metric(local, 'vllm:num_requests_running{lane="batch"}') == 0


def _metric(server: Server, name: str) -> float:
    text = httpx.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer {server.key}"}).text
    values = [float(line.split()[-1]) for line in text.splitlines() if line.startswith(name)]
    return values[0] if values else 0.0


def test_only_the_batch_lane_runs_at_nice_19(local: Server) -> None:
    port = int(local.url.rsplit(":", 1)[1])
    (pid,) = {
        one.pid
        for one in psutil.net_connections("tcp")
        if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr[1] == port
    }
    nice = [int(task.read_text().rpartition(")")[2].split()[16]) for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert set(nice) == {own, 19}
    assert nice.count(19) <= len(os.sched_getaffinity(0))


def test_a_question_does_not_wait_for_documents(local: Server) -> None:
    documents = ["The supplier shall deliver the goods within thirty days of the order. " * 20] * 16

    def embed() -> None:
        with local.client() as batch:
            batch.documents(documents)

    with local.client() as client:
        work = threading.Thread(target=embed)
        work.start()
        while _metric(local, 'vllm:num_requests_running{lane="batch"}') == 0:
            time.sleep(0.01)
        started = time.monotonic()
        client.query("How long is the notice period?")
        waited_s = time.monotonic() - started
        still_busy = work.is_alive()
        work.join()
    assert still_busy
    assert waited_s < 1.0


def test_a_full_queue_is_a_503_that_says_when(local: Server) -> None:
    long = ["The supplier shall deliver the goods within thirty days of the order. " * 20] * 16
    answers: list[httpx.Response] = []

    def send(texts: list[str]) -> threading.Thread:
        thread = threading.Thread(target=lambda: answers.append(local.post({"input": texts}, lane="batch")))
        thread.start()
        return thread

    threads = [send(long)]
    while _metric(local, 'vllm:num_requests_running{lane="batch"}') == 0:
        time.sleep(0.01)
    threads += [send(["words"]) for _ in range(WAITING_LIMIT["batch"] + 3)]
    for thread in threads:
        thread.join()
    refused = [answer for answer in answers if answer.status_code == 503]
    assert len(refused) == 3
    assert refused[0].headers["Retry-After"] == "2"
    assert sum(answer.status_code == 200 for answer in answers) == WAITING_LIMIT["batch"] + 1
    assert local.post({"input": "words"}, lane="batch").status_code == 200


def test_a_client_that_leaves_ends_its_work(local: Server) -> None:
    documents = ["The supplier shall deliver the goods within thirty days of the order. " * 20] * 512
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{local.url}/v1/embeddings",
            json={"input": documents},
            headers={"Authorization": f"Bearer {local.key}", "X-Fullread-Lane": "batch"},
            timeout=httpx.Timeout(30, read=0.5),
        )
    started = time.monotonic()
    assert local.post({"input": "words"}, lane="batch").status_code == 200
    assert time.monotonic() - started < 10


def test_prefixes_are_those_of_the_model() -> None:
    assert prefixes_of("intfloat/multilingual-e5-large").query == "query: "
    assert prefixes_of("bge-m3").passage == ""


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(503, headers={"Retry-After": "4"}), EmbeddingUnavailable),
        (httpx.Response(429), EmbeddingUnavailable),
        (httpx.Response(400), EmbeddingRejected),
        (httpx.Response(200, text="nothing"), EmbeddingRejected),
        (httpx.Response(200, json={"data": []}), EmbeddingRejected),
        (httpx.Response(200, json={"data": [{"index": 0, "embedding": [1.0, 2.0]}]}), EmbeddingRejected),
        (httpx.Response(200, json={"data": [{"index": 0, "embedding": [0.0, 0.0, 0.0]}]}), EmbeddingRejected),
        (httpx.Response(200, text='{"data": [{"index": 0, "embedding": [NaN, 1, 1]}]}'), EmbeddingRejected),
    ],
)
def test_bad_answers_are_told_apart(answer: httpx.Response, error: type[Exception]) -> None:
    with EmbeddingClient("http://127.0.0.1:9", "", "m", 3) as client:
        client._client = httpx.Client(transport=httpx.MockTransport(lambda _: answer))
        with pytest.raises(error) as caught:
            client.documents(["words"])
    if answer.status_code == 503:
        assert isinstance(caught.value, EmbeddingUnavailable)
        assert caught.value.retry_after_s == 4


def test_answers_are_put_in_order_and_made_unit_long() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        texts = json.loads(request.content)["input"]
        data = [{"index": index, "embedding": [0.0, float(len(text)), 0.0]} for index, text in enumerate(texts)]
        return httpx.Response(200, json={"data": data[::-1]})

    with EmbeddingClient("http://127.0.0.1:9", "", "m", 3) as client:
        client._client = httpx.Client(transport=httpx.MockTransport(answer))
        assert client.documents(["a", "bbb"]) == [[0.0, 1.0, 0.0]] * 2


def test_a_server_that_refuses_long_texts_is_asked_to_cut_them() -> None:
    bodies: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        if "truncate_prompt_tokens" not in bodies[-1]:
            return httpx.Response(400, json={"error": {"param": "input_tokens", "code": 400}})
        return httpx.Response(200, json={"data": [{"index": 0, "embedding": [1.0, 0.0, 0.0]}]})

    with EmbeddingClient("http://127.0.0.1:9", "", "m", 3) as client:
        client._client = httpx.Client(transport=httpx.MockTransport(answer))
        assert client.query("long") == [1.0, 0.0, 0.0]
    assert [body.get("truncate_prompt_tokens") for body in bodies] == [None, -1]


def test_nobody_there_is_unavailable() -> None:
    with EmbeddingClient("http://127.0.0.1:9", "", "m", 3, timeout_s=2) as client:
        with pytest.raises(EmbeddingUnavailable):
            client.query("words")
        with pytest.raises(EmbeddingUnavailable):
            asyncio.run(client.aquery("words"))
