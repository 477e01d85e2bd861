"""A scripted model server with vLLM's HTTP surface: what it says, how slowly, and how it fails are set by the test.

It records every request and whether its client left. Tokens are words; the chat template costs four a message.
"""

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

Messages = Sequence[Mapping[str, Any]]

_WORD = re.compile(r"\s*\S+")
_MESSAGE_TOKENS = 4
_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Script:
    """How the server behaves; replace it on a running server with `engine.script = ...`."""

    text: str | Callable[[Messages], str] = "The liability cap is 100,000 euros."
    token_delay_s: float = 0.0
    prefill_s: float = 0.0
    cut_after: int | None = None
    """Drop the connection after so many tokens."""
    status: int = 200
    """Answer generations with this error status instead."""
    retry_after_s: int | None = None
    usage_offset: int = 0
    """Added to the prompt tokens that usage reports: an engine that counted differently."""
    counts_nothing: bool = False
    """/tokenize answers 200 with no tokens, whatever it was given."""
    window_tokens: int = 8192
    finish_reason: str = "stop"


@dataclass(slots=True)
class Recorded:
    """One generation request, as the server saw it."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    started_s: float
    tokens_sent: int = 0
    ended_s: float | None = None
    disconnected: bool = False


@dataclass(slots=True)
class ScriptedEngine:
    """Use as a context manager: serves on a free port of 127.0.0.1 from a thread of its own."""

    script: Script = field(default_factory=Script)
    model: str = "scripted"
    api_key: str = "scripted-key"
    requests: list[Recorded] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    url: str = ""
    _vocabulary: dict[str, int] = field(default_factory=dict)
    _prompts: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    _server: uvicorn.Server | None = None
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(
            self._app(), log_level="critical", access_log=False, lifespan="off", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()
        self.wait_for(lambda: self._server is not None and self._server.started)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(timeout=5)

    def change(self, **changes: Any) -> None:
        """Change some fields of the script."""
        self.script = replace(self.script, **changes)

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
        """Wait until the condition holds. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not so after {timeout_s} s")
            time.sleep(_POLL_S)

    # --- tokens ----------------------------------------------------------------------------------------------------

    def _ids(self, text: str) -> list[int]:
        return [self._vocabulary.setdefault(word, len(self._vocabulary) + 1) for word in _WORD.findall(text)]

    def _prompt_ids(self, body: Mapping[str, Any]) -> list[int]:
        if "messages" in body:
            return [
                token for message in body["messages"] for token in [0] * _MESSAGE_TOKENS + self._ids(_content(message))
            ]
        prompt = body.get("prompt", "")
        return self._ids(prompt) if isinstance(prompt, str) else list(prompt)

    def _cached(self, salt: str, prompt: tuple[int, ...]) -> int:
        shared = 0
        for other_salt, other in self._prompts:
            if other_salt == salt:
                same = next((i for i, (a, b) in enumerate(zip(other, prompt, strict=False)) if a != b), None)
                shared = max(shared, min(len(other), len(prompt)) if same is None else same)
        self._prompts.append((salt, prompt))
        return min(shared, len(prompt) - 1)

    # --- handlers --------------------------------------------------------------------------------------------------

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/health", self._health),
                Route("/v1/models", self._guarded(self._models)),
                Route("/metrics", self._guarded(self._metrics)),
                Route("/tokenize", self._guarded(self._tokenize), methods=["POST"]),
                Route("/v1/chat/completions", self._guarded(self._generate), methods=["POST"]),
                Route("/v1/completions", self._guarded(self._generate), methods=["POST"]),
            ]
        )

    def _guarded(self, handler: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def guarded(request: Request) -> Response:
            if request.headers.get("authorization") != f"Bearer {self.api_key}":
                return _error(401, "wrong key", "AuthenticationError")
            answer: Response = await handler(request)
            return answer

        return guarded

    async def _health(self, _request: Request) -> Response:
        return Response(status_code=200)

    async def _models(self, _request: Request) -> Response:
        entry = {"id": self.model, "object": "model", "created": 0, "owned_by": "scripted"}
        return JSONResponse({"object": "list", "data": [{**entry, "max_model_len": self.script.window_tokens}]})

    async def _metrics(self, _request: Request) -> Response:
        lines = {
            "vllm:num_requests_running": self.running,
            "vllm:num_requests_waiting": 0,
            "vllm:kv_cache_usage_perc": 0,
            "vllm:prefix_cache_queries_total": 0,
            "vllm:prefix_cache_hits_total": 0,
        }
        label = f'{{model_name="{self.model}"}}'
        return PlainTextResponse("".join(f"{name}{label} {float(value)}\n" for name, value in lines.items()))

    async def _tokenize(self, request: Request) -> Response:
        body = await request.json()
        if body.get("model") not in (None, self.model):
            return _error(404, "no such model", "NotFoundError")
        tokens = [] if self.script.counts_nothing else self._prompt_ids(body)
        return JSONResponse(
            {
                "count": len(tokens),
                "max_model_len": self.script.window_tokens,
                "tokens": tokens,
                "token_strs": None,
            }
        )

    async def _generate(self, request: Request) -> Response:
        try:
            body = json.loads(await request.body())
            chat = request.url.path.endswith("chat/completions")
            given = body["messages"] if chat else body["prompt"]
            if chat and not (isinstance(given, list) and all(isinstance(one, dict) for one in given)):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            return _error(400, "the body cannot be read")
        if body.get("model") not in (None, self.model):
            return _error(404, "no such model", "NotFoundError")
        record = Recorded(request.url.path, dict(request.headers), body, time.monotonic())
        self.requests.append(record)
        script = self.script
        if script.status != 200:
            record.ended_s = time.monotonic()
            headers = {} if script.retry_after_s is None else {"Retry-After": str(script.retry_after_s)}
            return _error(script.status, "as the script says", "InternalServerError", headers=headers)
        prompt = self._prompt_ids(body)
        asked = body.get("max_tokens")
        if len(prompt) + (asked or 1) > script.window_tokens:
            record.ended_s = time.monotonic()
            return _error(
                400, f"This model's maximum context length is {script.window_tokens} tokens.", param="input_tokens"
            )
        run = _Run(self, script, record, body, prompt, chat=chat)
        if body.get("stream"):
            return StreamingResponse(run.stream(request), media_type="text/event-stream")
        return await run.whole(request)


class _Run:
    """One generation."""

    def __init__(
        self,
        engine: ScriptedEngine,
        script: Script,
        record: Recorded,
        body: Mapping[str, Any],
        prompt: list[int],
        *,
        chat: bool,
    ) -> None:
        self._engine = engine
        self._script = script
        self._record = record
        self._body = body
        self._chat = chat
        text = script.text(body.get("messages", [])) if callable(script.text) else script.text
        words = _WORD.findall(text)
        limit = body.get("max_tokens") or len(words)
        self._words = words[:limit]
        self._finish = "length" if len(words) > limit else script.finish_reason
        self._usage = {
            "prompt_tokens": len(prompt) + script.usage_offset,
            "completion_tokens": len(self._words),
            "total_tokens": len(prompt) + script.usage_offset + len(self._words),
            "prompt_tokens_details": {
                "cached_tokens": engine._cached(str(body.get("cache_salt") or ""), tuple(prompt))
            },
        }

    async def stream(self, request: Request) -> AsyncIterator[bytes]:
        """The events. Starlette cancels this generator when the client leaves."""
        self._enter()
        try:
            if self._chat:
                yield self._event({"role": "assistant", "content": ""})
            await asyncio.sleep(self._script.prefill_s)
            for number, word in enumerate(self._words):
                await self._step(number)
                yield self._event({"content": word})
            yield self._event({}, self._finish)
            if (self._body.get("stream_options") or {}).get("include_usage"):
                yield _data({**self._head(), "choices": [], "usage": self._usage})
            yield b"data: [DONE]\n\n"
            self._record.ended_s = time.monotonic()
        finally:
            self._leave()

    async def whole(self, request: Request) -> Response:
        """The answer as one object, given up when the client leaves."""
        work = asyncio.ensure_future(self._work())
        self._enter()
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=_POLL_S)
                if await request.is_disconnected():
                    return Response(status_code=499)
            await work
            self._record.ended_s = time.monotonic()
            text = "".join(self._words)
            part = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
            choice = {"index": 0, "finish_reason": self._finish, **part}
            return JSONResponse({**self._head(), "choices": [choice], "usage": self._usage})
        finally:
            work.cancel()
            self._leave()

    async def _work(self) -> None:
        await asyncio.sleep(self._script.prefill_s)
        for number in range(len(self._words)):
            await self._step(number)

    async def _step(self, number: int) -> None:
        if self._script.cut_after is not None and number >= self._script.cut_after:
            self._record.ended_s = time.monotonic()
            raise RuntimeError("the script cuts the connection here")
        await asyncio.sleep(self._script.token_delay_s)
        self._record.tokens_sent += 1

    def _enter(self) -> None:
        self._engine.running += 1
        self._engine.most_running = max(self._engine.most_running, self._engine.running)

    def _leave(self) -> None:
        self._engine.running -= 1
        if self._record.ended_s is None:
            self._record.ended_s = time.monotonic()
            self._record.disconnected = True

    def _head(self) -> dict[str, Any]:
        kind = "chat.completion" if self._chat else "text_completion"
        return {
            "id": "scripted-1",
            "object": f"{kind}.chunk" if self._chat and self._body.get("stream") else kind,
            "created": 0,
            "model": self._engine.model,
        }

    def _event(self, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        part = {"delta": dict(delta)} if self._chat else {"text": delta.get("content", "")}
        return _data({**self._head(), "choices": [{"index": 0, "finish_reason": finish, **part}]})


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _data(value: Mapping[str, Any]) -> bytes:
    # Not escaped, as real servers send it: U+2028 and U+0085 stand in the line as they are.
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def _error(
    status: int,
    message: str,
    kind: str = "BadRequestError",
    *,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    error = {"message": message, "type": kind, "param": param, "code": status}
    return JSONResponse({"error": error}, status_code=status, headers=dict(headers or {}))
