"""One chat with a model server: under a seat, its prompt counted by the engine itself, its usage checked at the end.

What was read is metered call by call, so that an answer that is abandoned keeps what it cost.
"""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import anyio
from anyio import to_thread

from app.answering import seats
from app.answering.prompts import Message
from app.answering.tools import AnswerTools
from app.core.errors import UpstreamError
from app.engine import admission
from app.engine.admission import Seat
from app.engine.client import ChatDelta
from app.identity.permissions import Principal

TEMPERATURE = 0.0
SEED = 0
_LEAST_ROOM_TOKENS = 16


@dataclass(frozen=True, slots=True)
class PromptUse:
    """A prompt that was sent: what for, the hash of its messages, its tokens as counted."""

    purpose: str
    sha256: str
    tokens: int


@dataclass(slots=True)
class Meter:
    """Prompts sent for one answer and their cost. None while no engine said anything."""

    prompts: list[PromptUse] = field(default_factory=list)
    counted_tokens: int | None = None
    engine_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None

    def sent(self, purpose: str, messages: Sequence[Message], tokens: int) -> None:
        """Note a prompt before it goes out."""
        self.prompts.append(PromptUse(purpose, digest(messages), tokens))
        self.counted_tokens = (self.counted_tokens or 0) + tokens

    def used(self, prompt: int, completion: int, cached: int) -> None:
        """Add what the engine reported of one call."""
        self.engine_tokens = (self.engine_tokens or 0) + prompt
        self.output_tokens = (self.output_tokens or 0) + completion
        self.cached_tokens = (self.cached_tokens or 0) + cached


@dataclass(frozen=True, slots=True)
class Line:
    """To whom a chat belongs: the answer, its caller, and the lane of its seat."""

    actor: Principal
    answer_id: UUID
    meter: Meter
    lane: str = "interactive"
    #: Longest wait for a seat.
    wait_s: float = 20.0


def digest(messages: Sequence[Message]) -> str:
    """SHA-256 of the messages as sent."""
    return hashlib.sha256(json.dumps(messages, ensure_ascii=True, sort_keys=True).encode()).hexdigest()


def cache_salt(key: bytes, tenant_id: UUID) -> str:
    """The tenant's salt for the engine's prefix cache: hex HMAC-SHA256, 64 characters, so no cache crosses tenants."""
    return hmac.new(key, tenant_id.bytes, hashlib.sha256).hexdigest()


def seat(tools: AnswerTools, line: Line) -> AbstractAsyncContextManager[Seat]:
    """A seat for one chat, or for several that follow each other. Raises UnavailableError("engine_busy")."""
    return seats.seated(
        tools.database,
        tools.profile.engine_id,
        tenant_id=line.actor.tenant_id,
        lane=line.lane,
        holder=f"answer:{line.answer_id}",
        wait_s=line.wait_s,
    )


async def stream(
    tools: AnswerTools,
    line: Line,
    taken: Seat,
    messages: Sequence[Message],
    *,
    purpose: str,
    counted: int,
    max_tokens: int,
    response_format: Mapping[str, Any] | None = None,
    stop: Sequence[str] | None = None,
) -> AsyncGenerator[str, None]:
    """Stream a chat under a seat that is held; its lease is renewed while the engine is silent (a long prefill).

    `counted`: tokens of the messages by the engine's own count. When the engine reports another number at the end, the
    whole is counted once more; if that does not agree either, UpstreamError("token_mismatch") names both: the text that
    it read may have been cut.
    """
    room = tools.profile.window_tokens - counted
    if room < _LEAST_ROOM_TOKENS:
        raise UpstreamError(
            "prompt_too_long",
            f"The prompt has {counted} tokens: it leaves no room for an answer in the window of"
            f" {tools.profile.window_tokens}.",
            window_tokens=tools.profile.window_tokens,
        )
    line.meter.sent(purpose, messages, counted)
    await to_thread.run_sync(lambda: admission.renew(tools.database, taken))
    deltas = tools.engine.stream_chat(
        messages,
        max_tokens=min(max_tokens, room),
        temperature=TEMPERATURE,
        seed=SEED,
        cache_salt=cache_salt(tools.salt_key, line.actor.tenant_id),
        request_id=str(line.answer_id),
        response_format=response_format,
        stop=stop,
    )
    read: int | None = None
    async with aclosing(deltas):
        renewed = time.monotonic()
        while (delta := await _next(tools, taken, deltas)) is not None:
            if time.monotonic() - renewed > seats.RENEW_S:
                await to_thread.run_sync(lambda: admission.renew(tools.database, taken))
                renewed = time.monotonic()
            if delta.usage is not None:
                read = delta.usage.prompt_tokens
                line.meter.used(read, delta.usage.completion_tokens, delta.usage.cached_tokens)
            if delta.text:
                yield delta.text
    if read is None:
        raise UpstreamError("engine_cannot_count", "The model server did not say how many prompt tokens it read.")
    if read != counted:
        counted = await tools.engine.count_tokens(messages)
        if read != counted:
            raise mismatch(counted, read)


async def reply(
    tools: AnswerTools,
    line: Line,
    taken: Seat,
    messages: Sequence[Message],
    *,
    purpose: str,
    counted: int,
    max_tokens: int,
    response_format: Mapping[str, Any] | None = None,
    stop: Sequence[str] | None = None,
) -> str:
    """As `stream`, for a caller that needs the whole text."""
    pieces = stream(
        tools,
        line,
        taken,
        messages,
        purpose=purpose,
        counted=counted,
        max_tokens=max_tokens,
        response_format=response_format,
        stop=stop,
    )
    async with aclosing(pieces):
        return "".join([piece async for piece in pieces])


def mismatch(counted: int, engine: int) -> UpstreamError:
    """The error of a prompt that the engine read in another length than it was sent."""
    return UpstreamError(
        "token_mismatch",
        f"The engine read {engine} prompt tokens, but it was sent {counted}:"
        " the answer may rest on a cut text and is not shown.",
        counted=counted,
        engine=engine,
    )


async def _next(tools: AnswerTools, taken: Seat, deltas: AsyncIterator[ChatDelta]) -> ChatDelta | None:
    """The next delta; while none comes, the lease is renewed. A cancelled wait closes the stream at once."""
    step = asyncio.ensure_future(anext(deltas, None))
    try:
        while True:
            done, _ = await asyncio.wait({step}, timeout=seats.RENEW_S)
            if done:
                return step.result()
            await to_thread.run_sync(lambda: admission.renew(tools.database, taken))
    finally:
        if not step.done():
            step.cancel()
            # A cancelled scope cancels every wait in it again: shielded, or the stream would be closed while it runs.
            with anyio.CancelScope(shield=True):
                await asyncio.wait({step})
