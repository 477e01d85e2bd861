"""Count and list questions: each document is asked for itself; typed verdicts, proved by quotes, counted in code.

No model counts reliably over many documents at once, and neither does retrieval: the code does.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from uuid import UUID

from anyio import to_thread

from app.answering import chat, corpus_prompts, extracting, fullpass, judging, questions, sections, verdicts
from app.answering.chat import Line
from app.answering.events import Event, Events, status
from app.answering.evidence import EvidenceSentence, Reason
from app.answering.record import Citation, Draft, citation_json, verdict_json
from app.answering.sections import Plan, Section
from app.answering.tools import AnswerTools
from app.answering.verdicts import DocumentVerdict, Verdict
from app.documents.snapshots import SnapshotDocument
from app.engine.admission import Seat
from app.identity.permissions import Principal
from app.retrieval.search import FoundChunk
from app.retrieval.tasks import AskedTask

_VERDICT_TOKENS = 256
_WORD_TOKENS = 4
#: Quotes that prove one verdict of the extractive form.
_QUOTES = 2
_UNREADABLE = "The model's verdict could not be read: look yourself."


@dataclass(frozen=True, slots=True)
class _Part:
    """The verdict of one section of a document, with the quote as it was checked."""

    verdict: Verdict
    citation: Citation | None
    note: str = ""

    @property
    def proved(self) -> bool:
        return self.verdict is Verdict.SILENT or (self.citation is not None and self.citation.verified)


async def answer(tools: AnswerTools, line: Line, draft: Draft, plan: Plan, asked: AskedTask) -> Events:
    """Ask every document of the plan; fills the draft. Raises NoSeatError and what a chat raises."""
    async with AsyncExitStack() as held:
        taken = await fullpass.seat(tools, line, held)
        decide = _by_evidence if tools.profile.answer_form == "extractive" else _by_model
        async with aclosing(decide(tools, line, taken, draft, plan, asked)) as steps:
            async for step in steps:
                yield step
    draft.text = _text(draft, asked)
    draft.state = "succeeded"
    yield Event("delta", {"text": draft.text})


def _documents(plan: Plan) -> list[tuple[SnapshotDocument, tuple[Section, ...]]]:
    """The documents that are read, with their sections."""
    return [(document, own) for document in plan.snapshot.documents if (own := plan.of_document(document.ordinal))]


# --- a model that gives typed verdicts -------------------------------------------------------------------------------


async def _by_model(tools: AnswerTools, line: Line, taken: Seat, draft: Draft, plan: Plan, asked: AskedTask) -> Events:
    task = await sections.counted_task(tools, plan, corpus_prompts.verdict_task(asked.about))
    done = 0
    for document, own in _documents(plan):
        parts: list[_Part] = []
        for section in own:
            yield fullpass.reading(plan, done)
            done += 1
            parts.append(await _section_verdict(tools, line, taken, plan, document, section, task))
        verdict, cited = _joined(document, parts, len(draft.citations) + 1)
        for event in _told(draft, verdict, cited):
            yield event


def _told(draft: Draft, verdict: DocumentVerdict, cited: Sequence[Citation]) -> list[Event]:
    """Put a document's verdict and its quotes into the draft; the events that say so."""
    draft.verdicts.append(verdict)
    draft.citations.extend(cited)
    return [*(Event("citation", citation_json(c)) for c in cited), Event("verdict", verdict_json(verdict))]


async def _section_verdict(
    tools: AnswerTools,
    line: Line,
    taken: Seat,
    plan: Plan,
    document: SnapshotDocument,
    section: Section,
    task: sections.Task,
) -> _Part:
    messages, counted = await sections.prompt(tools, line.actor, plan, section, task)
    said = await chat.reply(
        tools,
        line,
        taken,
        messages,
        purpose=f"verdict {document.name}",
        counted=counted,
        max_tokens=_VERDICT_TOKENS,
        response_format=verdicts.RESPONSE_FORMAT,
    )
    reply = verdicts.parse_reply(said)
    if reply is None:
        # Nothing that could hide a yes: it is listed as unproved, and a person looks.
        return _Part(Verdict.YES, None, _UNREADABLE)
    verdict, quote = reply
    if verdict is Verdict.SILENT:
        return _Part(verdict, None)
    if not quote.strip():
        return _Part(verdict, None, "The model gave no quote for its verdict.")
    pages = [page for _, page in fullpass.pages_of(plan, section).values()]
    citation = await fullpass.on_pages(tools, line.actor, document, pages, quote, 1)
    note = "" if citation.verified else "The model's quote does not stand in the document."
    return _Part(verdict, citation, note)


def _joined(document: SnapshotDocument, parts: Sequence[_Part], ordinal: int) -> tuple[DocumentVerdict, list[Citation]]:
    """One verdict of all sections of a document, with the quotes of those that gave it."""
    verdict = verdicts.combine([(part.verdict, part.proved) for part in parts])
    own = [part for part in parts if part.verdict is verdict]
    proved = any(part.proved for part in own)
    shown = [part for part in own if part.citation is not None and (part.proved or not proved)]
    cited = [replace(part.citation, ordinal=ordinal + at) for at, part in enumerate(shown) if part.citation is not None]
    notes = dict.fromkeys(part.note for part in own if part.note and not proved)
    return _verdict(document, verdict, cited, proved=proved, note=" ".join(notes)), cited


def _verdict(
    document: SnapshotDocument, verdict: Verdict, cited: Sequence[Citation], *, proved: bool, note: str = ""
) -> DocumentVerdict:
    return DocumentVerdict(
        document_id=str(document.document_id),
        document=document.name,
        version_id=str(document.version_id),
        verdict=verdict,
        proved=proved,
        ordinals=tuple(citation.ordinal for citation in cited),
        note=note,
    )


# --- verdicts by the documents' own sentences ------------------------------------------------------------------------


async def _by_evidence(
    tools: AnswerTools, line: Line, taken: Seat, draft: Draft, plan: Plan, asked: AskedTask
) -> Events:
    """The engine reads every section and says yes or no; its word is reported beside what the sentences prove."""
    task = await sections.counted_task(tools, plan, corpus_prompts.yes_or_no_task(asked.about))
    said: dict[UUID, bool] = {}
    done = 0
    for document, own in _documents(plan):
        for section in own:
            yield fullpass.reading(plan, done)
            done += 1
            messages, counted = await sections.prompt(tools, line.actor, plan, section, task)
            word = await chat.reply(
                tools,
                line,
                taken,
                messages,
                purpose=f"verdict {document.name}",
                counted=counted,
                max_tokens=_WORD_TOKENS,
                stop=("\n", ".", ","),
            )
            yes = word.strip().casefold().startswith("yes")
            said[document.document_id] = said.get(document.document_id, False) or yes
    yield status("checking")
    proofs, notes = await to_thread.run_sync(lambda: _proofs(tools, line.actor, draft, plan, asked))
    draft.route_reasons.extend(notes)
    alone = 0
    for document, _ in _documents(plan):
        verdict, cited = proofs.get(document.document_id, (Verdict.SILENT, []))
        cited = [replace(c, ordinal=len(draft.citations) + at) for at, c in enumerate(cited, start=1)]
        alone += said[document.document_id] is not (verdict is Verdict.YES)
        for event in _told(draft, _verdict(document, verdict, cited, proved=True), cited):
            yield event
    if alone:
        draft.route_reasons.append(
            f"The packaged model alone would have said otherwise of {alone} of {len(said)} documents: its word is not"
            " relied upon, the quotes decide."
        )


def _proofs(
    tools: AnswerTools, actor: Principal, draft: Draft, plan: Plan, asked: AskedTask
) -> tuple[dict[UUID, tuple[Verdict, list[Citation]]], list[str]]:
    """Documents with a sentence of evidence: yes, or no when the sentence denies what is asked."""
    with tools.database.tenant(actor.tenant_id) as uow:
        hits, total = fullpass.passages(uow, asked.about, plan)
        known = judging.statistics(uow, draft.collection_id, asked.about, hits)
    judged = judging.judge_documents(tools, actor, asked.about, hits, known, words_alone=True)
    by_id = {str(hit.chunk_id): hit for hit in hits}
    found: dict[UUID, tuple[Verdict, list[Citation]]] = {}
    for document_id, own in judged.by_document.items():
        # Across languages only the embeddings speak: near enough to look at, not to count.
        sentences = [s for s in own.sentences if Reason.CROSS_LANGUAGE not in s.reasons]
        if not sentences:
            continue
        verdict = Verdict.NO if _denies(by_id, sentences[0], asked) else Verdict.YES
        alike = [s for s in sentences if _denies(by_id, s, asked) is (verdict is Verdict.NO)]
        with tools.database.tenant(actor.tenant_id) as uow:
            texts = extracting.stored(uow, [by_id[sentence.chunk_id] for sentence in alike])
        if cited := extracting.quoted(alike, by_id, texts, most=_QUOTES):
            found[document_id] = verdict, cited
    return found, [*fullpass.searched_note(len(hits), total), *_other_languages(asked.about, hits)]


def _other_languages(about: str, hits: Sequence[FoundChunk]) -> list[str]:
    """Says so when documents are in another language than the question: nothing is counted across languages."""
    spoken = questions.spoken_languages(about)
    own = {hit.document_id for hit in hits if hit.language in spoken}
    foreign = {hit.document_id for hit in hits} - own
    if not foreign:
        return []
    number = "1 document is" if len(foreign) == 1 else f"{len(foreign)} documents are"
    return [f"{number} in another language than the question: with the packaged models they count as silent."]


def _denies(by_id: dict[str, FoundChunk], sentence: EvidenceSentence, asked: AskedTask) -> bool:
    hit = by_id[sentence.chunk_id]
    return verdicts.denies(hit.text[sentence.start : sentence.end], asked.about, hit.language)


def _text(draft: Draft, asked: AskedTask) -> str:
    """The count, then each document under its verdict with the marks of its quotes; what was asked for stands first."""
    groups = [
        ("With it" if asked.negated else "Yes", [v for v in draft.verdicts if v.verdict is Verdict.YES and v.proved]),
        (
            "Without it, it says the opposite" if asked.negated else "No, it says the opposite",
            [v for v in draft.verdicts if v.verdict is Verdict.NO and v.proved],
        ),
        (
            "Without it, it says nothing about it" if asked.negated else "No, it says nothing about it",
            [v for v in draft.verdicts if v.verdict is Verdict.SILENT],
        ),
        ("Not proved, look yourself", [v for v in draft.verdicts if v.verdict is not Verdict.SILENT and not v.proved]),
    ]
    if asked.negated:
        groups = [*groups[1:3], groups[0], groups[3]]
    blocks = [verdicts.sentence(verdicts.tally(draft.verdicts), asked.counted, negated=asked.negated)]
    for heading, members in groups:
        if members:
            lines = [f"- {v.document}{''.join(f' [{ordinal}]' for ordinal in v.ordinals)}" for v in members]
            blocks.append("\n".join([f"{heading}:", *lines]))
    return "\n\n".join(blocks)
