"""The one client of model servers: OpenAI-compatible HTTP, streamed. Closing a stream frees the engine.

Errors are decided by status and `error.param`, and never carry the server's text: it may quote a prompt.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import httpx

from app.core.errors import UnavailableError, UpstreamError
from app.engine.catalog import EngineProfile

READ_TIMEOUT_S = 900.0
"""The longest silence of a stream: a long prompt is read before the first token."""
TOO_LONG_PARAMS = frozenset({"input_tokens", "input_text"})

_QUICK_TIMEOUT_S = 60.0
_HEALTH_TIMEOUT_S = 2.0
_COUNTS_AT_ONCE = 8
_DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the engine counted them. `cached_tokens` of the prompt came from its prefix cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class ChatDelta:
    """One piece of an answer. The last pieces carry the finish reason and then the usage."""

    text: str
    finish_reason: str | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class EngineModel:
    """A model that the server offers; `window_tokens` is None when it does not say."""

    id: str
    window_tokens: int | None


class EngineClient:
    """One engine. Holds no connection between calls, so it may be shared by event loops, threads and forks."""

    def __init__(self, profile: EngineProfile, api_key: str, read_timeout_s: float = READ_TIMEOUT_S) -> None:
        self.profile = profile
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._read_timeout_s = read_timeout_s
        self._tls = httpx.create_ssl_context()

    async def stream_chat(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        max_tokens: int,
        request_id: str,
        temperature: float = 0.0,
        seed: int | None = None,
        stop: Sequence[str] | None = None,
        response_format: Mapping[str, Any] | None = None,
        cache_salt: str | None = None,
    ) -> AsyncGenerator[ChatDelta, None]:
        """Stream an answer. Close the iterator (`aclose`) to stop: the connection closes and the engine is free.

        Raises UnavailableError (engine_unreachable, engine_busy, engine_failed, engine_timeout, engine_cut_off) when a
        retry helps, else UpstreamError (prompt_too_long, engine_rejected, engine_key_rejected, engine_model_unknown,
        engine_bad_answer).
        """
        body: dict[str, Any] = {
            "model": self.profile.model,
            "messages": [dict(message) for message in messages],
            "max_tokens": max_tokens,
            "temperature": temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        optional = {
            "seed": seed,
            "stop": list(stop) if stop else None,
            "response_format": response_format,
            "cache_salt": cache_salt,
        }
        body |= {name: value for name, value in optional.items() if value is not None}
        finished = False
        try:
            async with (
                self._connect(self._read_timeout_s) as http,
                http.stream("POST", "/v1/chat/completions", json=body, headers={"X-Request-Id": request_id}) as reply,
            ):
                if reply.status_code != httpx.codes.OK:
                    await reply.aread()
                    self._refuse(reply)
                async for event in _events(reply):
                    if event == _DONE:
                        return
                    delta = self._delta(event)
                    finished = finished or delta.finish_reason is not None
                    if delta.text or delta.finish_reason or delta.usage:
                        yield delta
        except httpx.TimeoutException as error:
            raise UnavailableError("engine_timeout", "The model server did not answer in time.") from error
        except httpx.RemoteProtocolError as error:
            raise _cut_off() from error
        except httpx.ReadError as error:
            raise _cut_off() from error
        except httpx.HTTPError as error:
            raise _unreachable() from error
        if not finished:
            raise _cut_off()

    async def count_tokens(self, content: str | Sequence[Mapping[str, object]]) -> int:
        """Tokens of a text, or of messages with the chat template around them, as the engine counts them.

        Raises as `stream_chat`, and UpstreamError engine_cannot_count when the server has no /tokenize or counts
        nothing in a text.
        """
        body: dict[str, Any] = {"model": self.profile.model}
        if isinstance(content, str):
            body |= {"prompt": content, "add_special_tokens": False}
        else:
            body["messages"] = [dict(message) for message in content]
        reply = await self._call("POST", "/tokenize", body)
        if reply.status_code in (httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED, httpx.codes.NOT_IMPLEMENTED):
            raise UpstreamError("engine_cannot_count", "The model server offers no token count.")
        if reply.status_code != httpx.codes.OK:
            self._refuse(reply)
        count = _field(reply, "count")
        if not isinstance(count, int) or (count <= 0 and bool(content)):
            raise UpstreamError("engine_cannot_count", "The model server counted no tokens in a text that has some.")
        return count

    async def count_many(self, contents: Sequence[str | Sequence[Mapping[str, object]]]) -> list[int]:
        """`count_tokens` of each text or prompt, a few at once; in order."""
        gate = asyncio.Semaphore(_COUNTS_AT_ONCE)

        async def one(content: str | Sequence[Mapping[str, object]]) -> int:
            async with gate:
                return await self.count_tokens(content)

        return list(await asyncio.gather(*(one(content) for content in contents)))

    async def models(self) -> list[EngineModel]:
        """What the server offers. Raises as `stream_chat`."""
        reply = await self._call("GET", "/v1/models")
        if reply.status_code != httpx.codes.OK:
            self._refuse(reply)
        entries = _field(reply, "data")
        if not isinstance(entries, list) or not all(isinstance(entry, dict) and "id" in entry for entry in entries):
            raise _bad_answer()
        return [
            EngineModel(str(entry["id"]), window if isinstance(window := entry.get("max_model_len"), int) else None)
            for entry in entries
        ]

    async def healthy(self) -> bool:
        """Whether the server says that it can work; never raises."""
        try:
            async with self._connect(_HEALTH_TIMEOUT_S) as http:
                return (await http.get("/health")).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    @asynccontextmanager
    async def _connect(self, timeout_s: float) -> AsyncIterator[httpx.AsyncClient]:
        async with httpx.AsyncClient(
            base_url=self.profile.url,
            headers=self._headers,
            timeout=httpx.Timeout(timeout_s, connect=5.0),
            verify=self._tls,
            trust_env=False,  # an engine is never behind the proxy of the environment
        ) as http:
            yield http

    async def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        try:
            async with self._connect(_QUICK_TIMEOUT_S) as http:
                return await http.request(method, path, json=body)
        except httpx.TimeoutException as error:
            raise UnavailableError("engine_timeout", "The model server did not answer in time.") from error
        except httpx.HTTPError as error:
            raise _unreachable() from error

    def _delta(self, event: bytes) -> ChatDelta:
        try:
            chunk = json.loads(event)
            if "error" in chunk:
                self._refuse_error(500, chunk["error"])
            usage = _usage(chunk.get("usage"))
            choices = chunk.get("choices") or []
            if not choices:
                return ChatDelta("", usage=usage)
            choice = choices[0]
            text = choice.get("delta", {}).get("content") or ""
            return ChatDelta(str(text), choice.get("finish_reason"), usage)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise _bad_answer() from error

    def _refuse(self, reply: httpx.Response) -> NoReturn:
        self._refuse_error(reply.status_code, _field(reply, "error"), reply.headers.get("Retry-After", ""))

    def _refuse_error(self, status: int, error: Any, retry_after: str = "") -> NoReturn:
        details = error if isinstance(error, dict) else {}
        code = details.get("code")
        status = code if isinstance(code, int) and status == httpx.codes.INTERNAL_SERVER_ERROR else status
        if details.get("param") in TOO_LONG_PARAMS:
            raise UpstreamError(
                "prompt_too_long",
                f"The prompt does not fit into the model's window of {self.profile.window_tokens} tokens.",
                window_tokens=self.profile.window_tokens,
            )
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise UpstreamError("engine_key_rejected", "The model server refused the API key (ENGINE_API_KEY).")
        if status == httpx.codes.NOT_FOUND:
            raise UpstreamError(
                "engine_model_unknown",
                f"The model server does not know {self.profile.model} (ENGINE_MODEL, ENGINE_URL).",
                model=self.profile.model,
            )
        if status in (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE):
            wait_s = int(retry_after) if retry_after.isdigit() else 1
            raise UnavailableError("engine_busy", "The model server is busy.", retry_after_s=wait_s)
        if status >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise UnavailableError("engine_failed", "The model server failed.", engine_status=status)
        raise UpstreamError("engine_rejected", "The model server refused the request.", engine_status=status)


async def _events(reply: httpx.Response) -> AsyncIterator[bytes]:
    """The data of each server-sent event. Lines end at LF only: JSON may hold U+2028 and U+0085 as they are."""
    rest = b""
    async for part in reply.aiter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    details = value.get("prompt_tokens_details") or {}
    return Usage(
        prompt_tokens=int(value["prompt_tokens"]),
        completion_tokens=int(value.get("completion_tokens") or 0),
        cached_tokens=int(details.get("cached_tokens") or 0),
    )


def _field(reply: httpx.Response, name: str) -> Any:
    try:
        value = reply.json()
    except ValueError:
        return None
    return value.get(name) if isinstance(value, dict) else None


def _unreachable() -> UnavailableError:
    return UnavailableError("engine_unreachable", "The model server cannot be reached.")


def _cut_off() -> UnavailableError:
    return UnavailableError("engine_cut_off", "The model server ended its answer in the middle.")


def _bad_answer() -> UpstreamError:
    return UpstreamError("engine_bad_answer", "The model server's answer cannot be read.")
