"""What a model writes from a few passages, checked before it is shown: its own sentence, or an answer with marks."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from uuid import UUID

from app.answering import chat, marks, packing, prompts
from app.answering.chat import Line
from app.answering.citations import Span, VerifiedQuote, verify
from app.answering.extracting import cite
from app.answering.record import Citation
from app.answering.sources import StoredText
from app.answering.support import supported
from app.answering.tools import AnswerTools
from app.core.errors import UpstreamError
from app.engine.admission import Seat
from app.retrieval.search import FoundChunk

_OWN_SENTENCE_TOKENS = 96
ANSWER_TOKENS = 1024
_SHORT_SOURCES = 3
#: First guess of characters per token; the engine's own count decides.
_CHARS_PER_TOKEN = 3.2


@dataclass(slots=True)
class Written:
    """What a model wrote; filled while it streams. `read` are the passages that were in the prompt."""

    text: str = ""
    rejected: bool = False
    not_found: bool = False
    notes: list[str] = field(default_factory=list)
    read: tuple[FoundChunk, ...] | None = None


async def phrase(
    tools: AnswerTools,
    line: Line,
    taken: Seat,
    question: str,
    citations: Sequence[Citation],
    language: str,
    written: Written,
) -> None:
    """Let the packaged model say it in one sentence of its own; kept only when the quotes support all of it.

    `language` is that of the quotes. The result is in `written`: `text`, or `rejected`.
    """
    best = [
        prompts.PromptSource(number=citation.ordinal, text=citation.quote, document=citation.document)
        for citation in citations[:_SHORT_SOURCES]
    ]
    messages = prompts.short(question, best)
    counted = await tools.engine.count_tokens(messages)
    said = await chat.reply(
        tools, line, taken, messages, purpose="own sentence", counted=counted, max_tokens=_OWN_SENTENCE_TOKENS
    )
    sentence = " ".join(said.split())
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


async def parsed(parser: marks.MarkParser, pieces: AsyncIterator[str]) -> AsyncGenerator[marks.Event, None]:
    """What the pieces complete, and at their end what the parser still holds."""
    async for piece in pieces:
        for event in parser.feed(piece):
            yield event
    for event in parser.close():
        yield event


async def generate(
    tools: AnswerTools,
    line: Line,
    taken: Seat,
    question: str,
    judged: Sequence[FoundChunk],
    texts: Mapping[UUID, StoredText],
    written: Written,
    *,
    budget: int,
    purpose: str = "answer",
) -> AsyncGenerator[str | Citation, None]:
    """Let a model that can cite answer from numbered sources; yields its words and checked citations.

    `budget`: prompt tokens at most.
    """
    messages, passages, counted = await _fitting(tools, question, judged, written, budget)
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
        aclosing(
            chat.stream(tools, line, taken, messages, purpose=purpose, counted=counted, max_tokens=ANSWER_TOKENS)
        ) as stream,
        aclosing(parsed(parser, stream)) as events,
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
    tools: AnswerTools, question: str, judged: Sequence[FoundChunk], written: Written, budget: int
) -> tuple[list[prompts.Message], list[_PromptPassage], int]:
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
    budget = min(budget, tools.profile.window_tokens - min(ANSWER_TOKENS, tools.profile.window_tokens // 4) - 64)
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
            taken = {chunk_id for p in passages for chunk_id in p.source.chunk_ids}
            written.read = tuple(hit for hit in judged if str(hit.chunk_id) in taken)
            if packed.left_out:
                written.notes.append(f"{len(packed.left_out)} of {len(judged)} passages did not fit into the prompt.")
            return messages, passages, counted
        ratio *= max(0.5, min(0.95, budget / counted))
