"""The local generation server: vLLM's HTTP surface (what we use of it) over a small model in llama.cpp.

Chat and completions pass through; counting, limits, errors, metrics and model names are put in vLLM's shape.
"""

import argparse
import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.engine.catalog import local_model_id
from app.local import llama, replies
from app.local.cores import usable_cores
from app.local.front import ApiError, application, busy, read_key, read_object, serve, unless_gone
from app.local.llama import Llama
from app.local.meters import Meters
from app.local.salts import PrefixLedger

DEFAULT_SLOTS = 2
DEFAULT_WINDOW_TOKENS = 8192
MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_WAITING = 64

_LEDGER_TOKENS = llama.PROMPT_CACHE_MIB * 1024  # no model here needs under 1 KiB of cache a token
_PASSED_ON = frozenset(
    {
        "chat_template_kwargs",
        "frequency_penalty",
        "ignore_eos",
        "logit_bias",
        "logprobs",
        "messages",
        "min_p",
        "presence_penalty",
        "prompt",
        "response_format",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_k",
        "top_logprobs",
        "top_p",
    }
)
_TEMPLATE_FIELDS = frozenset({"add_generation_prompt", "messages", "tools", "tool_choice", "chat_template_kwargs"})


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request's prompt as the engine will read it, and how many tokens it may add."""

    tokens: list[int]
    max_tokens: int


def too_long(window_tokens: int, prompt_tokens: int, asked: int | None) -> ApiError:
    """vLLM's answer to a prompt that does not fit: clients decide by `param`."""
    room = "" if asked is None else f" and {asked} tokens were asked for"
    return ApiError(
        400,
        f"This model's maximum context length is {window_tokens} tokens. The prompt has {prompt_tokens} tokens{room}. "
        "Please reduce the length of the input.",
        param="input_tokens",
    )


def _translated(reply: httpx.Response, window_tokens: int) -> ApiError:
    """llama.cpp's error in vLLM's shape; its status decides."""
    try:
        error = reply.json()["error"]
        message, kind = str(error["message"]), str(error["type"])
        prompt_tokens = int(error.get("n_prompt_tokens", 0))
    except (ValueError, KeyError, TypeError):
        message, kind, prompt_tokens = "The engine gave no reason.", "", 0
    if kind == "exceed_context_size_error":
        return too_long(window_tokens, prompt_tokens, None)
    if reply.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        return busy(message)
    if reply.is_client_error:
        return ApiError(400, message)
    return ApiError(500, message, kind="InternalServerError")


class Seats:
    """At most `count` requests are in the engine, at most MAX_WAITING wait, first come first served."""

    def __init__(self, count: int) -> None:
        self.waiting = 0
        self.prompt_tokens = 0
        self._free = asyncio.Semaphore(count)

    @asynccontextmanager
    async def seat(self, prompt_tokens: int) -> AsyncIterator[None]:
        """Wait for a seat and hold it. Raises ApiError 503 when the queue is full."""
        if self.waiting >= MAX_WAITING:
            raise busy(f"{self.waiting} requests wait for this engine: try again.", retry_after_s=5)
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        self.prompt_tokens += prompt_tokens
        try:
            yield
        finally:
            self.prompt_tokens -= prompt_tokens
            self._free.release()


class Relay(StreamingResponse):
    """A server-sent-event stream passed on byte by byte; however it ends, the engine's side is closed."""

    def __init__(self, reply: httpx.Response, held: AsyncExitStack, on_first: Callable[[], None]) -> None:
        super().__init__(
            replies.framed(reply, on_first), media_type="text/event-stream", headers={"Cache-Control": "no-cache"}
        )
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with anyio.CancelScope(shield=True):
                await self._held.aclose()


class Front:
    """The handlers, over one loaded model."""

    def __init__(self, engine: Llama, name: str) -> None:
        self.engine = engine
        self.name = name
        self.seats = Seats(engine.slots)
        self.ledger = PrefixLedger(_LEDGER_TOKENS)
        self.started = int(time.time())
        self.meters = Meters(name, engine.slots * engine.window_tokens)

    # --- prompts ---------------------------------------------------------------------------------------------------

    async def tokens(self, body: Mapping[str, Any], *, special: bool = True) -> list[int]:
        """The token ids of `messages` or `prompt`. Raises ApiError 400."""
        try:
            if "messages" in body:
                if not isinstance(body["messages"], list) or not body["messages"]:
                    raise ApiError(400, "`messages` must be a list with at least one message.", param="messages")
                fields = {name: body[name] for name in _TEMPLATE_FIELDS if body.get(name) is not None}
                return await llama.tokens_of(self.engine, await llama.render(self.engine, fields), add_special=True)
            prompt = body.get("prompt")
            if isinstance(prompt, str):
                return await llama.tokens_of(self.engine, prompt, add_special=special)
        except httpx.HTTPStatusError as error:
            raise _translated(error.response, self.engine.window_tokens) from error
        if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
            return list(prompt)
        raise ApiError(400, "`prompt` must be one string or one list of token ids.", param="prompt")

    async def prompt(self, body: Mapping[str, Any]) -> Prompt:
        """Count and check against the window, before anything is sent to the model. Raises ApiError 400 or 404."""
        self.check_model(body)
        if body.get("n") not in (None, 1):
            raise ApiError(400, "This engine gives one choice a request: `n` must be 1.", param="n")
        asked = body.get("max_completion_tokens", body.get("max_tokens"))
        if asked is not None and (type(asked) is not int or asked < 1):
            raise ApiError(400, "`max_tokens` must be a positive whole number.", param="max_tokens")
        tokens = await self.tokens(body)
        if not tokens:
            raise ApiError(400, "The prompt is empty.", param="prompt")
        left = self.engine.window_tokens - len(tokens)
        if left < (asked or 1):
            raise too_long(self.engine.window_tokens, len(tokens), asked)
        return Prompt(tokens, asked or left)

    def check_model(self, body: Mapping[str, Any]) -> None:
        """A request for another model is a 404, as on vLLM."""
        if body.get("model") not in (None, "", self.name):
            raise ApiError(404, f"The model does not exist here; this server has {self.name}.", kind="NotFoundError")

    # --- generation ------------------------------------------------------------------------------------------------

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        return await self._generate(request, "/v1/chat/completions", "messages")

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        return await self._generate(request, "/v1/completions", "prompt")

    async def _generate(self, request: Request, path: str, needed: str) -> Response:
        arrived = time.monotonic()
        body = await read_object(request, MAX_BODY_BYTES)
        if needed not in body:
            raise ApiError(400, f"`{needed}` is missing.", param=needed)
        held = AsyncExitStack()
        try:
            reply = await unless_gone(request, self._begin(held, path, body))
            if body.get("stream"):
                self.meters.done.inc()
                return Relay(
                    reply, held.pop_all(), lambda: self.meters.first_token_s.observe(time.monotonic() - arrived)
                )
            answer = await unless_gone(request, replies.folded(reply))
            self.meters.done.inc()
            return JSONResponse(answer)
        except replies.CutOffError as error:
            raise ApiError(500, str(error), kind="InternalServerError") from error
        finally:
            with anyio.CancelScope(shield=True):
                await held.aclose()

    async def _begin(self, held: AsyncExitStack, path: str, body: dict[str, Any]) -> httpx.Response:
        """Count, take a seat, send. What must be closed in the end is put on `held`."""
        prompt = await self.prompt(body)
        passed = {name: value for name, value in body.items() if name in _PASSED_ON and value is not None}
        passed.setdefault("temperature", 0.0)
        wanted = passed.get("stream_options") if passed.get("stream") else {"include_usage": True}
        passed |= {"max_tokens": prompt.max_tokens, "stream": True, "return_progress": True}
        passed |= {"stream_options": wanted} if wanted else {}
        if path == "/v1/completions":
            passed["prompt"] = prompt.tokens
        await held.enter_async_context(self.seats.seat(len(prompt.tokens)))
        passed["cache_prompt"] = self.ledger.admit(str(body.get("cache_salt") or ""), prompt.tokens)
        reply = await held.enter_async_context(self.engine.client.stream("POST", path, json=passed))
        if reply.status_code != httpx.codes.OK:
            await reply.aread()
            raise _translated(reply, self.engine.window_tokens)
        return reply

    # --- around it -------------------------------------------------------------------------------------------------

    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize: {prompt | messages} to {count, max_model_len, tokens, token_strs}."""
        body = await read_object(request, MAX_BODY_BYTES)
        self.check_model(body)
        tokens = await self.tokens(body, special=bool(body.get("add_special_tokens", True)))
        strings = None
        if body.get("return_token_strs"):
            strings = [await llama.text_of(self.engine, [token]) for token in tokens]
        return JSONResponse(
            {"count": len(tokens), "max_model_len": self.engine.window_tokens, "tokens": tokens, "token_strs": strings}
        )

    async def detokenize(self, request: Request) -> Response:
        """POST /detokenize: {tokens} to {prompt}."""
        body = await read_object(request, MAX_BODY_BYTES)
        tokens = body.get("tokens")
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise ApiError(400, "`tokens` must be a list of token ids.", param="tokens")
        return JSONResponse({"prompt": await llama.text_of(self.engine, tokens)})

    async def models(self, _request: Request) -> Response:
        """GET /v1/models: one model, by its stable id."""
        entry = {
            "id": self.name,
            "object": "model",
            "created": self.started,
            "owned_by": "fullread",
            "root": self.name,
            "max_model_len": self.engine.window_tokens,
        }
        return JSONResponse({"object": "list", "data": [entry]})

    async def health(self, _request: Request) -> Response:
        """GET /health: 200 while the engine inside answers."""
        try:
            reply = await self.engine.client.get("/health", timeout=2.0)
            status = 200 if reply.status_code == httpx.codes.OK else 503
        except httpx.HTTPError:
            status = 503
        return Response(status_code=status)

    async def metrics(self, _request: Request) -> Response:
        """GET /metrics: the vllm:* names that the platform reads."""
        try:
            inside = await llama.counters(self.engine)
        except httpx.HTTPError as error:
            raise ApiError(503, "The engine does not answer.", kind="ServiceUnavailableError") from error
        text = self.meters.text(inside, waiting=self.seats.waiting, prompt_tokens=self.seats.prompt_tokens)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def not_here(self, request: Request) -> Response:
        """501 for what the surface has and this server has not."""
        raise ApiError(501, f"{request.url.path} is not served by the local engine.", kind="NotImplementedError")

    def routes(self) -> list[Route]:
        """The surface."""
        posts = {
            "/v1/chat/completions": self.chat,
            "/v1/completions": self.completions,
            "/tokenize": self.tokenize,
            "/detokenize": self.detokenize,
            "/v1/rerank": self.not_here,
            "/rerank": self.not_here,
            "/v1/embeddings": self.not_here,
        }
        gets = {"/v1/models": self.models, "/health": self.health, "/metrics": self.metrics}
        return [
            *(Route(path, handler, methods=["POST"]) for path, handler in posts.items()),
            *(Route(path, handler) for path, handler in gets.items()),
        ]


def build(
    gguf: Path,
    name: str,
    *,
    key: str = "",
    threads: int = 0,
    slots: int = DEFAULT_SLOTS,
    window_tokens: int = DEFAULT_WINDOW_TOKENS,
) -> ASGIApp:
    """Load the model and return the app; `threads` 0 means every core this process may use. Raises EngineStartError."""
    engine = llama.start(gguf, name, threads=threads or usable_cores(), slots=slots, window_tokens=window_tokens)
    return application(Front(engine, name).routes(), key)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `python -m app.local.engine`."""
    parser = argparse.ArgumentParser(prog="python -m app.local.engine", description=__doc__)
    parser.add_argument("--models", type=Path, required=True, help="the models folder")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--api-key-file", type=Path)
    parser.add_argument("--gguf", type=Path, help="another model file instead of the packaged one")
    parser.add_argument("--model-id", help="its name in /v1/models (default: the file's stem, lower case)")
    parser.add_argument("--threads", type=int, default=0, help="default: the usable cores")
    parser.add_argument("--slots", type=int, default=DEFAULT_SLOTS, help="requests at work at once")
    parser.add_argument("--window-tokens", type=int, default=DEFAULT_WINDOW_TOKENS, help="window of each slot")
    given = parser.parse_args(arguments)
    # libgomp reads this when it is loaded: spinning threads beside other busy processes fall to under a token a second.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        app = build(
            given.gguf or given.models / "smollm2" / "model.gguf",
            given.model_id or local_model_id(given.gguf),
            key=read_key(given.api_key_file),
            threads=given.threads,
            slots=given.slots,
            window_tokens=given.window_tokens,
        )
    except llama.EngineStartError as error:
        parser.exit(1, f"{error}\n")
    serve(app, given.host, given.port)


if __name__ == "__main__":
    main()
