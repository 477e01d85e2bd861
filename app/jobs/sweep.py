"""The sweeper and the relay: one leader by advisory lock repeats lost hints and takes back expired leases."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

import structlog
from sqlalchemy import text

from app.core import observability
from app.core.db import Database
from app.jobs import rows

log = structlog.get_logger()

_LEADER_LOCK = 0x46_52_53_57  # "FRSW"
_HINT_AGAIN_S = 3.0
_HINTS_PER_QUEUE = 4


@dataclass(frozen=True, slots=True)
class Dead:
    """A job that used up its attempts: its subject must be told."""

    tenant_id: UUID
    job_id: UUID
    kind: str
    subject_id: UUID | None


@contextmanager
def leadership(database: Database) -> Iterator[bool]:
    """True for the one process that holds the sweeper's advisory lock."""
    with database.platform_engine.connect() as connection:
        held = bool(connection.execute(text("select pg_try_advisory_lock(:k)"), {"k": _LEADER_LOCK}).scalar_one())
        connection.commit()
        try:
            yield held
        finally:
            if held:
                connection.execute(text("select pg_advisory_unlock(:k)"), {"k": _LEADER_LOCK})
                connection.commit()


def relay(database: Database, send: Callable[[str, UUID | None], bool]) -> int:
    """Send the outbox's hints that are older than two seconds; drop rows whose job needs none. Returns sent hints."""
    with database.platform() as work:
        work.session.execute(
            text(
                "delete from outbox o using jobs j where j.tenant_id = o.tenant_id and j.id = o.job_id"
                " and (j.state <> 'queued' or o.sent_at is not null)"
            )
        )
        waiting = work.session.execute(
            text(
                "select tenant_id, id, queue, job_id from outbox where sent_at is null"
                " and created_at < now() - interval '2 seconds' order by created_at limit 50"
            )
        ).all()
    sent = 0
    for tenant_id, outbox_id, queue, job_id in waiting:
        if not send(queue, job_id):
            break
        with database.platform() as work:
            work.session.execute(
                text("update outbox set sent_at = now() where tenant_id = :t and id = :i"),
                {"t": tenant_id, "i": outbox_id},
            )
        sent += 1
    return sent


def repeat_hints(database: Database, send: Callable[[str, UUID | None], bool]) -> int:
    """Wake the workers of every queue that has due jobs and no hint in the last seconds. Returns sent hints."""
    with database.platform() as work:
        due = work.session.execute(
            text(
                "with due as (select tenant_id, id, queue, row_number() over (partition by queue order by id) as n"
                " from jobs where state = 'queued' and run_after <= now()"
                " and coalesce(hinted_at, created_at) < now() - make_interval(secs => :again))"
                " update jobs set hinted_at = now() from due where jobs.tenant_id = due.tenant_id"
                " and jobs.id = due.id and due.n <= :most returning jobs.queue, jobs.id"
            ),
            {"again": _HINT_AGAIN_S, "most": _HINTS_PER_QUEUE},
        ).all()
        for queue, count in work.session.execute(
            text("select queue, count(*) from jobs where state = 'queued' group by queue")
        ):
            observability.jobs_waiting.labels(queue).set(count)
    return sum(1 for queue, job_id in due if send(queue, job_id))


def take_back_expired(database: Database, *, max_attempts: int) -> list[Dead]:
    """Requeue running jobs whose lease ran out, with a new fence; return those out of attempts, now failed."""
    with database.platform() as work:
        expired = work.session.execute(
            text(
                "update jobs set fence = fence + 1, holder = null, lease_until = null,"
                " state = case when attempt >= :most then 'failed' else 'queued' end,"
                " code = case when attempt >= :most then 'worker_lost' else code end,"
                " message = case when attempt >= :most then 'The worker was lost too often. Try again.' end,"
                " finished_at = case when attempt >= :most then now() end, run_after = now()"
                " where state = 'running' and lease_until < now()"
                " returning tenant_id, id, kind, subject_id, state, queue"
            ),
            {"most": max_attempts},
        ).all()
    dead = []
    for tenant_id, job_id, kind, subject_id, state, _queue in expired:
        log.warning("job_lease_expired", job_id=str(job_id), kind=kind, state=state)
        with database.tenant(tenant_id) as uow:
            rows.record(uow, job_id, "lease_expired", state=state)
        if state == "failed":
            dead.append(Dead(tenant_id, job_id, kind, subject_id))
    return dead
