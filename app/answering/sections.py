"""Sections: how a snapshot is split over prompts, counted once per tokenizer by the engine and stored.

The engine's own count of the whole rendered prompt is the number that must match. Counts of single pages only plan.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from anyio import to_thread
from sqlalchemy.dialects.postgresql import insert

from app.answering import corpus_prompts
from app.answering.prompts import Message
from app.answering.tables import SnapshotPlan
from app.answering.tools import AnswerTools
from app.core.clock import now
from app.core.db import UnitOfWork
from app.documents import markers, snapshots
from app.documents.snapshots import Piece, Snapshot, SnapshotDocument
from app.identity.permissions import Principal

#: `whole`: sections are as full as they can be. `documents`: none holds pages of two documents, so that a question
#: about each document alone finds the sections in the engine's cache.
Shape = Literal["whole", "documents"]

# Rules, end marker and chat template around the corpus text.
_FRAME_TOKENS = 256
_MARKER_TOKENS = 40
_PROBE_TASK = "Which documents are these? Answer with their names, one in each line."
# A long page is cut at the best of these that stands in the last third of what fits.
_CUTS = ("\n\n", "\n", ". ", "; ", " ")


@dataclass(frozen=True, slots=True)
class Section:
    """Pages of one prompt. `tokens`: the prompt without a task, as the engine counts it; `sha256`: of the text."""

    pieces: tuple[Piece, ...]
    tokens: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Task:
    """What stands behind the corpus. `tokens`: what it adds to a section; None where the whole must be counted."""

    text: str
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """All sections of a snapshot. `additive`: the tokens of a task can be counted apart (tested for this tokenizer)."""

    snapshot: Snapshot
    seal: str
    sections: tuple[Section, ...]
    additive: bool

    @property
    def tokens(self) -> int:
        """Prompt tokens of one pass without tasks."""
        return sum(section.tokens for section in self.sections)

    @property
    def last_source(self) -> int:
        """The last page that is read; those after it are over the budget of a full pass."""
        return max((piece.source for section in self.sections for piece in section.pieces), default=0)

    @property
    def last_pages(self) -> dict[UUID, int]:
        """By version, the last page of it that is read."""
        last = self.last_source
        return {
            document.version_id: max(page.number for page in document.pages if page.source <= last)
            for document in self.snapshot.documents
            if document.pages and document.pages[0].source <= last
        }

    def of_document(self, ordinal: int) -> tuple[Section, ...]:
        """The sections of one document (shape `documents`)."""
        return tuple(section for section in self.sections if section.pieces[0].document == ordinal)


def tokenizer(tools: AnswerTools) -> str:
    """What decides the counts: the model, and its digest where it is known."""
    return f"{tools.profile.model}@{tools.profile.digest or 'unknown'}"


async def plan(tools: AnswerTools, actor: Principal, snapshot: Snapshot, shape: Shape) -> Plan:
    """The plan of a snapshot for this engine, stored or made now. Raises as `EngineClient.count_tokens`."""
    seal = markers.corpus_seal(tools.salt_key, actor.tenant_id)

    def load() -> Plan | None:
        with tools.database.tenant(actor.tenant_id) as uow:
            return _stored(uow, tools, snapshot, seal, shape)

    if (found := await to_thread.run_sync(load)) is not None:
        return found
    pieces = await _pieces(tools, actor, snapshot, seal)
    made = await _counted(tools, actor, snapshot, seal, _packed(pieces, tools.profile.section_tokens, shape))

    def keep() -> None:
        with tools.database.tenant(actor.tenant_id) as uow:
            _store(uow, tools, made, shape)

    await to_thread.run_sync(keep)
    return made


async def counted_task(tools: AnswerTools, read: Plan, text: str) -> Task:
    """A task for sections of the plan, counted once for all of them where that is exact."""
    return Task(text, await _task_tokens(tools, read.seal, text) if read.additive else None)


async def prompt(
    tools: AnswerTools, actor: Principal, read: Plan, section: Section, task: Task
) -> tuple[list[Message], int]:
    """The messages of a section with a task, and their tokens. Raises ConflictError when its pages were replaced."""
    corpus = await _text(tools, actor, read.snapshot, section.pieces, read.seal)
    if hashlib.sha256(corpus.encode()).hexdigest() != section.sha256:
        raise snapshots.changed()
    messages = corpus_prompts.messages(corpus, read.seal, task.text)
    if task.tokens is None:
        return messages, await tools.engine.count_tokens(messages)
    return messages, section.tokens + task.tokens


async def _task_tokens(tools: AnswerTools, seal: str, task: str) -> int:
    """What a task adds to a prompt, counted at its boundary."""
    with_task, without = await tools.engine.count_many(
        [corpus_prompts.messages("", seal, task), corpus_prompts.messages("", seal, "")]
    )
    return with_task - without


async def _text(tools: AnswerTools, actor: Principal, snapshot: Snapshot, pieces: Sequence[Piece], seal: str) -> str:
    def load() -> str:
        with tools.database.tenant(actor.tenant_id) as uow:
            texts = snapshots.page_texts(uow, {(piece.version_id, piece.number) for piece in pieces})
        return snapshots.render(snapshot, pieces, texts, seal)

    return await to_thread.run_sync(load)


async def _pieces(tools: AnswerTools, actor: Principal, snapshot: Snapshot, seal: str) -> list[tuple[Piece, int]]:
    """Every page, long ones in parts, with planned tokens; ends where the budget of a full pass ends."""
    found: list[tuple[Piece, int]] = []
    planned = 0
    for document in snapshot.documents:
        for piece, tokens in await _pieces_of(tools, actor, snapshot, document, seal):
            planned += tokens
            if planned > tools.full_pass_tokens and found:
                return _whole_pages(found, piece)
            found.append((piece, tokens))
    return found


def _whole_pages(found: list[tuple[Piece, int]], next_piece: Piece) -> list[tuple[Piece, int]]:
    """Without the parts of a page that is not read to its end: a page is read or it is not."""
    kept = [entry for entry in found if entry[0].source != next_piece.source]
    return kept or found


async def _pieces_of(
    tools: AnswerTools, actor: Principal, snapshot: Snapshot, document: SnapshotDocument, seal: str
) -> list[tuple[Piece, int]]:
    budget = tools.profile.section_tokens
    wanted = [(document.version_id, page.number) for page in document.pages]

    def load() -> dict[Any, str]:
        with tools.database.tenant(actor.tenant_id) as uow:
            return snapshots.page_texts(uow, wanted)

    texts = await to_thread.run_sync(load)
    whole = [
        Piece(document.ordinal, page.source, document.version_id, page.number, 0, len(texts[key]))
        for page, key in zip(document.pages, wanted, strict=True)
    ]
    counts = await _count_pieces(tools, snapshot, whole, texts, seal)
    found: list[tuple[Piece, int]] = []
    for piece, tokens in zip(whole, counts, strict=True):
        if tokens <= budget:
            found.append((piece, tokens))
            continue
        text = texts[piece.version_id, piece.number]
        parts = [
            Piece(piece.document, piece.source, piece.version_id, piece.number, start, end)
            for start, end in cut(text, max(1, int(len(text) * (budget - _MARKER_TOKENS) * 0.9 / tokens)))
        ]
        found.extend(zip(parts, await _count_pieces(tools, snapshot, parts, texts, seal), strict=True))
    return found


async def _count_pieces(
    tools: AnswerTools, snapshot: Snapshot, pieces: Sequence[Piece], texts: dict[Any, str], seal: str
) -> list[int]:
    return await tools.engine.count_many([snapshots.render(snapshot, [piece], texts, seal) for piece in pieces])


def cut(text: str, most_chars: int) -> list[tuple[int, int]]:
    """Spans that together are the text, none longer than `most_chars`, cut where a paragraph, line or word ends."""
    spans: list[tuple[int, int]] = []
    start = 0
    while len(text) - start > most_chars:
        limit = start + most_chars
        floor = start + max(1, most_chars * 2 // 3)
        end = next((at + len(mark) for mark in _CUTS if (at := text.rfind(mark, floor, limit - len(mark))) >= 0), limit)
        spans.append((start, end))
        start = end
    spans.append((start, len(text)))
    return spans


def _packed(pieces: Sequence[tuple[Piece, int]], budget: int, shape: Shape) -> list[list[Piece]]:
    """Pieces in order over sections. A document that fits whole into one section is not split over two."""
    sizes: dict[int, int] = {}
    for piece, tokens in pieces:
        sizes[piece.document] = sizes.get(piece.document, 0) + tokens
    sections: list[list[Piece]] = []
    used = 0
    for piece, tokens in pieces:
        begins = bool(sections) and sections[-1][-1].document != piece.document
        apart = begins and (
            shape == "documents" or (sizes[piece.document] > budget - used and sizes[piece.document] <= budget)
        )
        if not sections or apart or used + tokens > budget:
            sections.append([])
            used = 0
        sections[-1].append(piece)
        used += tokens
    return sections


async def _counted(
    tools: AnswerTools, actor: Principal, snapshot: Snapshot, seal: str, packed: list[list[Piece]]
) -> Plan:
    """Count each section as it will be sent; what is over goes to a section of its own."""
    limit = tools.profile.section_tokens + _FRAME_TOKENS
    waiting = list(reversed(packed))
    sections: list[Section] = []
    additive = True
    while waiting:
        pieces = waiting.pop()
        corpus = await _text(tools, actor, snapshot, pieces, seal)
        tokens = await tools.engine.count_tokens(corpus_prompts.messages(corpus, seal, ""))
        if tokens > limit and len(pieces) > 1:
            middle = len(pieces) // 2
            waiting += [pieces[middle:], pieces[:middle]]
            continue
        if not sections:
            whole = await tools.engine.count_tokens(corpus_prompts.messages(corpus, seal, _PROBE_TASK))
            additive = whole == tokens + await _task_tokens(tools, seal, _PROBE_TASK)
        sections.append(Section(tuple(pieces), tokens, hashlib.sha256(corpus.encode()).hexdigest()))
    return Plan(snapshot, seal, tuple(sections), additive)


def _stored(uow: UnitOfWork, tools: AnswerTools, snapshot: Snapshot, seal: str, shape: Shape) -> Plan | None:
    row = uow.session.get(
        SnapshotPlan, (uow.tenant_id, snapshot.id, _key(tools, seal), tools.profile.section_tokens, shape)
    )
    if row is None:
        return None
    sections = tuple(
        Section(tuple(_piece(snapshot, *entry) for entry in entries), tokens, sha256)
        for tokens, sha256, entries in row.sections
    )
    return Plan(snapshot, seal, sections, row.additive)


def _piece(snapshot: Snapshot, document: int, source: int, start: int, end: int) -> Piece:
    holder = snapshot.documents[document - 1]
    return Piece(document, source, holder.version_id, holder.page(source).number, start, end)


def _key(tools: AnswerTools, seal: str) -> str:
    """Counts hold for one tokenizer, one seal and one budget of a full pass."""
    return f"{tokenizer(tools)} {seal} {tools.full_pass_tokens}"


def _store(uow: UnitOfWork, tools: AnswerTools, made: Plan, shape: Shape) -> None:
    row = {
        "tenant_id": uow.tenant_id,
        "snapshot_id": made.snapshot.id,
        "collection_id": made.snapshot.collection_id,
        "tokenizer": _key(tools, made.seal),
        "section_tokens": tools.profile.section_tokens,
        "shape": shape,
        "additive": made.additive,
        "tokens": made.tokens,
        "sections": [
            [section.tokens, section.sha256, [[p.document, p.source, p.start, p.end] for p in section.pieces]]
            for section in made.sections
        ],
        "created_at": now(),
    }
    uow.session.execute(insert(SnapshotPlan).values(row).on_conflict_do_nothing())
