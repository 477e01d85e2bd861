"""One contract for every generation server: the scripted one, the local engine and, when ENGINE_CONTRACT_URL names
one (with ENGINE_CONTRACT_KEY and ENGINE_CONTRACT_MODEL), a real vLLM."""

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

from app.core.errors import UpstreamError
from app.engine.catalog import PACKAGED_MODEL_ID, EngineProfile
from app.engine.client import ChatDelta, EngineClient, Usage
from tests.support import model_servers
from tests.support.scripted_engine import Script, ScriptedEngine

FREE_WITHIN_S = 2.0
QUESTION = [{"role": "user", "content": "Name three rivers of Europe."}]


@dataclass(frozen=True, slots=True)
class Engine:
    """The server under test."""

    url: str
    key: str
    model: str
    scripted: ScriptedEngine | None = None

    @property
    def client(self) -> EngineClient:
        """The product's client for it."""
        return EngineClient(EngineProfile("engine", self.url, self.model, 8192, 2, "generative", 4096), self.key)

    def http(self) -> httpx.Client:
        """A bare client."""
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=240)

    def post(self, path: str, body: Any) -> httpx.Response:
        """One bare request."""
        with self.http() as http:
            return http.post(path, json=body)

    def gauge(self, name: str) -> float:
        """A value of /metrics, summed over its labels."""
        with self.http() as http:
            lines = http.get("/metrics").text.splitlines()
        values = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name}{{", f"{name} "))]
        assert values, f"{name} is not in /metrics"
        return sum(values)

    def wait_running(self, wanted: int, timeout_s: float) -> float:
        """Seconds until so many requests run."""
        started = time.monotonic()
        while self.gauge("vllm:num_requests_running") != wanted:
            assert time.monotonic() - started < timeout_s, f"not {wanted} running after {timeout_s} s"
            time.sleep(0.05)
        return time.monotonic() - started


@pytest.fixture(scope="module", params=["scripted", "local", "external"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Each server in turn."""
    if request.param == "scripted":
        words = " ".join(f"word{number}" for number in range(400))
        with ScriptedEngine(Script(text=words)) as scripted:
            yield Engine(scripted.url, scripted.api_key, scripted.model, scripted)
    elif request.param == "local":
        if why := model_servers.missing("smollm2"):
            pytest.skip(why)
        with model_servers.running("engine", tmp_path_factory.mktemp("engine")) as url:
            yield Engine(url, model_servers.KEY, PACKAGED_MODEL_ID)
    else:
        url = os.environ.get("ENGINE_CONTRACT_URL", "")
        if not url:
            pytest.skip("set ENGINE_CONTRACT_URL to run this suite against another server")
        yield Engine(url, os.environ.get("ENGINE_CONTRACT_KEY", ""), os.environ["ENGINE_CONTRACT_MODEL"])


@pytest.fixture
def slow(engine: Engine) -> Iterator[None]:
    """The scripted server takes its time, as a model does."""
    if engine.scripted is None:
        yield
        return
    before = engine.scripted.script
    engine.scripted.change(token_delay_s=0.05)
    yield
    engine.scripted.script = before


async def _ask(client: EngineClient, messages: list[dict[str, str]], **options: Any) -> tuple[str, ChatDelta, Usage]:
    """Text, the piece that carried the finish reason, usage."""
    text, end, usage = "", None, None
    async for delta in client.stream_chat(messages, **{"max_tokens": 16, "request_id": str(uuid4()), **options}):
        text += delta.text
        end = delta if delta.finish_reason else end
        usage = delta.usage or usage
    assert end is not None
    assert usage is not None
    return text, end, usage


def ask(engine: Engine, messages: list[dict[str, str]], **options: Any) -> tuple[str, ChatDelta, Usage]:
    """One answer through the product's client."""
    return asyncio.run(_ask(engine.client, messages, **options))


def long_message(tokens: int) -> list[dict[str, str]]:
    """A message of at least so many tokens on any tokenizer, different each time."""
    words = " ".join(f"{uuid4().hex[:6]} is entry number {number}." for number in range(tokens // 5 + 1))
    return [{"role": "user", "content": words}]


def test_a_model_has_a_stable_id_and_a_window(engine: Engine) -> None:
    models = asyncio.run(engine.client.models())
    assert engine.model in [model.id for model in models]
    assert all(model.window_tokens is not None and model.window_tokens >= 512 for model in models)


def test_health_needs_no_key_and_everything_else_does(engine: Engine) -> None:
    assert asyncio.run(engine.client.healthy())
    assert httpx.get(f"{engine.url}/health").status_code == 200
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": engine.key}):
        body = {"model": engine.model, "messages": QUESTION, "max_tokens": 1}
        answer = httpx.post(f"{engine.url}/v1/chat/completions", json=body, headers=headers)
        assert answer.status_code == 401


def test_a_streamed_answer_ends_with_its_reason_and_usage(engine: Engine) -> None:
    text, end, usage = ask(engine, QUESTION, max_tokens=12)
    assert text.strip()
    assert end.finish_reason in {"stop", "length"}
    assert 1 <= usage.completion_tokens <= 12
    assert usage.prompt_tokens == asyncio.run(engine.client.count_tokens(QUESTION))


def test_json_and_stream_give_the_same_text_at_the_default_temperature(engine: Engine) -> None:
    body = {"model": engine.model, "messages": QUESTION, "max_tokens": 12}
    if engine.scripted is None and "ENGINE_CONTRACT_URL" in os.environ:
        body["temperature"] = 0  # vLLM's default comes from the model's own configuration
    answer = engine.post("/v1/chat/completions", body).json()
    assert answer["object"] == "chat.completion"
    assert answer["model"] == engine.model
    text, end, usage = ask(engine, QUESTION, max_tokens=12)
    choice = answer["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": text} | choice["message"]
    assert choice["message"]["content"] == text
    assert choice["finish_reason"] == end.finish_reason
    assert answer["usage"]["prompt_tokens"] == usage.prompt_tokens
    assert answer["usage"]["completion_tokens"] == usage.completion_tokens


def test_the_openai_client_works(engine: Engine) -> None:
    question: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Name a river."}]
    with OpenAI(base_url=f"{engine.url}/v1", api_key=engine.key or "none") as client:
        whole = client.chat.completions.create(model=engine.model, messages=question, max_tokens=5)
        parts = client.chat.completions.create(model=engine.model, messages=question, max_tokens=5, stream=True)
        text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert whole.choices[0].message.content
    assert text


def test_the_answer_stops_at_its_token_limit(engine: Engine) -> None:
    _, end, usage = ask(engine, QUESTION, max_tokens=3)
    assert (end.finish_reason, usage.completion_tokens) == ("length", 3)


def test_tokenize_counts_prompts_and_messages(engine: Engine) -> None:
    text = "The notice period is sixty days. El termini és de seixanta dies."
    prompt = engine.post("/tokenize", {"model": engine.model, "prompt": text, "add_special_tokens": False}).json()
    chat = engine.post("/tokenize", {"model": engine.model, "messages": [{"role": "user", "content": text}]}).json()
    for reply in (prompt, chat):
        assert reply["count"] == len(reply["tokens"])
        assert reply["max_model_len"] >= 512
    assert 10 <= prompt["count"] < chat["count"]
    assert asyncio.run(engine.client.count_tokens(text)) == prompt["count"]
    assert asyncio.run(engine.client.count_many([text, text + text])) == [
        prompt["count"],
        asyncio.run(engine.client.count_tokens(text + text)),
    ]


def test_completions_take_the_ids_that_tokenize_gave(engine: Engine) -> None:
    ids = engine.post("/tokenize", {"model": engine.model, "prompt": "One two three four"}).json()["tokens"]
    answer = engine.post("/v1/completions", {"model": engine.model, "prompt": ids, "max_tokens": 4}).json()
    assert answer["object"] == "text_completion"
    assert isinstance(answer["choices"][0]["text"], str)
    assert answer["usage"]["prompt_tokens"] == len(ids)


def test_an_over_long_prompt_is_refused_by_param(engine: Engine) -> None:
    window = asyncio.run(engine.client.models())[0].window_tokens
    assert window is not None
    body = {"model": engine.model, "messages": long_message(window), "max_tokens": 1}
    for stream in (False, True):
        answer = engine.post("/v1/chat/completions", {**body, "stream": stream})
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert error["param"] in {"input_tokens", "input_text"}
        assert error["type"] == "BadRequestError"
        assert error["code"] == 400
    with pytest.raises(UpstreamError) as caught:
        ask(engine, long_message(window))
    assert caught.value.code == "prompt_too_long"
    assert caught.value.facts == {"window_tokens": 8192}


def test_a_prompt_that_leaves_no_room_for_the_answer_is_refused_too(engine: Engine) -> None:
    window = asyncio.run(engine.client.models())[0].window_tokens
    assert window is not None
    body = {"model": engine.model, "messages": QUESTION, "max_tokens": window}
    answer = engine.post("/v1/chat/completions", body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input_tokens")


def test_another_model_is_not_found(engine: Engine) -> None:
    for path, body in (
        ("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 1}),
        ("/tokenize", {"prompt": "word"}),
    ):
        assert engine.post(path, {**body, "model": "no-such-model"}).status_code == 404


@pytest.mark.parametrize("body", ["{", "[]", '{"max_tokens": 1}', '{"messages": "words"}'])
def test_a_body_that_cannot_be_read_is_a_400(engine: Engine, body: str) -> None:
    with engine.http() as http:
        answer = http.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_the_metrics_that_we_read_are_there(engine: Engine) -> None:
    for name in (
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
    ):
        assert engine.gauge(name) >= 0


def test_salts_do_not_share_cached_prefixes(engine: Engine) -> None:
    messages = long_message(60)
    mine, theirs = uuid4().hex * 2, uuid4().hex * 2
    _, _, first = ask(engine, messages, max_tokens=1, cache_salt=mine)
    _, _, again = ask(engine, messages, max_tokens=1, cache_salt=mine)
    _, _, other = ask(engine, messages, max_tokens=1, cache_salt=theirs)
    _, _, bare = ask(engine, messages, max_tokens=1)
    assert first.prompt_tokens == again.prompt_tokens == other.prompt_tokens
    assert again.cached_tokens > first.prompt_tokens // 2
    assert max(other.cached_tokens, bare.cached_tokens) < 64  # the template before the text, at most


@pytest.mark.usefixtures("slow")
def test_two_requests_run_at_once(engine: Engine) -> None:
    async def both() -> list[tuple[str, ChatDelta, Usage]]:
        return list(
            await asyncio.gather(
                *(_ask(engine.client, [{"role": "user", "content": f"Count to {n}."}], max_tokens=24) for n in (50, 60))
            )
        )

    async def watch() -> float:
        most = 0.0
        work = asyncio.ensure_future(both())
        while not work.done():
            most = max(most, await asyncio.to_thread(engine.gauge, "vllm:num_requests_running"))
            await asyncio.sleep(0.01)
        assert len(await work) == 2
        return most

    assert asyncio.run(watch()) == 2


@pytest.mark.usefixtures("slow")
def test_closing_a_stream_frees_the_engine(engine: Engine) -> None:
    async def leave() -> float:
        stream = engine.client.stream_chat(
            [{"role": "user", "content": "Tell a very long story about a river."}], max_tokens=400, request_id="leave"
        )
        async for delta in stream:
            if delta.text:
                break
        assert await asyncio.to_thread(engine.gauge, "vllm:num_requests_running") == 1
        started = time.monotonic()
        await stream.aclose()
        await asyncio.to_thread(engine.wait_running, 0, FREE_WITHIN_S)
        return time.monotonic() - started

    assert asyncio.run(leave()) < FREE_WITHIN_S


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("beside_another", [False, True])
def test_leaving_while_the_prompt_is_read_frees_the_engine(engine: Engine, stream: bool, beside_another: bool) -> None:
    """Also beside a busy slot: its tokens must not hide the closed connection."""
    if engine.scripted is not None:
        engine.scripted.change(prefill_s=30, token_delay_s=0.01)
    others = 1 if beside_another else 0

    async def leave() -> None:
        story = [{"role": "user", "content": "Tell a very long story about the sea."}]
        other = asyncio.ensure_future(_ask(engine.client, story, max_tokens=4000))
        if not beside_another:
            other.cancel()
        else:
            await asyncio.to_thread(engine.wait_running, 1, 10)
        async with httpx.AsyncClient(
            base_url=engine.url, headers={"Authorization": f"Bearer {engine.key}"}, timeout=120
        ) as http:
            body = {"model": engine.model, "messages": long_message(2000), "max_tokens": 20, "stream": stream}
            work = asyncio.ensure_future(http.post("/v1/chat/completions", json=body))
            await asyncio.to_thread(engine.wait_running, 1 + others, 10)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await asyncio.to_thread(engine.wait_running, others, FREE_WITHIN_S)
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)

    try:
        asyncio.run(leave())
        engine.wait_running(0, FREE_WITHIN_S)
    finally:
        if engine.scripted is not None:
            engine.scripted.change(prefill_s=0.0, token_delay_s=0.0)


def test_the_local_engine_says_what_it_does_not_serve(engine: Engine) -> None:
    if engine.model != PACKAGED_MODEL_ID:
        pytest.skip("only of the local engine")
    for path in ("/v1/rerank", "/v1/embeddings"):
        answer = engine.post(path, {"model": engine.model})
        assert (answer.status_code, answer.json()["error"]["type"]) == (501, "NotImplementedError")


def test_the_local_engine_answers_in_a_schema(engine: Engine) -> None:
    if engine.model != PACKAGED_MODEL_ID:
        pytest.skip("only of the local engine: the scripted one has no grammar")
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    }
    text, _, _ = ask(
        engine,
        [{"role": "user", "content": "The capital of France, as JSON."}],
        max_tokens=40,
        response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": schema}},
    )
    assert list(httpx.Response(200, text=text).json()) == ["city"]
