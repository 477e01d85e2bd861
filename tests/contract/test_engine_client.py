"""The client of model servers against one that misbehaves: what is retryable, what is not, what never leaks."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from app.core.errors import FullreadError, UnavailableError, UpstreamError
from app.engine.catalog import EngineProfile, local_model_id, profile, section_tokens
from app.engine.client import EngineClient, Usage
from app.settings import Settings
from tests.support.scripted_engine import ScriptedEngine

SECRET = "the salary of Ms Puig is 91,000 euros"  # stands for document text
MESSAGES = [{"role": "user", "content": SECRET}]


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedEngine]:
    """One server for the module; each test sets its script."""
    with ScriptedEngine() as engine:
        yield engine


@pytest.fixture(autouse=True)
def fresh(server: ScriptedEngine) -> None:
    """A default script and an empty record."""
    server.script = type(server.script)()
    server.requests.clear()


def client_of(server: ScriptedEngine, **changes: Any) -> EngineClient:
    """The product's client for it."""
    facts: dict[str, Any] = {"url": server.url, "key": server.api_key, "model": server.model, "read_timeout_s": 10.0}
    facts |= changes
    made = EngineProfile("engine", facts["url"], facts["model"], 8192, 2, "generative", 4096)
    return EngineClient(made, facts["key"], facts["read_timeout_s"])


async def collect(client: EngineClient, **options: Any) -> tuple[str, list[str | None], Usage | None]:
    """Text, finish reasons, usage."""
    text = ""
    reasons: list[str | None] = []
    usage = None
    async for delta in client.stream_chat(MESSAGES, **{"max_tokens": 50, "request_id": "r-1", **options}):
        text += delta.text
        reasons += [delta.finish_reason] if delta.finish_reason else []
        usage = delta.usage or usage
    return text, reasons, usage


def failure(client: EngineClient, **options: Any) -> FullreadError:
    """The error that the request ends with."""
    with pytest.raises(FullreadError) as caught:
        asyncio.run(collect(client, **options))
    assert "salary" not in caught.value.message + str(caught.value.facts)
    return caught.value


def test_the_request_carries_what_was_asked_and_nothing_else(server: ScriptedEngine) -> None:
    text, reasons, usage = asyncio.run(
        collect(client_of(server), seed=7, stop=["\n"], cache_salt="ab" * 32, response_format={"type": "json_object"})
    )
    assert (text, reasons) == ("The liability cap is 100,000 euros.", ["stop"])
    assert usage == Usage(prompt_tokens=12, completion_tokens=6, cached_tokens=0)
    (request,) = server.requests
    assert request.body == {
        "model": "scripted",
        "messages": MESSAGES,
        "max_tokens": 50,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": 7,
        "stop": ["\n"],
        "response_format": {"type": "json_object"},
        "cache_salt": "ab" * 32,
    }
    assert request.headers["x-request-id"] == "r-1"


def test_line_separators_inside_a_token_do_not_break_the_stream(server: ScriptedEngine) -> None:
    written = "one\u2028 two\u0085 three\u2029 four 💶 fünf"
    server.change(text=written)
    assert asyncio.run(collect(client_of(server)))[0] == written


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (503, UnavailableError, "engine_busy"),
        (429, UnavailableError, "engine_busy"),
        (500, UnavailableError, "engine_failed"),
        (502, UnavailableError, "engine_failed"),
        (400, UpstreamError, "engine_rejected"),
        (422, UpstreamError, "engine_rejected"),
    ],
)
def test_the_status_decides_the_error(
    server: ScriptedEngine, status: int, kind: type[FullreadError], code: str
) -> None:
    server.change(status=status, retry_after_s=3)
    error = failure(client_of(server))
    assert (type(error), error.code) == (kind, code)
    if code == "engine_busy":
        assert error.facts["retry_after_s"] == 3


def test_a_wrong_key_and_a_wrong_model_are_told_apart(server: ScriptedEngine) -> None:
    assert failure(client_of(server, key="wrong")).code == "engine_key_rejected"
    assert failure(client_of(server, model="absent")).code == "engine_model_unknown"


def test_a_stream_that_is_cut_off_is_an_error_after_its_text(server: ScriptedEngine) -> None:
    server.change(cut_after=3)

    async def read() -> tuple[str, FullreadError]:
        text = ""
        try:
            async for delta in client_of(server).stream_chat(MESSAGES, max_tokens=50, request_id="r-1"):
                text += delta.text
        except FullreadError as error:
            return text, error
        raise AssertionError("the stream ended as if it were whole")

    text, error = asyncio.run(read())
    assert text == "The liability cap"
    assert (error.code, error.retryable) == ("engine_cut_off", True)


def test_a_silent_server_is_given_up(server: ScriptedEngine) -> None:
    server.change(prefill_s=5)
    started = time.monotonic()
    assert failure(client_of(server, read_timeout_s=0.2)).code == "engine_timeout"
    assert time.monotonic() - started < 3


def test_nobody_there_is_unavailable() -> None:
    with ScriptedEngine() as gone:
        client = client_of(gone)
    assert failure(client).code == "engine_unreachable"
    assert not asyncio.run(client.healthy())


@pytest.mark.parametrize("cancel", [False, True])
def test_leaving_closes_the_connection_at_once(server: ScriptedEngine, cancel: bool) -> None:
    server.change(text="word " * 500, token_delay_s=0.02)

    async def leave() -> None:
        stream = client_of(server).stream_chat(MESSAGES, max_tokens=500, request_id="r-1")
        if cancel:

            async def read() -> None:
                async for _ in stream:
                    pass

            work = asyncio.ensure_future(read())
            await asyncio.sleep(0.3)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        else:
            async for delta in stream:
                if delta.text:
                    break
            await stream.aclose()

    asyncio.run(leave())
    server.wait_for(lambda: server.running == 0, timeout_s=1.0)
    (request,) = server.requests
    assert request.disconnected
    assert 1 <= request.tokens_sent < 100


def test_leaving_while_the_prompt_is_read_closes_the_connection(server: ScriptedEngine) -> None:
    server.change(prefill_s=30)

    async def leave() -> None:
        work = asyncio.ensure_future(collect(client_of(server)))
        await asyncio.to_thread(server.wait_for, lambda: server.running == 1)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    asyncio.run(leave())
    server.wait_for(lambda: server.running == 0, timeout_s=1.0)
    assert server.requests[0].disconnected


def test_counting_nothing_in_a_text_is_an_error(server: ScriptedEngine) -> None:
    client = client_of(server)
    assert asyncio.run(client.count_tokens("")) == 0
    server.change(counts_nothing=True)
    with pytest.raises(UpstreamError) as caught:
        asyncio.run(client.count_tokens("some words"))
    assert caught.value.code == "engine_cannot_count"


def test_a_server_without_tokenize_cannot_count(server: ScriptedEngine) -> None:
    with pytest.raises(UpstreamError) as caught:
        asyncio.run(client_of(server, url=f"{server.url}/elsewhere").count_tokens("some words"))
    assert caught.value.code == "engine_cannot_count"


def test_one_client_serves_several_event_loops(server: ScriptedEngine) -> None:
    client = client_of(server)
    assert [asyncio.run(collect(client))[1] for _ in range(3)] == [["stop"]] * 3


def test_the_profile_comes_from_the_settings() -> None:
    settings = Settings(
        ENGINE_URL="http://127.0.0.1:9/", ENGINE_MODEL="m", ENGINE_WINDOW_TOKENS=32768, ENGINE_ANSWER_FORM="generative"
    )
    made = profile(settings)
    assert (made.url, made.model, made.window_tokens) == ("http://127.0.0.1:9", "m", 32768)
    assert made.engine_id == profile(settings).engine_id
    assert made.section_tokens == 32768 - 4096
    assert section_tokens(8192, "extractive") == 1500
    assert section_tokens(2048, "extractive") == 1024


def test_a_local_model_has_a_stable_id() -> None:
    from pathlib import Path

    assert local_model_id(None) == "smollm2-135m-instruct"
    assert local_model_id(Path("/models/Qwen3-1.7B-Q4_K_M.gguf")) == "qwen3-1.7b-q4_k_m"
