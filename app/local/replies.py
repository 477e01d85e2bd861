"""The event streams of llama.cpp: read, rid of what is only its own, and folded into one answer.

Every generation is streamed inside, with prompt progress on: writing progress is how llama.cpp notices, in the middle
of a long prompt, that the client has gone. Without it another busy slot can hide the closed connection for minutes.
"""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx

DONE = b"[DONE]"
_PROGRESS = b'"prompt_progress":'  # inside a JSON string the quotes would be escaped


class CutOffError(Exception):
    """The engine's stream ended before its end mark, or held an error."""


async def events(reply: httpx.Response) -> AsyncIterator[bytes]:
    """The payload of each event but progress; the last one is DONE. Raises CutOffError."""
    rest = b""
    async for part in reply.aiter_raw():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            payload = line[5:].strip()
            if _PROGRESS in payload:
                continue
            yield payload
            if payload == DONE:
                return
    raise CutOffError("the engine ended its answer in the middle")


async def framed(reply: httpx.Response, on_first: Callable[[], None]) -> AsyncIterator[bytes]:
    """The events as they go to the client; `on_first` is called once, when the prompt has been read."""
    first = True
    async for payload in events(reply):
        if first:
            first = False
            on_first()
        yield b"data: " + payload + b"\n\n"


async def folded(reply: httpx.Response) -> dict[str, Any]:
    """The whole stream as the one object that a request without `stream` gets. Raises CutOffError."""
    answer: dict[str, Any] = {}
    choice: dict[str, Any] = {"index": 0, "finish_reason": None, "logprobs": None}
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    text: str | None = None
    calls: dict[int, dict[str, Any]] = {}
    async for payload in events(reply):
        if payload == DONE:
            break
        chunk = json.loads(payload)
        if "error" in chunk:
            raise CutOffError("the engine failed in the middle of its answer")
        for name in ("id", "created", "model", "usage"):
            if chunk.get(name) is not None:
                answer[name] = chunk[name]
        for part in chunk.get("choices", []):
            choice["finish_reason"] = part.get("finish_reason") or choice["finish_reason"]
            _extend_logprobs(choice, part.get("logprobs"))
            if "text" in part:
                text = (text or "") + part["text"]
            delta = part.get("delta") or {}
            message["content"] += delta.get("content") or ""
            if delta.get("reasoning_content"):
                message["reasoning_content"] = message.get("reasoning_content", "") + delta["reasoning_content"]
            for call in delta.get("tool_calls") or []:
                _extend_call(calls, call)
    if calls:
        message |= {"tool_calls": [calls[index] for index in sorted(calls)], "content": message["content"] or None}
    choice |= {"message": message} if text is None else {"text": text}
    answer |= {"object": "chat.completion" if text is None else "text_completion", "choices": [choice]}
    return answer


def _extend_logprobs(choice: dict[str, Any], part: dict[str, Any] | None) -> None:
    if part and part.get("content"):
        choice["logprobs"] = {"content": [*((choice["logprobs"] or {}).get("content", [])), *part["content"]]}


def _extend_call(calls: dict[int, dict[str, Any]], part: dict[str, Any]) -> None:
    call = calls.setdefault(part["index"], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    call["id"] = part.get("id") or call["id"]
    function = part.get("function") or {}
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""
