"""The draft of an answer while it is made, and the one transaction that records it: answer, citations, audit."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.answering.coverage import Coverage
from app.answering.tables import Answer, CitationRow
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
    route: str
    created_at: datetime
    route_reasons: list[str] = field(default_factory=list)
    state: str = "running"
    form: str = "extractive"
    text: str = ""
    model: str = ""
    citations: list[Citation] = field(default_factory=list)
    coverage: Coverage | None = None
    counted_tokens: int | None = None
    engine_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    timings: dict[str, float] = field(default_factory=dict)
    code: str | None = None
    message: str | None = None

    @property
    def tokens(self) -> dict[str, int | None]:
        """Prompt tokens as we counted and as the engine counted, and what it wrote."""
        return {
            "counted": self.counted_tokens,
            "engine": self.engine_tokens,
            "output": self.output_tokens,
            "cached": self.cached_tokens,
        }


def coverage_json(coverage: Coverage | None) -> dict[str, Any]:
    """Coverage as stored and shown; empty when the answer ended before anything was searched."""
    return {} if coverage is None else asdict(coverage)


def store(database: Database, actor: Principal, draft: Draft) -> None:
    """Write answer, citations and audit event in one transaction, and count them."""
    finished_at = now()
    with database.tenant(actor.tenant_id) as uow:
        uow.session.add(
            Answer(
                tenant_id=uow.tenant_id,
                id=draft.id,
                collection_id=draft.collection_id,
                user_id=actor.user_id,
                question=draft.question,
                state=draft.state,
                route=draft.route,
                route_reasons=draft.route_reasons,
                form=draft.form,
                text=draft.text,
                model=draft.model,
                coverage=coverage_json(draft.coverage),
                tokens=draft.tokens,
                timings=draft.timings,
                seconds=(finished_at - draft.created_at).total_seconds(),
                code=draft.code,
                message=draft.message,
                created_at=draft.created_at,
                finished_at=finished_at,
            )
        )
        uow.session.flush()
        for citation in draft.citations:
            uow.session.add(
                CitationRow(
                    tenant_id=uow.tenant_id,
                    id=new_id(),
                    answer_id=draft.id,
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
            )
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
            tokens=draft.engine_tokens,
        )
    observability.answers_total.labels(draft.state, draft.route).inc()
    for citation in draft.citations:
        observability.citations_total.labels(str(citation.verified).lower()).inc()


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
