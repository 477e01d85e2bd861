"""The full pass: every page of a snapshot goes to the engine, at once or in disclosed sections with a merge.

The extractive form may replace the engine's wording by the documents' own, never the reading.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from uuid import UUID

from anyio import to_thread

from app.answering import chat, corpus_prompts, coverage, extracting, judging, marks, prompts, sections, sources
from app.answering.chat import Line
from app.answering.citations import VerifiedQuote, verify
from app.answering.corpus import Scope
from app.answering.events import Event, Events, status
from app.answering.evidence import Judgement
from app.answering.judging import DocumentsJudged
from app.answering.record import Citation, Draft, citation_json
from app.answering.sections import Plan, Section
from app.answering.support import supported
from app.answering.tools import AnswerTools
from app.answering.writing import ANSWER_TOKENS, Written, generate, parsed
from app.core.db import UnitOfWork
from app.core.errors import UnavailableError
from app.core.ids import derived_id
from app.documents.snapshots import SnapshotDocument, SnapshotPage
from app.engine.admission import Seat
from app.identity.permissions import Principal
from app.retrieval import search
from app.retrieval.search import FoundChunk
from app.retrieval.subjects import subject
from app.retrieval.tasks import AskedTask, Task
from ingestion.sparse import term_id

_SHORT_TOKENS = 32
#: Quotes that an extractive answer shows: of one document, and in all.
_QUOTES_PER_DOCUMENT = 2
_QUOTES = 16
#: Passages in which quotes are looked for: about 5 ms each.
_MOST_PASSAGES = 600


class NoSeatError(UnavailableError):
    """No seat at the engine within the wait, before anything was read: the question may become an analysis job."""


@dataclass(slots=True)
class _Part:
    """What the engine said of one section."""

    section: Section
    written: Written = field(default_factory=Written)
    citations: list[Citation] = field(default_factory=list)


def shape(tools: AnswerTools) -> sections.Shape:
    """A small engine reads in many sections anyway: kept to one document each, they serve every kind of question."""
    return "documents" if tools.profile.answer_form == "extractive" else "whole"


def covered(scope: Scope, plan: Plan) -> coverage.Coverage:
    """Coverage of a full pass over a plan."""
    read: dict[str, set[int]] = {}
    over: dict[str, int] = {}
    for document in plan.snapshot.documents:
        pages = {page.number for page in document.pages if page.source <= plan.last_source}
        read[str(document.document_id)] = pages
        if left := len(document.pages) - len(pages):
            over[str(document.document_id)] = left
    return coverage.coverage(
        scope.documents,
        read,
        passages_read=0,
        sections=len(plan.sections),
        over_budget=over,
        selected=scope.selected,
    )


async def seat(tools: AnswerTools, line: Line, held: AsyncExitStack) -> Seat:
    """One seat for the whole pass. Raises NoSeatError when none comes free in time."""
    try:
        return await held.enter_async_context(chat.seat(tools, line))
    except UnavailableError as error:
        if error.code == "engine_busy":
            raise NoSeatError(error.code, error.message, **error.facts) from error
        raise


async def answer(tools: AnswerTools, line: Line, draft: Draft, plan: Plan, asked: AskedTask) -> Events:
    """Read everything and answer; fills the draft.

    Raises NoSeatError, UpstreamError, UnavailableError, ConflictError (the documents changed meanwhile).
    """
    async with AsyncExitStack() as held:
        taken = await seat(tools, line, held)
        write = _extract if tools.profile.answer_form == "extractive" else _generate
        async with aclosing(write(tools, line, taken, draft, plan, asked)) as steps:
            async for step in steps:
                yield step


def reading(plan: Plan, at: int) -> Event:
    """The status of a section that is being read (`at` from 0)."""
    first = plan.sections[at].pieces[0]
    name = plan.snapshot.documents[first.document - 1].name
    return status("reading", section=at + 1, sections=len(plan.sections), document=name)


# --- a model that can cite ------------------------------------------------------------------------------------------


async def _generate(tools: AnswerTools, line: Line, taken: Seat, draft: Draft, plan: Plan, _asked: AskedTask) -> Events:
    number = len(plan.sections)
    parts: list[_Part] = []
    for at, section in enumerate(plan.sections):
        yield reading(plan, at)
        part = _Part(section)
        parts.append(part)
        task = await sections.counted_task(tools, plan, corpus_prompts.answer_task(draft.question, at + 1, number))
        purpose = "answer" if number == 1 else f"section {at + 1} of {number}"
        first = 1 + sum(len(other.citations) for other in parts)
        async with aclosing(_marked(tools, line, taken, plan, part, task, purpose, first)) as steps:
            async for step in steps:
                if number > 1:
                    continue
                if isinstance(step, str):
                    yield Event("delta", {"text": step})
                else:
                    draft.citations.append(step)
                    yield Event("citation", citation_json(step))
    for part in parts:
        draft.route_reasons.extend(part.written.notes)
    found = [part for part in parts if not part.written.not_found and part.written.text.strip()]
    if not found:
        draft.state = "not_found"
        return
    if number == 1:
        draft.text, draft.state = parts[0].written.text, "succeeded"
        return
    async with aclosing(_merged(tools, line, taken, draft, found)) as events:
        async for event in events:
            yield event
    draft.state = "succeeded"


async def _marked(
    tools: AnswerTools, line: Line, taken: Seat, plan: Plan, part: _Part, task: sections.Task, purpose: str, first: int
) -> AsyncGenerator[str | Citation, None]:
    """An answer with marks over one section; each quote is looked up on the page that its mark names."""
    messages, counted = await sections.prompt(tools, line.actor, plan, part.section, task)
    by_source = pages_of(plan, part.section)
    parser = marks.MarkParser(by_source)
    async with (
        aclosing(
            chat.stream(tools, line, taken, messages, purpose=purpose, counted=counted, max_tokens=ANSWER_TOKENS)
        ) as stream,
        aclosing(parsed(parser, stream)) as events,
    ):
        async for event in events:
            if isinstance(event, marks.TextDelta):
                part.written.text += event.text
                yield event.text
            elif isinstance(event, marks.Mark):
                document, page = by_source[event.source]
                ordinal = first + len(part.citations)
                citation = await on_pages(tools, line.actor, document, [page], event.quote or "", ordinal)
                part.citations.append(citation)
                part.written.text += f" [{ordinal}]"
                yield f" [{ordinal}]"
                yield citation
            else:
                part.written.notes.append(f"A citation mark of the model was dropped: {event.reason.value}.")
    part.written.not_found = prompts.says_not_found(part.written.text)


async def _merged(tools: AnswerTools, line: Line, taken: Seat, draft: Draft, found: list[_Part]) -> Events:
    """One answer from what the sections held: a merge over their verified quotes, else their answers as they are.

    Quotes that were not found on their page are never merged: they are shown as unverified behind the answer.
    """
    verified = [citation for part in found for citation in part.citations if citation.verified]
    unproved = [citation for part in found for citation in part.citations if not citation.verified]
    written = Written()
    merged: list[Citation] = []
    if len(found) > 1 and verified:
        yield status("merging", findings=len(verified))
        hits = [_as_passage(citation, at) for at, citation in enumerate(verified)]

        def load() -> dict[UUID, sources.StoredText]:
            with tools.database.tenant(line.actor.tenant_id) as uow:
                return extracting.stored(uow, hits)

        texts = await to_thread.run_sync(load)
        async with aclosing(
            generate(
                tools,
                line,
                taken,
                draft.question,
                hits,
                texts,
                written,
                budget=tools.profile.window_tokens,
                purpose="merge",
            )
        ) as steps:
            merged = [step async for step in steps if not isinstance(step, str)]
    draft.route_reasons.extend(written.notes)
    if merged and not written.not_found:
        draft.text, draft.citations = written.text, merged
        left_out = [
            c for c, hit in zip(verified, hits, strict=True) if written.read is not None and hit not in written.read
        ]
        extra = [replace(c, ordinal=len(merged) + at) for at, c in enumerate((*left_out, *unproved), start=1)]
        if left_out:
            draft.text += "\n\n" + "\n".join(f"“{c.quote}” [{c.ordinal}]" for c in extra[: len(left_out)])
        draft.citations = [*merged, *extra]
    else:
        if len(found) > 1:
            draft.route_reasons.append("The sections' answers stand one after the other: they could not be merged.")
        draft.text = "\n\n".join(part.written.text.strip() for part in found)
        draft.citations = [citation for part in found for citation in part.citations]
    if unproved:
        draft.route_reasons.append(f"{len(unproved)} quotes were not found on the pages named: they are marked.")
    for citation in draft.citations:
        yield Event("citation", citation_json(citation))
    yield Event("delta", {"text": draft.text})


def _as_passage(citation: Citation, at: int) -> FoundChunk:
    """A verified quote as a passage of a prompt; earlier ones score higher, so that none is dropped by chance."""
    start, end = citation.char_start or 0, citation.char_end or 0
    return FoundChunk(
        chunk_id=derived_id("finding", citation.version_id, start, end, at),
        document_id=citation.document_id,
        version_id=citation.version_id,
        document_name=citation.document,
        text=citation.quote,
        header="",
        language="",
        char_start=start,
        char_end=end,
        page_from=citation.page or 1,
        page_to=(citation.page or 1) + citation.quote.count("\f"),
        score=1.0 / (1 + at),
        dense=None,
        sparse=None,
    )


def pages_of(plan: Plan, section: Section) -> dict[int, tuple[SnapshotDocument, SnapshotPage]]:
    """The pages of a section by the number in their marker line."""
    found = {}
    for piece in section.pieces:
        document = plan.snapshot.documents[piece.document - 1]
        found[piece.source] = document, document.page(piece.source)
    return found


async def on_pages(
    tools: AnswerTools,
    actor: Principal,
    document: SnapshotDocument,
    pages: Sequence[SnapshotPage],
    quote: str,
    ordinal: int,
) -> Citation:
    """A model's quote looked up on pages of a document; it must begin on one of them and may run on to the next.

    An unverified quote keeps the page that the model named; of several pages none was named.
    """

    def look() -> VerifiedQuote:
        with tools.database.tenant(actor.tenant_id) as uow:
            wanted = [(pages[0].number, pages[-1].number + 1)]
            stored = sources.stored_texts(uow, {document.version_id: wanted})
        found = stored.get(document.version_id)
        if found is None or not quote:
            return VerifiedQuote(verified=False, text=quote)
        checked = verify(quote, found.text, found.pages, offset=found.offset)
        start = checked.char_start or 0
        if checked.verified and not any(page.start <= start < max(page.end, page.start + 1) for page in pages):
            return VerifiedQuote(verified=False, text=quote)
        return checked

    named = pages[0] if len(pages) == 1 else None
    checked = await to_thread.run_sync(look)
    return Citation(
        ordinal=ordinal,
        document=document.name,
        document_id=document.document_id,
        version_id=document.version_id,
        page=checked.page if checked.verified or named is None else named.number,
        page_label=checked.page_label if checked.verified or named is None else named.label,
        quote=checked.text,
        verified=checked.verified,
        boxes=checked.boxes,
        char_start=checked.char_start,
        char_end=checked.char_end,
    )


# --- the documents' own words ---------------------------------------------------------------------------------------


async def _extract(tools: AnswerTools, line: Line, taken: Seat, draft: Draft, plan: Plan, asked: AskedTask) -> Events:
    said: list[tuple[Section, str]] = []
    short = await sections.counted_task(tools, plan, corpus_prompts.short_task(draft.question))
    number = len(plan.sections)
    for at, section in enumerate(plan.sections):
        yield reading(plan, at)
        messages, counted = await sections.prompt(tools, line.actor, plan, section, short)
        sentence = await chat.reply(
            tools,
            line,
            taken,
            messages,
            purpose=f"section {at + 1} of {number}",
            counted=counted,
            max_tokens=_SHORT_TOKENS,
            stop=("\n",),
        )
        said.append((section, " ".join(sentence.split())))
    yield status("checking")
    if asked.task is Task.SUMMARISE:
        citations = await to_thread.run_sync(lambda: _openings(tools, line.actor, plan))
        draft.route_reasons.append(
            "The packaged model does not write summaries: these are the sentences that the documents open with."
        )
    else:
        citations, refused = await to_thread.run_sync(lambda: _evidence(tools, line.actor, draft, plan, asked))
        draft.route_reasons.extend(refused)
    if not citations:
        draft.state = "not_found"
        return
    draft.citations.extend(citations)
    for citation in citations:
        yield Event("citation", citation_json(citation))
    draft.text = extracting.as_text(citations, _own_words(plan, said, citations))
    draft.state = "succeeded"
    yield Event("delta", {"text": draft.text})


def _evidence(
    tools: AnswerTools, actor: Principal, draft: Draft, plan: Plan, asked: AskedTask
) -> tuple[list[Citation], list[str]]:
    """The best sentences of each document, the documents with the strongest evidence first."""
    about = subject(draft.question, asked)
    with tools.database.tenant(actor.tenant_id) as uow:
        hits, total = passages(uow, about, plan)
        known = judging.statistics(uow, draft.collection_id, about, hits)
    notes = searched_note(len(hits), total)
    several = asked.task is not Task.LOCAL
    judged = judging.judge_documents(tools, actor, about, hits, known, words_alone=several)
    if not judged.answerable:
        return [], [*notes, *judging.refusals(judged.overall)]
    by_id = {str(hit.chunk_id): hit for hit in hits}
    chosen = [sentence for own in _strongest(judged) for sentence in own.sentences[:_QUOTES_PER_DOCUMENT]]
    with tools.database.tenant(actor.tenant_id) as uow:
        texts = extracting.stored(uow, [by_id[sentence.chunk_id] for sentence in chosen])
    return extracting.quoted(chosen, by_id, texts, most=_QUOTES), notes


def _strongest(judged: DocumentsJudged) -> list[Judgement]:
    answering = [own for own in judged.by_document.values() if own.answerable]
    return sorted(answering, key=lambda own: (-own.sentences[0].score, own.sentences[0].chunk_id))


def passages(uow: UnitOfWork, question: str, plan: Plan) -> tuple[list[FoundChunk], int]:
    """Passages of what was read in which evidence is looked for, and how many there are in all."""
    languages = search.languages(uow, plan.snapshot.collection_id)
    stems = [term_id(stem) for stem in judging.stems(question, languages)]
    ends = plan.last_pages
    hits, total = search.holding(uow, list(ends), stems, most=_MOST_PASSAGES)
    return [hit for hit in hits if hit.page_to <= ends[hit.version_id]], total


def searched_note(looked_at: int, total: int) -> list[str]:
    """Says so when quotes were not looked for in every passage."""
    if looked_at >= total:
        return []
    return [
        f"Quotes were looked for in the {looked_at:,} of {total:,} passages that share most words with the question."
    ]


def _openings(tools: AnswerTools, actor: Principal, plan: Plan) -> list[Citation]:
    with tools.database.tenant(actor.tenant_id) as uow:
        firsts = search.first_passages(uow, list(plan.last_pages))
        texts = extracting.stored(uow, firsts)
    by_id = {str(hit.chunk_id): hit for hit in firsts}
    return extracting.quoted(extracting.openings(firsts), by_id, texts, most=_QUOTES)


def _own_words(plan: Plan, said: list[tuple[Section, str]], citations: list[Citation]) -> list[str]:
    """Sentences of the engine that the quotes of their document support, one for each document that is quoted."""
    kept: dict[UUID, str] = {}
    for section, sentence in said:
        document = plan.snapshot.documents[section.pieces[0].document - 1]
        quotes = [citation.quote for citation in citations if citation.document_id == document.document_id]
        if document.document_id in kept or not quotes or not sentence or prompts.says_not_found(sentence):
            continue
        # Cut off by the limit of tokens, it may say the opposite of what it was going to say; a question says nothing.
        if sentence[-1] in ".!" and supported(sentence, quotes).ok:
            several = len({citation.document_id for citation in citations}) > 1
            kept[document.document_id] = f"{document.name}: {sentence}" if several else sentence
    return list(kept.values())
