"""What a model writes: under a seat, with its prompt counted by the engine itself, checked before it is shown."""

import asyncio
import hashlib
import hmac
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from uuid import UUID

import anyio
from anyio import to_thread

from app.answering import marks, packing, prompts, seats
from app.answering.citations import Span, VerifiedQuote, verify
from app.answering.record import Citation
from app.answering.sources import StoredText
from app.answering.support import supported
from app.answering.tools import AnswerTools
from app.core.errors import UpstreamError
from app.engine import admission
from app.engine.client import ChatDelta
from app.identity.permissions import Principal
from app.retrieval.search import FoundChunk

_OWN_SENTENCE_TOKENS = 96
_ANSWER_TOKENS = 1024
_SHORT_SOURCES = 3
#: First guess of characters per token; the engine's own count decides.
_CHARS_PER_TOKEN = 3.2


@dataclass(slots=True)
class Written:
    """What a model wrote and what it cost; filled while it streams, so that an abandoned answer keeps its usage."""

    text: str = ""
    rejected: bool = False
    not_found: bool = False
    counted_tokens: int | None = None
    engine_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    notes: list[str] = field(default_factory=list)


def cache_salt(key: bytes, tenant_id: UUID) -> str:
    """The tenant's salt for the engine's prefix cache: hex HMAC-SHA256, 64 characters, so no cache crosses tenants."""
    return hmac.new(key, tenant_id.bytes, hashlib.sha256).hexdigest()


async def _chat(
    tools: AnswerTools,
    actor: Principal,
    answer_id: UUID,
    messages: Sequence[prompts.Message],
    max_tokens: int,
    written: Written,
) -> AsyncGenerator[str, None]:
    """Stream a chat under an interactive seat; the lease is renewed while the engine is silent (a long prefill)."""
    async with seats.seated(
        tools.database,
        tools.profile.engine_id,
        tenant_id=actor.tenant_id,
        lane="interactive",
        holder=f"answer:{answer_id}",
        wait_s=tools.wait_s,
    ) as seat:
        deltas = tools.engine.stream_chat(
            messages,
            max_tokens=max_tokens,
            temperature=0.0,
            seed=0,
            cache_salt=cache_salt(tools.salt_key, actor.tenant_id),
            request_id=str(answer_id),
        )
        async with aclosing(deltas):
            renewed = time.monotonic()
            while (delta := await _next(tools, seat, deltas)) is not None:
                if time.monotonic() - renewed > seats.RENEW_S:
                    await to_thread.run_sync(lambda: admission.renew(tools.database, seat))
                    renewed = time.monotonic()
                if delta.usage is not None:
                    written.engine_tokens = delta.usage.prompt_tokens
                    written.output_tokens = delta.usage.completion_tokens
                    written.cached_tokens = delta.usage.cached_tokens
                if delta.text:
                    yield delta.text
    if written.engine_tokens is not None and written.engine_tokens != written.counted_tokens:
        raise UpstreamError(
            "token_mismatch",
            f"The engine read {written.engine_tokens} prompt tokens, but it was sent {written.counted_tokens}:"
            " the answer may rest on a cut text and is not shown.",
            counted=written.counted_tokens,
            engine=written.engine_tokens,
        )


async def _next(tools: AnswerTools, seat: admission.Seat, deltas: AsyncIterator[ChatDelta]) -> ChatDelta | None:
    """The next delta; while none comes, the lease is renewed. A cancelled wait closes the stream at once."""
    step = asyncio.ensure_future(anext(deltas, None))
    try:
        while True:
            done, _ = await asyncio.wait({step}, timeout=seats.RENEW_S)
            if done:
                return step.result()
            await to_thread.run_sync(lambda: admission.renew(tools.database, seat))
    finally:
        if not step.done():
            step.cancel()
            # A cancelled scope cancels every wait in it again: shielded, or the stream would be closed while it runs.
            with anyio.CancelScope(shield=True):
                await asyncio.wait({step})


async def phrase(
    tools: AnswerTools,
    actor: Principal,
    answer_id: UUID,
    question: str,
    citations: Sequence[Citation],
    language: str,
    written: Written,
) -> AsyncGenerator[str, None]:
    """Let the packaged model say it in one sentence of its own; kept only when the quotes support all of it.

    `language` is that of the quotes. Yields phases for the client. The result is in `written`: `text`, or `rejected`.
    """
    best = [
        prompts.PromptSource(number=citation.ordinal, text=citation.quote, document=citation.document)
        for citation in citations[:_SHORT_SOURCES]
    ]
    messages = prompts.short(question, best)
    yield "writing"
    written.counted_tokens = await tools.engine.count_tokens(messages)
    async with aclosing(_chat(tools, actor, answer_id, messages, _OWN_SENTENCE_TOKENS, written)) as stream:
        pieces = [piece async for piece in stream]
    sentence = " ".join("".join(pieces).split())
    if not sentence or prompts.says_not_found(sentence):
        return
    if supported(sentence, [source.text for source in best], language).ok:
        written.text = sentence
    else:
        written.rejected = True


@dataclass(frozen=True, slots=True)
class _PromptPassage:
    source: packing.Source
    hit: FoundChunk


def cite(ordinal: int, hit: FoundChunk, quote: VerifiedQuote) -> Citation:
    """A citation of a passage from the outcome of its check."""
    return Citation(
        ordinal=ordinal,
        document=hit.document_name,
        document_id=hit.document_id,
        version_id=hit.version_id,
        page=quote.page,
        page_label=quote.page_label,
        quote=quote.text,
        verified=quote.verified,
        boxes=quote.boxes,
        char_start=quote.char_start,
        char_end=quote.char_end,
    )


async def _events(parser: marks.MarkParser, pieces: AsyncIterator[str]) -> AsyncGenerator[marks.Event, None]:
    """What the pieces complete, and at their end what the parser still holds."""
    async for piece in pieces:
        for event in parser.feed(piece):
            yield event
    for event in parser.close():
        yield event


async def generate(
    tools: AnswerTools,
    actor: Principal,
    answer_id: UUID,
    question: str,
    judged: Sequence[FoundChunk],
    texts: Mapping[UUID, StoredText],
    written: Written,
) -> AsyncGenerator[str | Citation, None]:
    """Let a model that can cite answer from numbered sources; yields its words and checked citations."""
    messages, passages = await _fitting(tools, question, judged, written)
    by_number = {passage.source.number: passage for passage in passages}
    levelled = {version_id: stored.levelled() for version_id, stored in texts.items()}
    parser = marks.MarkParser(by_number)
    ordinal = 0

    def checked(mark: marks.Mark) -> Citation:
        passage = by_number[mark.source]
        stored = texts.get(passage.hit.version_id)
        quote = VerifiedQuote(verified=False, text=mark.quote or "")
        if mark.quote is not None and stored is not None:
            near = Span(passage.source.start, passage.source.end)
            quote = verify(mark.quote, levelled[stored.version_id], stored.pages, near=near, offset=stored.offset)
            # Words that stand elsewhere in the document, but not in the source that the model named, prove nothing.
            if quote.verified and not (near.start <= (quote.char_start or 0) and (quote.char_end or 0) <= near.end):
                quote = VerifiedQuote(verified=False, text=mark.quote)
        return cite(ordinal, passage.hit, quote)

    async with (
        aclosing(_chat(tools, actor, answer_id, messages, _ANSWER_TOKENS, written)) as stream,
        aclosing(_events(parser, stream)) as events,
    ):
        async for event in events:
            if isinstance(event, marks.TextDelta):
                written.text += event.text
                yield event.text
            elif isinstance(event, marks.Mark):
                ordinal += 1
                written.text += f" [{ordinal}]"
                yield f" [{ordinal}]"
                yield checked(event)
            else:
                written.notes.append(f"A citation mark of the model was dropped: {event.reason.value}.")
    written.not_found = prompts.says_not_found(written.text)


async def _fitting(
    tools: AnswerTools, question: str, judged: Sequence[FoundChunk], written: Written
) -> tuple[list[prompts.Message], list[_PromptPassage]]:
    """The prompt with as many passages as the budget holds, counted by the engine's own tokenizer."""
    hits = [
        packing.Hit(
            chunk_id=str(hit.chunk_id),
            document_id=str(hit.document_id),
            version_id=str(hit.version_id),
            start=hit.char_start,
            end=hit.char_end,
            text=hit.text,
            score=hit.score,
        )
        for hit in judged
    ]
    of_chunk = {str(hit.chunk_id): hit for hit in judged}
    budget = min(tools.context_tokens, tools.profile.window_tokens - _ANSWER_TOKENS - 64)
    ratio = _CHARS_PER_TOKEN
    while True:
        packed = packing.pack(hits, budget, lambda text, per=ratio: max(1, round(len(text) / per)))  # type: ignore[misc]
        passages = [_PromptPassage(source, of_chunk[source.chunk_ids[0]]) for source in packed.sources]
        if not passages:
            raise UpstreamError("budget_small", "The prompt budget does not hold a single passage.", budget=budget)
        messages = prompts.generative(
            question,
            [
                prompts.PromptSource(
                    number=p.source.number,
                    text=p.source.text,
                    document=p.hit.document_name,
                    page_from=p.hit.page_from,
                    page_to=p.hit.page_to,
                )
                for p in passages
            ],
        )
        counted = await tools.engine.count_tokens(messages)
        if counted <= budget or len(passages) == 1:
            written.counted_tokens = counted
            if packed.left_out:
                written.notes.append(f"{len(packed.left_out)} of {len(judged)} passages did not fit into the prompt.")
            return messages, passages
        ratio *= max(0.5, min(0.95, budget / counted))
