"""A model server with a script for the answer tests: what it says, how slowly, how it lies, when its client left."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


@dataclass
class Script:
    """Set the fields before a request; read the rest after it."""

    pieces: list[str] = field(default_factory=lambda: ["It ", "is ", "said."])
    prefill_s: float = 0.0
    piece_s: float = 0.0
    extra_prompt_tokens: int = 0
    cut_after: int | None = None
    status: int = 200
    requests: list[dict[str, Any]] = field(default_factory=list)
    began: int = 0
    left_at: float | None = None
    finished: int = 0

    def tokens(self, messages: list[dict[str, str]]) -> int:
        """Words, as a stand-in for tokens."""
        return sum(len(message["content"].split()) for message in messages)


def application(script: Script) -> Starlette:
    """The server."""

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def tokenize(request: Request) -> Response:
        body = await request.json()
        count = script.tokens(body["messages"]) if "messages" in body else len(body["prompt"].split())
        return JSONResponse({"count": count, "max_model_len": 8192, "tokens": list(range(count))})

    async def chat(request: Request) -> Response:
        body = await request.json()
        script.requests.append({**body, "headers": dict(request.headers)})
        if script.status != 200:
            return JSONResponse({"error": {"message": "no", "code": script.status}}, status_code=script.status)
        return StreamingResponse(stream(body), media_type="text/event-stream")

    async def stream(body: dict[str, Any]) -> AsyncIterator[str]:
        script.began += 1
        try:
            await asyncio.sleep(script.prefill_s)
            for number, piece in enumerate(script.pieces):
                if script.cut_after is not None and number >= script.cut_after:
                    return
                yield _event({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
                await asyncio.sleep(script.piece_s)
            yield _event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            prompt = script.tokens(body["messages"]) + script.extra_prompt_tokens
            usage = {"prompt_tokens": prompt, "completion_tokens": len(script.pieces)}
            yield _event({"choices": [], "usage": usage})
            yield "data: [DONE]\n\n"
            script.finished += 1
        except (asyncio.CancelledError, GeneratorExit):
            script.left_at = time.monotonic()
            raise

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/tokenize", tokenize, methods=["POST"]),
            Route("/v1/chat/completions", chat, methods=["POST"]),
        ]
    )


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"
