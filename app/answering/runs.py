"""What an answer was made from: a record that two equal questions share; and what came of it, without times. Pure.

Neither holds ids of answers or counts of cached tokens: those differ though nothing has changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any
from uuid import UUID

FORMAT = 1

Json = Mapping[str, Any]
Setting = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class PromptRecord:
    """One request to the engine, in the order of the run: `purpose` is for people, `sha256` of the whole prompt."""

    purpose: str
    sha256: str
    tokens: int


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """One document in scope, in the version that was read or searched; no version when none is indexed yet."""

    id: UUID
    name: str
    version_id: UUID | None
    version_number: int
    sha256: str
    pages: int | None


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """The generator; `digest` is None where its server does not say it."""

    id: str
    digest: str | None
    window_tokens: int
    answer_form: str


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """The corpus text of a full pass: the digest over its documents, and how it was split."""

    digest: str
    sections: int
    tokens: int


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Everything that decides an answer. `selection` empty: the whole collection; `snapshot` None: a retrieval.

    `documents` are all in scope, `settings` all that have a say in the answer, by name.
    """

    fullread: str
    question_sha256: str
    asked_route: str
    route: str
    by_document: bool
    selection: frozenset[UUID]
    model: ModelRecord
    embeddings_model: str
    settings: Mapping[str, Setting]
    snapshot: SnapshotRecord | None
    prompts: tuple[PromptRecord, ...]
    documents: tuple[DocumentRecord, ...]


def as_json(record: RunRecord) -> dict[str, Any]:
    """The record as stored and shown; equal records give equal JSON."""
    snapshot = record.snapshot
    return {
        "format": FORMAT,
        "fullread": record.fullread,
        "question_sha256": record.question_sha256,
        "asked_route": record.asked_route,
        "route": record.route,
        "by_document": record.by_document,
        "selection": sorted(str(document_id) for document_id in record.selection),
        "model": _plain(record.model),
        "embeddings": {"model": record.embeddings_model},
        "settings": dict(sorted(record.settings.items())),
        "snapshot": None if snapshot is None else _plain(snapshot),
        "prompts": [_plain(prompt) for prompt in record.prompts],
        "documents": [_plain(document) for document in record.documents],
    }


def _plain(part: PromptRecord | DocumentRecord | ModelRecord | SnapshotRecord) -> dict[str, Any]:
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    return {name: str(value) if isinstance(value, UUID) else value for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class Quoted:
    """A quote as an answer shows it."""

    document: str
    page: int | None
    quote: str
    verified: bool


@dataclass(frozen=True, slots=True)
class Counts:
    """What coverage counts; 0 where an older answer does not say it."""

    documents_total: int = 0
    documents_searched: int = 0
    documents_read: int = 0
    pages_total: int = 0
    pages_searched: int = 0
    pages_read: int = 0
    passages_read: int = 0
    sections: int = 0


@dataclass(frozen=True, slots=True)
class Unread:
    """Pages that were neither read nor searched; `pages` None when nobody knows how many they are."""

    document: str
    pages: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Said:
    """What one document says to a question that is asked of each: yes, no or silent, with a verified quote or not."""

    document_id: str
    document: str
    verdict: str
    proved: bool


@dataclass(frozen=True, slots=True)
class TallyCounts:
    """Documents by verdict; a yes or no without proof is counted as unproved only."""

    yes: int = 0
    no: int = 0
    silent: int = 0
    unproved: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a question. `tally` None: it was not asked document by document."""

    state: str
    text: str
    citations: tuple[Quoted, ...] = ()
    coverage: Counts = Counts()
    unread: tuple[Unread, ...] = ()
    verdicts: tuple[Said, ...] = ()
    tally: TallyCounts | None = None


def outcome_of(answer: Json) -> Outcome:
    """The outcome in an answer's JSON, just made or stored; what an older one lacks stays empty."""
    coverage, tally = answer.get("coverage") or {}, answer.get("tally")
    return Outcome(
        state=str(answer.get("state", "")),
        text=str(answer.get("text") or ""),
        citations=tuple(_quoted(citation) for citation in answer.get("citations") or ()),
        coverage=Counts(**{field.name: int(coverage.get(field.name) or 0) for field in fields(Counts)}),
        unread=tuple(_unread(entry) for entry in coverage.get("skipped") or ()),
        verdicts=tuple(_said(verdict) for verdict in answer.get("verdicts") or ()),
        tally=None
        if tally is None
        else TallyCounts(**{field.name: int(tally.get(field.name) or 0) for field in fields(TallyCounts)}),
    )


def _quoted(citation: Json) -> Quoted:
    document, quote = str(citation.get("document", "")), str(citation.get("quote", ""))
    return Quoted(document, citation.get("page"), quote, bool(citation.get("verified")))


def _unread(entry: Json) -> Unread:
    return Unread(str(entry.get("document", "")), entry.get("pages"), str(entry.get("reason", "")))


def _said(verdict: Json) -> Said:
    ids = str(verdict.get("document_id", "")), str(verdict.get("document", ""))
    return Said(*ids, str(verdict.get("verdict", "")), bool(verdict.get("proved")))
