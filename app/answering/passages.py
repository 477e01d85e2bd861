"""The retrieval route: search, judge the best passages, answer from them, and count what they cover."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from uuid import UUID

from anyio import to_thread

from app.answering import chat, coverage, evidence, extracting, judging
from app.answering.chat import Line
from app.answering.corpus import Scope
from app.answering.events import Event, Events, status
from app.answering.record import Draft, citation_json
from app.answering.sources import StoredText
from app.answering.tools import AnswerTools
from app.answering.writing import Written, generate, phrase
from app.core.errors import FullreadError
from app.retrieval import search
from app.retrieval.search import FoundChunk

#: Passages that are judged as evidence; quotes shown of them at most.
JUDGED = 24
QUOTES = 6


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that was read before a word is written."""

    judged: tuple[FoundChunk, ...]
    judgement: evidence.Judgement
    texts: Mapping[UUID, StoredText]


async def answer(tools: AnswerTools, line: Line, draft: Draft, scope: Scope) -> Events:
    """Answer from the best passages; fills the draft. Raises what a search and a chat raise."""
    prepared = await to_thread.run_sync(lambda: prepare(tools, line, draft))
    draft.coverage = covered(scope, prepared.judged)
    yield status("reading", coverage=draft.coverage.sentence)
    write = _extract if tools.profile.answer_form == "extractive" else _generate
    async with aclosing(write(tools, line, draft, scope, prepared)) as steps:
        async for step in steps:
            yield step


def prepare(tools: AnswerTools, line: Line, draft: Draft) -> Prepared:
    """Search, read the stored pages of the best passages, judge whether they hold an answer."""
    actor, selected = line.actor, draft.document_ids or None
    found = search.search(tools.search, actor, draft.collection_id, draft.question, limit=JUDGED, document_ids=selected)
    with tools.database.tenant(actor.tenant_id) as uow:
        texts = extracting.stored(uow, found.hits)
        known = judging.statistics(uow, draft.collection_id, draft.question, found.hits, found.languages)
    return Prepared(found.hits, judging.judge(tools, actor, draft.question, found.hits, known), texts)


def covered(scope: Scope, passages: Sequence[FoundChunk]) -> coverage.Coverage:
    """Coverage of an answer that rests on these passages."""
    known = {d.document_id: d.pages_total or 0 for d in scope.documents if d.searchable}
    if scope.selected is not None:
        known = {document_id: pages for document_id, pages in known.items() if document_id in scope.selected}
    return coverage.coverage(
        scope.documents, _pages(passages, known), passages_read=len(passages), selected=scope.selected
    )


def _pages(passages: Iterable[FoundChunk], known: Mapping[str, int]) -> dict[str, set[int]]:
    """Pages by document; without what was deleted, replaced or added between the scope and the search."""
    read: dict[str, set[int]] = defaultdict(set)
    for hit in passages:
        read[str(hit.document_id)].update(range(hit.page_from, hit.page_to + 1))
    return {
        document_id: {page for page in pages if page <= known[document_id]}
        for document_id, pages in read.items()
        if document_id in known
    }


async def _extract(tools: AnswerTools, line: Line, draft: Draft, _scope: Scope, prepared: Prepared) -> Events:
    """Verified sentences, best first; the model's own sentence only when the quotes support it."""
    if not prepared.judgement.answerable:
        draft.route_reasons.extend(judging.refusals(prepared.judgement))
        draft.state = "not_found"
        return
    by_id = {str(hit.chunk_id): hit for hit in prepared.judged}
    # What can not be proved any more (the page changed under us) is not shown as evidence.
    draft.citations = extracting.quoted(prepared.judgement.sentences, by_id, prepared.texts, most=QUOTES)
    for citation in draft.citations:
        yield Event("citation", citation_json(citation))
    if not draft.citations:
        draft.state = "not_found"
        return
    written = Written()
    if len({citation.document_id for citation in draft.citations}) == 1:
        language = by_id[prepared.judgement.sentences[0].chunk_id].language
        try:
            yield status("writing")
            async with chat.seat(tools, line) as taken:
                await phrase(tools, line, taken, draft.question, draft.citations, language, written)
        except FullreadError as error:
            if error.code == "token_mismatch":
                raise
            draft.route_reasons.append(f"The model's own sentence is left out: {error.message}")
    else:
        # One sentence over several documents would mix what each of them says: the quotes speak for themselves.
        draft.route_reasons.append("The quotes come from several documents, so no sentence is put before them.")
    draft.text = extracting.as_text(draft.citations, [written.text] if written.text else [])
    if written.rejected:
        draft.route_reasons.append("The model's own sentence is left out: the quotes do not support all of it.")
    draft.state = "succeeded"
    yield Event("delta", {"text": draft.text})


async def _generate(tools: AnswerTools, line: Line, draft: Draft, scope: Scope, prepared: Prepared) -> Events:
    """A model that can cite writes; every quote it gives is checked against the stored pages as it arrives."""
    if not prepared.judged:
        draft.state = "not_found"
        return
    written = Written()
    async with (
        chat.seat(tools, line) as taken,
        aclosing(
            generate(
                tools,
                line,
                taken,
                draft.question,
                prepared.judged,
                prepared.texts,
                written,
                budget=tools.context_tokens,
            )
        ) as steps,
    ):
        async for step in steps:
            if isinstance(step, str):
                yield Event("delta", {"text": step})
            else:
                draft.citations.append(step)
                yield Event("citation", citation_json(step))
    draft.route_reasons.extend(written.notes)
    if written.read is not None:
        draft.coverage = covered(scope, written.read)
    if written.not_found:
        draft.state = "not_found"
        return
    draft.text = written.text
    draft.state = "succeeded"
