"""Question -> proved answer: prepare (search, judge), stream (no transaction open), record (one transaction).

`stream` is an async generator: closing it, or cancelling the task that reads it, closes the connection to the model
server and records the answer as abandoned.
"""

import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import anyio
import structlog
from anyio import to_thread

from app.answering import coverage, evidence, questions, record, sources
from app.answering.citations import Levelled, Span, VerifiedQuote, place, verify
from app.answering.record import Citation, Draft
from app.answering.sources import StoredText
from app.answering.tools import AnswerTools
from app.answering.writing import Written, cite, generate, phrase
from app.core.clock import now
from app.core.errors import FullreadError, InvalidInputError
from app.core.ids import new_id
from app.identity.permissions import Principal
from app.retrieval import search
from app.retrieval.search import Found, FoundChunk
from ingestion.sparse import term_id
from ingestion.terms import terms

log = structlog.get_logger()

#: Passages that are judged as evidence; quotes shown of them at most.
JUDGED = 24
QUOTES = 6

_REFUSALS = {
    evidence.Reason.NO_PASSAGES: "No passage was found.",
    evidence.Reason.WEAK: "No sentence holds enough of what the question asks for.",
    evidence.Reason.NAME_ABSENT: "The nearest sentences are not about the name in the question.",
    evidence.Reason.NUMBER_ABSENT: "The nearest sentences do not hold the number in the question.",
    evidence.Reason.YEAR_ABSENT: "The nearest sentences are not about the year in the question.",
    evidence.Reason.WRONG_KIND: "The nearest sentences do not hold the kind of thing that is asked for.",
}

Route = Literal["auto", "retrieval", "full"]


@dataclass(frozen=True, slots=True)
class Event:
    """One step of an answer for the client: `kind` is status, citation, delta, answer or error."""

    kind: Literal["status", "citation", "delta", "answer", "error"]
    data: dict[str, Any]


Events = AsyncGenerator[Event, None]


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that was read before a word is written."""

    found: Found
    judged: tuple[FoundChunk, ...]
    judgement: evidence.Judgement
    texts: Mapping[UUID, StoredText]
    coverage: coverage.Coverage


async def stream(tools: AnswerTools, actor: Principal, collection_id: UUID, question: str, route: Route) -> Events:
    """Answer a question over one collection, as events; the last one is `answer` or `error`.

    Whatever ends it (an error, a client that leaves) is recorded with the usage known by then.
    """
    question = checked(question, route)
    draft = Draft(id=new_id(), collection_id=collection_id, question=question, route="retrieval", created_at=now())
    draft.route_reasons = [
        "You asked for retrieval." if route == "retrieval" else "Retrieval is the only route of this release."
    ]
    draft.model = tools.profile.model
    draft.form = tools.profile.answer_form
    began = time.monotonic()
    refused = False
    try:
        yield Event("status", {"phase": "searching", "answer_id": str(draft.id)})
        prepared = await to_thread.run_sync(lambda: prepare(tools, actor, collection_id, question))
        draft.timings["prepare_s"] = round(time.monotonic() - began, 4)
        draft.coverage = prepared.coverage
        yield Event("status", {"phase": "reading", "coverage": prepared.coverage.sentence})
        write = _extract if tools.profile.answer_form == "extractive" else _generate
        async with aclosing(write(tools, actor, draft, prepared)) as events:
            async for event in events:
                yield event
        draft.timings["total_s"] = round(time.monotonic() - began, 4)
    except FullreadError as error:
        # Before anything was searched the caller gets the plain error (404, 403, 503) and nothing is recorded.
        refused = draft.coverage is None and error.status < 500
        draft.state, draft.code, draft.message = "failed", error.code, error.message
        if refused:
            raise
        await _record(tools, actor, draft)
        raise
    except BaseException as error:
        left = isinstance(error, GeneratorExit | anyio.get_cancelled_exc_class())
        draft.state = "abandoned" if left else "failed"
        draft.code = "client_left" if left else "internal"
        await _record(tools, actor, draft)
        raise
    await _record(tools, actor, draft)
    yield Event("answer", shown(draft))


def checked(question: str, route: Route) -> str:
    """The question as it is asked. Raises InvalidInputError, before anything is streamed or recorded."""
    if route == "full":
        raise InvalidInputError("route_not_built", "The full pass comes with a later release. Use route 'retrieval'.")
    return search.checked_query(question)


async def _record(tools: AnswerTools, actor: Principal, draft: Draft) -> None:
    """Record in a thread, shielded: a client that leaves does not take its own record away."""
    with anyio.CancelScope(shield=True):
        await to_thread.run_sync(lambda: record.store(tools.database, actor, draft))


def shown(draft: Draft) -> dict[str, Any]:
    """The answer as JSON: the shape that scripts rely on, and more."""
    return {
        "id": str(draft.id),
        "collection_id": str(draft.collection_id),
        "question": draft.question,
        "state": draft.state,
        "text": draft.text,
        "form": draft.form,
        "route": draft.route,
        "route_reasons": draft.route_reasons,
        "citations": [citation_json(citation) for citation in draft.citations],
        "coverage": record.coverage_json(draft.coverage),
        "tokens": draft.tokens,
        "model": draft.model,
        "seconds": draft.timings.get("total_s"),
        "code": draft.code,
        "message": draft.message,
        "created_at": draft.created_at.isoformat(),
    }


def citation_json(citation: Citation) -> dict[str, Any]:
    """A citation as JSON. `page` is 1-based, boxes are PDF points with the origin top left."""
    return {
        "ordinal": citation.ordinal,
        "document": citation.document,
        "document_id": str(citation.document_id),
        "version_id": str(citation.version_id),
        "page": citation.page,
        "page_label": citation.page_label,
        "quote": citation.quote,
        "verified": citation.verified,
        "boxes": [list(box) for box in citation.boxes],
        "char_start": citation.char_start,
        "char_end": citation.char_end,
        "claim": citation.claim,
    }


def prepare(tools: AnswerTools, actor: Principal, collection_id: UUID, question: str) -> Prepared:
    """Search, read the stored pages of the best passages, judge whether they hold an answer, count coverage."""
    found = search.search(tools.search, actor, collection_id, question, limit=JUDGED)
    judged = found.hits
    stems = _stems(question, found)
    with tools.database.tenant(actor.tenant_id) as uow:
        wanted: dict[UUID, list[tuple[int, int]]] = defaultdict(list)
        for hit in judged:
            wanted[hit.version_id].append((hit.page_from, hit.page_to))
        texts = sources.stored_texts(uow, wanted)
        documents = sources.in_scope(uow, collection_id)
        counted = search.frequencies(
            uow, collection_id, [term_id(stem) for stem in stems], {hit.document_id for hit in judged}
        )
    statistics = evidence.Statistics(
        total_chunks=counted.total_chunks,
        df={stem: counted.by_term.get(term_id(stem), 0) for stem in stems},
        documents_with={stem: counted.holders.get(term_id(stem), frozenset()) for stem in stems},
    )
    read: dict[str, set[int]] = defaultdict(set)
    for hit in judged:
        read[str(hit.document_id)].update(range(hit.page_from, hit.page_to + 1))
    return Prepared(
        found=found,
        judged=judged,
        judgement=_judge(tools, actor, question, judged, statistics),
        texts=texts,
        coverage=coverage.coverage(documents, _only_searched(documents, read), passages_read=len(judged)),
    )


def _stems(question: str, found: Found) -> set[str]:
    """Stems of the question in every language that it may be held against."""
    languages = {*found.languages, *(hit.language for hit in found.hits), *questions.spoken_languages(question)}
    return {term.stem for language in languages for term in terms(question, language)}


def _judge(
    tools: AnswerTools,
    actor: Principal,
    question: str,
    judged: Sequence[FoundChunk],
    statistics: evidence.Statistics,
) -> evidence.Judgement:
    """Judge the passages, with cosines of their most promising sentences to the question."""
    passages = [
        evidence.Passage(
            chunk_id=str(hit.chunk_id),
            text=hit.text,
            language=hit.language,
            dense_score=hit.dense,
            sparse_score=hit.sparse,
            fused=hit.score,
            header=hit.header,
            document_id=str(hit.document_id),
            document=hit.document_name,
        )
        for hit in judged
    ]
    measured = evidence.measure(question, passages, statistics)
    chosen = evidence.candidates_of(measured)
    cosines = search.cosines(
        tools.search, actor.tenant_id, questions.without_names(question), [c.embed_text for c in chosen]
    )
    scores = {candidate.key: cosine for candidate, cosine in zip(chosen, cosines, strict=True)}
    return evidence.decide(evidence.with_margins(measured, scores))


def _only_searched(documents: Sequence[coverage.DocumentPages], read: Mapping[str, set[int]]) -> dict[str, set[int]]:
    """Drop what was deleted or replaced between search and count: it was read, but it is not in scope any more."""
    known = {document.document_id: document.pages_total or 0 for document in documents}
    return {
        document_id: {page for page in pages if page <= known[document_id]}
        for document_id, pages in read.items()
        if document_id in known
    }


def _not_found(draft: Draft, prepared: Prepared) -> None:
    draft.state, draft.code = "not_found", "not_found"
    draft.text = coverage.not_found(prepared.coverage)
    draft.citations.clear()


async def _extract(tools: AnswerTools, actor: Principal, draft: Draft, prepared: Prepared) -> Events:
    """Verified sentences, best first; the model's own sentence only when the quotes support it."""
    if not prepared.judgement.answerable:
        draft.route_reasons.extend(_REFUSALS[reason] for reason in prepared.judgement.reasons if reason in _REFUSALS)
        _not_found(draft, prepared)
        return
    chunks = {str(hit.chunk_id): hit for hit in prepared.judged}
    levelled = {version_id: stored.levelled() for version_id, stored in prepared.texts.items()}
    seen: set[tuple[UUID, int]] = set()
    for sentence in prepared.judgement.sentences:
        if len(draft.citations) == QUOTES:
            break
        hit = chunks[sentence.chunk_id]
        start, end = hit.char_start + sentence.start, hit.char_start + sentence.end
        if (hit.version_id, start) in seen or hit.version_id not in prepared.texts:
            continue
        seen.add((hit.version_id, start))
        quote = _check(hit, levelled[hit.version_id], prepared.texts[hit.version_id], start, end)
        if not quote.verified:
            continue  # the page changed under us: what can not be proved is not shown as evidence
        citation = cite(len(draft.citations) + 1, hit, quote)
        draft.citations.append(citation)
        yield Event("citation", citation_json(citation))
    if not draft.citations:
        _not_found(draft, prepared)
        return
    written = Written()
    if len({citation.document_id for citation in draft.citations}) == 1:
        language = chunks[prepared.judgement.sentences[0].chunk_id].language
        try:
            async with aclosing(
                phrase(tools, actor, draft.id, draft.question, draft.citations, language, written)
            ) as steps:
                async for step in steps:
                    yield Event("status", {"phase": step})
        except FullreadError as error:
            if error.code == "token_mismatch":
                raise
            draft.route_reasons.append(f"The model's own sentence is left out: {error.message}")
        finally:
            _take(draft, written)
    else:
        # One sentence over several documents would mix what each of them says: the quotes speak for themselves.
        draft.route_reasons.append("The quotes come from several documents, so no sentence is put before them.")
    quotes = "\n".join(f"“{' '.join(c.quote.split())}” [{c.ordinal}]" for c in draft.citations)
    draft.text = f"{written.text}\n\n{quotes}" if written.text else quotes
    if written.rejected:
        draft.route_reasons.append("The model's own sentence is left out: the quotes do not support all of it.")
    draft.state = "succeeded"
    yield Event("delta", {"text": draft.text})


def _check(hit: FoundChunk, levelled: Levelled, stored: StoredText, start: int, end: int) -> VerifiedQuote:
    """The sentence as found in the stored pages: by its span, and found again by its words."""
    wording = hit.text[start - hit.char_start : end - hit.char_start]
    placed = place(stored.text, stored.pages, start, end, offset=stored.offset)
    if placed.verified and placed.text == wording:
        return placed
    return verify(wording, levelled, stored.pages, near=Span(hit.char_start, hit.char_end), offset=stored.offset)


async def _generate(tools: AnswerTools, actor: Principal, draft: Draft, prepared: Prepared) -> Events:
    """A model that can cite writes; every quote it gives is checked against the stored pages as it arrives."""
    if not prepared.judged:
        _not_found(draft, prepared)
        return
    written = Written()
    try:
        async with aclosing(
            generate(tools, actor, draft.id, draft.question, prepared.judged, prepared.texts, written)
        ) as steps:
            async for step in steps:
                if isinstance(step, str):
                    yield Event("delta", {"text": step})
                else:
                    draft.citations.append(step)
                    yield Event("citation", citation_json(step))
    finally:
        _take(draft, written)
    draft.route_reasons.extend(written.notes)
    if written.not_found:
        _not_found(draft, prepared)
        return
    draft.text = written.text
    draft.state = "succeeded"


def _take(draft: Draft, written: Written) -> None:
    draft.counted_tokens = written.counted_tokens
    draft.engine_tokens = written.engine_tokens
    draft.output_tokens = written.output_tokens
    draft.cached_tokens = written.cached_tokens
