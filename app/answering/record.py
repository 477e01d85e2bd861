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
    return {
        "id": str(draft.id),
        "collection_id": str(draft.collection_id),
        "question": draft.question,
        "state": draft.state,
        "text": draft.text,
        "form": draft.form,
        "asked_route": draft.asked_route,
        "route": draft.route,
        "route_reasons": draft.route_reasons,
        "selection": selection_json(draft),
        "citations": [citation_json(citation) for citation in draft.citations],
        "verdicts": verdicts_json(draft.verdicts),
        "tally": tally_json(draft.verdicts),
        "coverage": coverage_json(draft.coverage),
        "tokens": draft.tokens,
        "model": draft.model,
        "run": draft.run,
        "again_of": str(draft.again_of) if draft.again_of else None,
        "job_id": str(draft.job_id) if draft.job_id else None,
        "seconds": draft.timings.get("total_s"),
        "code": draft.code,
        "message": draft.message,
        "created_at": draft.created_at.isoformat(),
    }


def stored(row: Answer, citations: Sequence[CitationRow]) -> dict[str, Any]:
    """A recorded answer as JSON, in the shape of `shown`."""
    return {
        "id": str(row.id),
        "collection_id": str(row.collection_id),
        "question": row.question,
        "state": row.state,
        "text": row.text,
        "form": row.form,
        "asked_route": row.asked_route,
        "route": row.route,
        "route_reasons": row.route_reasons,
        "selection": row.selection,
        "citations": [_citation_of(citation) for citation in citations],
        "verdicts": row.verdicts,
        "tally": tally_of(row.verdicts),
        "coverage": row.coverage,
        "tokens": row.tokens,
        "model": row.model,
        "run": row.run,
        "again_of": str(row.again_of) if row.again_of else None,
        "job_id": str(row.job_id) if row.job_id else None,
        "seconds": row.timings.get("total_s", row.seconds),
        "code": row.code,
        "message": row.message,
        "created_at": row.created_at.isoformat(),
    }


def _citation_of(row: CitationRow) -> dict[str, Any]:
    """A stored citation; one of a deleted document has no document id any more."""
    return {
        "ordinal": row.ordinal,
        "document": row.document_name,
        "document_id": str(row.document_id) if row.document_id else None,
        "version_id": str(row.version_id) if row.version_id else None,
        "page": row.page,
        "page_label": row.page_label,
        "quote": row.quote,
        "verified": row.verified,
        "boxes": row.boxes,
        "char_start": row.char_start,
        "char_end": row.char_end,
        "claim": row.claim,
    }


def tally_of(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, int] | None:
    """`tally_json` of stored verdicts."""
    return tally_json([DocumentVerdict(**{**v, "verdict": Verdict(v["verdict"])}) for v in verdicts])


def selection_json(draft: Draft) -> dict[str, Any]:
    """The documents that the question was narrowed to; an empty list means all."""
    return {"document_ids": [str(document_id) for document_id in draft.document_ids]}


def tally_json(verdicts: Sequence[DocumentVerdict]) -> dict[str, int] | None:
    """Documents by verdict; None for a question that was not asked document by document."""
    return asdict(tally(verdicts)) if verdicts else None


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
        "collection_id": draft.collection_id,
        "user_id": actor.user_id,
        "question": draft.question,
        "state": draft.state,
        "asked_route": draft.asked_route,
        "route": draft.route,
        "route_reasons": draft.route_reasons,
        "form": draft.form,
        "text": draft.text,
        "model": draft.model,
        "selection": selection_json(draft),
        "coverage": coverage_json(draft.coverage),
        "verdicts": verdicts_json(draft.verdicts),
        "run": draft.run,
        "tokens": draft.tokens,
        "timings": draft.timings,
        "seconds": (finished_at - draft.created_at).total_seconds() if finished_at else None,
        "code": draft.code,
        "message": draft.message,
        "again_of": draft.again_of,
        "job_id": draft.job_id,
        "created_at": draft.created_at,
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


def verdicts_json(verdicts: Sequence[DocumentVerdict]) -> list[dict[str, Any]]:
    """Verdicts as stored and shown."""
    return [verdict_json(verdict) for verdict in verdicts]


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
