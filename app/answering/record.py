"""The draft of an answer while it is made, and the one transaction that records it: answer, citations, audit."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import delete, select

from app.answering.chat import Meter
from app.answering.coverage import Coverage
from app.answering.tables import Answer, CitationRow
from app.answering.verdicts import DocumentVerdict, Verdict, tally
from app.audit import events
from app.core import observability
from app.core.clock import now
from app.core.db import Database, UnitOfWork
from app.core.errors import NotFoundError
from app.core.ids import new_id
from app.documents import access
from app.identity.permissions import Action, Principal

#: Columns that go into an answer's JSON as they are.
_PLAIN = (
    "question", "state", "text", "form", "asked_route", "route", "route_reasons", "selection", "verdicts", "coverage",
    "tokens", "model", "run", "code", "message",
)  # fmt: skip


#: Columns that are written as text.
_WRITTEN = ("id", "collection_id", "again_of", "job_id", "created_at")


@dataclass(frozen=True, slots=True)
class Citation:
    """A quote as shown: the stored wording when verified, the model's wording when not."""

    ordinal: int
    document: str
    document_id: UUID
    version_id: UUID
    page: int | None
    page_label: str | None
    quote: str
    verified: bool
    boxes: tuple[tuple[float, float, float, float], ...] = ()
    char_start: int | None = None
    char_end: int | None = None
    claim: str = ""


@dataclass(slots=True)
class Draft:
    """What is known of an answer so far; recorded whatever happens to the client."""

    id: UUID
    collection_id: UUID
    question: str
    asked_route: str
    route: str
    created_at: datetime
    document_ids: tuple[UUID, ...] = ()
    again_of: UUID | None = None
    job_id: UUID | None = None
    by_document: bool = False
    route_reasons: list[str] = field(default_factory=list)
    state: str = "running"
    form: str = "extractive"
    text: str = ""
    model: str = ""
    citations: list[Citation] = field(default_factory=list)
    coverage: Coverage | None = None
    verdicts: list[DocumentVerdict] = field(default_factory=list)
    run: dict[str, Any] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)
    timings: dict[str, float] = field(default_factory=dict)
    code: str | None = None
    message: str | None = None

    @property
    def tokens(self) -> dict[str, int | None]:
        """Prompt tokens as we counted and as the engine counted, and what it wrote."""
        return {
            "counted": self.meter.counted_tokens,
            "engine": self.meter.engine_tokens,
            "output": self.meter.output_tokens,
            "cached": self.meter.cached_tokens,
        }


def shown(draft: Draft) -> dict[str, Any]:
    """The answer as JSON: the shape that scripts rely on, and more."""
    return _as_json({"id": draft.id, **_columns(draft)}, draft.citations, draft.timings.get("total_s"))


def stored(row: Answer, citations: Sequence[CitationRow]) -> dict[str, Any]:
    """A recorded answer as JSON, in the shape of `shown`."""
    columns = {name: getattr(row, name) for name in (*_PLAIN, *_WRITTEN)}
    return _as_json(columns, citations, row.timings.get("total_s", row.seconds))


def _as_json(
    columns: Mapping[str, Any], citations: Sequence[Citation | CitationRow], seconds: float | None
) -> dict[str, Any]:
    again_of, job_id = columns["again_of"], columns["job_id"]
    return {
        "id": str(columns["id"]),
        "collection_id": str(columns["collection_id"]),
        **{name: columns[name] for name in _PLAIN},
        "citations": [citation_json(citation) for citation in citations],
        "tally": tally_of(columns["verdicts"]),
        "again_of": str(again_of) if again_of else None,
        "job_id": str(job_id) if job_id else None,
        "seconds": seconds,
        "created_at": columns["created_at"].isoformat(),
    }


def _columns(draft: Draft) -> dict[str, Any]:
    """What of a draft stands in the answer's row."""
    return {
        "collection_id": draft.collection_id,
        "question": draft.question,
        "state": draft.state,
        "asked_route": draft.asked_route,
        "route": draft.route,
        "route_reasons": draft.route_reasons,
        "form": draft.form,
        "text": draft.text,
        "model": draft.model,
        "selection": {"document_ids": [str(document_id) for document_id in draft.document_ids]},
        "coverage": coverage_json(draft.coverage),
        "verdicts": [verdict_json(verdict) for verdict in draft.verdicts],
        "run": draft.run,
        "tokens": draft.tokens,
        "timings": draft.timings,
        "code": draft.code,
        "message": draft.message,
        "again_of": draft.again_of,
        "job_id": draft.job_id,
        "created_at": draft.created_at,
    }


def tally_of(stored_verdicts: Sequence[Mapping[str, Any]]) -> dict[str, int] | None:
    """Documents by verdict; None for a question that was not asked document by document."""
    if not stored_verdicts:
        return None
    return asdict(tally([DocumentVerdict(**{**v, "verdict": Verdict(v["verdict"])}) for v in stored_verdicts]))


def citation_json(citation: Citation | CitationRow) -> dict[str, Any]:
    """A citation as JSON. `page` is 1-based, boxes are PDF points with the origin top left.

    A stored one of a deleted document has no document id any more.
    """
    return {
        "ordinal": citation.ordinal,
        "document": citation.document if isinstance(citation, Citation) else citation.document_name,
        "document_id": str(citation.document_id) if citation.document_id else None,
        "version_id": str(citation.version_id) if citation.version_id else None,
        "page": citation.page,
        "page_label": citation.page_label,
        "quote": citation.quote,
        "verified": citation.verified,
        "boxes": [list(box) for box in citation.boxes],
        "char_start": citation.char_start,
        "char_end": citation.char_end,
        "claim": citation.claim,
    }


def coverage_json(coverage: Coverage | None) -> dict[str, Any]:
    """Coverage as stored and shown; empty when the answer ended before anything was searched."""
    return {} if coverage is None else asdict(coverage)


def store(database: Database, actor: Principal, draft: Draft) -> None:
    """Write answer, citations and audit event in one transaction, and count them."""
    with database.tenant(actor.tenant_id) as uow:
        write(uow, actor, draft)
    count(draft)


def write(uow: UnitOfWork, actor: Principal, draft: Draft) -> None:
    """Write or overwrite the answer, its citations and the audit event in the caller's transaction."""
    finished_at = None if draft.state == "queued" else now()
    row = uow.session.get(Answer, (uow.tenant_id, draft.id))
    values = {
        **_columns(draft),
        "user_id": actor.user_id,
        "seconds": (finished_at - draft.created_at).total_seconds() if finished_at else None,
        "finished_at": finished_at,
    }
    if row is None:
        uow.session.add(Answer(tenant_id=uow.tenant_id, id=draft.id, **values))
    else:
        for name, value in values.items():
            setattr(row, name, value)
        uow.session.execute(delete(CitationRow).where(CitationRow.answer_id == draft.id))
    uow.session.flush()
    for citation in draft.citations:
        uow.session.add(_citation_row(uow, draft.id, citation))
    events.append(
        uow,
        actor.actor,
        "answer.record",
        "answer",
        draft.id,
        outcome=draft.state,
        request_id=actor.request_id,
        collection=draft.collection_id,
        route=draft.route,
        tokens=draft.meter.engine_tokens,
    )


def _citation_row(uow: UnitOfWork, answer_id: UUID, citation: Citation) -> CitationRow:
    return CitationRow(
        tenant_id=uow.tenant_id,
        id=new_id(),
        answer_id=answer_id,
        ordinal=citation.ordinal,
        document_id=citation.document_id,
        version_id=citation.version_id,
        document_name=citation.document,
        page=citation.page,
        page_label=citation.page_label,
        quote=citation.quote,
        claim=citation.claim,
        verified=citation.verified,
        boxes=[list(box) for box in citation.boxes],
        char_start=citation.char_start,
        char_end=citation.char_end,
    )


def count(draft: Draft) -> None:
    """Count a recorded answer in the metrics, after its transaction."""
    observability.answers_total.labels(draft.state, draft.route).inc()
    for citation in draft.citations:
        observability.citations_total.labels(str(citation.verified).lower()).inc()


def verdict_json(verdict: DocumentVerdict) -> dict[str, Any]:
    """One verdict as JSON; `ordinals` are the citations that prove it."""
    return {**asdict(verdict), "verdict": verdict.verdict.value, "ordinals": list(verdict.ordinals)}


def page(
    uow: UnitOfWork, actor: Principal, *, before: UUID | None, limit: int, collection_id: UUID | None = None
) -> Sequence[Answer]:
    """The caller's own answers in collections that it still sees, newest first."""
    visible = access.visible_collection_ids(actor)
    query = (
        select(Answer)
        .where(Answer.user_id == actor.user_id, Answer.collection_id.in_(visible))
        .order_by(Answer.id.desc())
        .limit(limit)
    )
    if before is not None:
        query = query.where(Answer.id < before)
    if collection_id is not None:
        query = query.where(Answer.collection_id == collection_id)
    return uow.session.scalars(query).all()


def find(uow: UnitOfWork, actor: Principal, answer_id: UUID) -> tuple[Answer, Sequence[CitationRow]]:
    """One of the caller's answers (an administrator sees all of the tenant). Raises NotFoundError."""
    answer = uow.session.get(Answer, (uow.tenant_id, answer_id))
    if answer is None or (answer.user_id != actor.user_id and not actor.sees_all_collections):
        raise NotFoundError
    access.open_collection(uow, actor, answer.collection_id, Action.READ)
    rows = uow.session.scalars(
        select(CitationRow).where(CitationRow.answer_id == answer.id).order_by(CitationRow.ordinal)
    ).all()
    return answer, rows
