"""A stored question asked again: the same words, route and documents, and what differs from the first answer."""

from dataclasses import asdict
from typing import Any
from uuid import UUID

from app.answering import record, runs
from app.answering.answer import Ask, asked
from app.answering.changes import Change, changes
from app.core.db import Database, UnitOfWork
from app.core.errors import ConflictError
from app.identity.permissions import Principal

_LIVE = ("queued", "running")


def ask_of(uow: UnitOfWork, actor: Principal, answer_id: UUID) -> Ask:
    """How a stored answer was asked. Raises NotFoundError, and ConflictError while it is being made."""
    row, _ = record.find(uow, actor, answer_id)
    if row.state in _LIVE:
        raise ConflictError("answer_not_ended", "This answer is still being made. Ask again when it has ended.")
    return Ask(
        collection_id=row.collection_id,
        question=row.question,
        route=asked(row.asked_route),
        document_ids=tuple(UUID(document_id) for document_id in row.selection.get("document_ids", ())),
        again_of=row.id,
    )


def compared(database: Database, actor: Principal, made: dict[str, Any]) -> dict[str, Any]:
    """The new answer with `changes` against the one that it repeats; causes before effects."""
    with database.tenant(actor.tenant_id) as uow:
        row, citations = record.find(uow, actor, UUID(made["again_of"]))
        before = record.stored(row, citations)
    found = changes(before["run"], made["run"], outcomes=(runs.outcome_of(before), runs.outcome_of(made)))
    return {**made, "changes": [_json(change) for change in found]}


def _json(change: Change) -> dict[str, Any]:
    return asdict(change)
