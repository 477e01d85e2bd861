"""Audit events: appended in the same transaction as what they report, in one hash chain per tenant."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text

from app.core.db import UnitOfWork


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One event as stored. `detail` holds ids and settings, never document text."""

    seq: int
    at: datetime
    actor: str
    action: str
    object_type: str
    object_id: str
    outcome: str
    request_id: str
    detail: dict[str, Any]


def append(
    uow: UnitOfWork,
    actor: str,
    action: str,
    object_type: str,
    object_id: object,
    *,
    outcome: str = "ok",
    request_id: str = "",
    **detail: Any,
) -> int:
    """Append an event to the tenant's chain and return its number. Commits or fails with the caller's work."""
    result = uow.session.execute(
        text("select append_audit_event(:actor, :action, :type, :id, :outcome, :request, :detail)"),
        {
            "actor": actor,
            "action": action,
            "type": object_type,
            "id": str(object_id),
            "outcome": outcome,
            "request": request_id,
            "detail": json.dumps(detail, default=str, sort_keys=True, ensure_ascii=False),
        },
    )
    return int(result.scalar_one())


def recent(uow: UnitOfWork, *, before_seq: int | None, limit: int) -> Sequence[AuditEvent]:
    """Events of the tenant, newest first, older than `before_seq`."""
    rows = uow.session.execute(
        text(
            "select seq, at, actor, action, object_type, object_id, outcome, request_id, detail from audit_events"
            " where (cast(:before as bigint) is null or seq < :before) order by seq desc limit :limit"
        ),
        {"before": before_seq, "limit": limit},
    )
    return [
        AuditEvent(
            seq=row.seq,
            at=row.at,
            actor=row.actor,
            action=row.action,
            object_type=row.object_type,
            object_id=row.object_id,
            outcome=row.outcome,
            request_id=row.request_id,
            detail=json.loads(row.detail),
        )
        for row in rows
    ]


def first_broken(uow: UnitOfWork) -> int | None:
    """Recompute the chain; the number of the first event that does not fit, or None when all fit."""
    row = uow.session.execute(
        text(
            """
            with chain as (
                select seq, hash, prev_hash,
                    lag(hash, 1, ''::bytea) over (order by seq) as expected_prev,
                    row_number() over (order by seq) as position,
                    sha256(prev_hash || convert_to(json_build_array(tenant_id, seq, extract(epoch from at)::text, actor,
                        action, object_type, object_id, outcome, request_id, detail)::text, 'UTF8')) as expected
                from audit_events
            )
            select min(seq) from chain
            where hash <> expected or prev_hash <> expected_prev or seq <> position
            """
        )
    )
    broken: int | None = row.scalar_one()
    return broken
