"""Claims with fences: who works on a job now, how it says that it lives, and how it ends.

A claim is a compare-and-set on the row that raises the fence; every later write names its fence, so a worker
that lost its lease loses its writes too. Time comes from the database's clock, so skewed hosts do no harm.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import text

from app.core.db import Database, PlatformWork, UnitOfWork
from app.core.errors import FenceLostError, FullreadError, UnavailableError
from app.jobs import queues, rows

log = structlog.get_logger()

#: Set-backs (a service away for a moment) do not count as attempts, but they end too: about 25 minutes in all.
MAX_SETBACKS = 60


class JobCancelledError(Exception):
    """A person asked for the job to stop; raised by `Lease.check` between steps."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that this holder may work on until its lease runs out."""

    tenant_id: UUID
    job_id: UUID
    kind: str
    queue: str
    subject_id: UUID | None
    payload: dict[str, Any]
    attempt: int
    setbacks: int
    fence: int


_RETURNING = "returning tenant_id, id, kind, queue, subject_id, payload, attempt, setbacks, fence"
_TAKE = (
    "update jobs set state = 'running', fence = fence + 1, attempt = attempt + 1, holder = :holder,"
    " lease_until = now() + make_interval(secs => :lease_s), started_at = coalesce(started_at, now())"
)


def _full(work: PlatformWork, queue: str) -> bool:
    """Whether as many jobs of a limited queue run as may run at once; one claimer at a time looks."""
    most = queues.AT_MOST.get(queue)
    if most is None:
        return False
    work.session.execute(
        text("select pg_advisory_xact_lock(hashtextextended('queue:' || :queue, 0))"), {"queue": queue}
    )
    running = text("select count(*) from jobs where queue = :queue and state = 'running' and lease_until > now()")
    return int(work.session.execute(running, {"queue": queue}).scalar_one()) >= most


def claim(database: Database, job_id: UUID, *, holder: str, lease_s: float, queue: str | None = None) -> Claim | None:
    """Claim one queued and due job; None when somebody else has it, it is not due, or its `queue` is full."""
    with database.platform() as work:
        if queue is not None and _full(work, queue):
            return None
        row = work.session.execute(
            text(f"{_TAKE} where id = :id and state = 'queued' and run_after <= now() {_RETURNING}"),
            {"id": job_id, "holder": holder, "lease_s": lease_s},
        ).first()
    return None if row is None else Claim(*row)


def claim_next(database: Database, queue: str, *, holder: str, lease_s: float) -> Claim | None:
    """Claim the next due job of a queue: the tenant with the fewest running jobs first, then the oldest job.

    So one tenant's five thousand files do not stand before another tenant's single one.
    """
    with database.platform() as work:
        if _full(work, queue):
            return None
        row = work.session.execute(
            text(
                f"""
                with waiting as (
                    select distinct tenant_id from jobs
                    where queue = :queue and state = 'queued' and run_after <= now()
                ), fair as (
                    select w.tenant_id, (select count(*) from jobs r
                        where r.tenant_id = w.tenant_id and r.queue = :queue and r.state = 'running') as running
                    from waiting w order by running, random()
                ), pick as (
                    select j.tenant_id, j.id from fair f cross join lateral (
                        select tenant_id, id, priority from jobs
                        where tenant_id = f.tenant_id and queue = :queue and state = 'queued' and run_after <= now()
                        order by priority, id limit 1 for update skip locked) j
                    order by f.running limit 1
                )
                {_TAKE} where (tenant_id, id) in (select tenant_id, id from pick) and state = 'queued' {_RETURNING}
                """  # noqa: S608  (constants of this module only)
            ),
            {"queue": queue, "holder": holder, "lease_s": lease_s},
        ).first()
    return None if row is None else Claim(*row)


@dataclass(slots=True)
class Lease:
    """A claim that is being worked on: keeps its lease alive from a thread and hears about cancellation."""

    database: Database
    claim: Claim
    lease_s: float
    _stop: threading.Event = field(default_factory=threading.Event)
    _lost: threading.Event = field(default_factory=threading.Event)
    _cancel: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Lease":
        self._thread = threading.Thread(target=self._beat, name="job-lease", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _beat(self) -> None:
        # A third of the lease, but at least once a second, so that a cancel is heard soon.
        pause_s = min(1.0, self.lease_s / 3)
        while not self._stop.wait(pause_s):
            try:
                self._renew()
            except UnavailableError:
                log.warning("job_lease_not_renewed", job_id=str(self.claim.job_id))

    def _renew(self) -> None:
        with self.database.platform() as work:
            row = work.session.execute(
                text(
                    "update jobs set lease_until = now() + make_interval(secs => :lease_s)"
                    " where id = :id and fence = :fence and state = 'running' returning cancel_requested_at"
                ),
                {"id": self.claim.job_id, "fence": self.claim.fence, "lease_s": self.lease_s},
            ).first()
        if row is None:
            self._lost.set()
        elif row[0] is not None:
            self._cancel.set()

    def check(self) -> None:
        """Call between steps: raises FenceLostError or JobCancelledError when the work must stop."""
        if self._lost.is_set():
            raise FenceLostError("fence_lost", "Another worker took this job over.")
        if self._cancel.is_set():
            raise JobCancelledError

    @contextmanager
    def unit(self) -> Iterator[UnitOfWork]:
        """A tenant transaction that can only commit while this claim holds: late writers lose.

        Takes a share lock on the job row, so that nobody can re-claim it before the commit.
        """
        self.check()
        with self.database.tenant(self.claim.tenant_id) as uow:
            row = uow.session.execute(
                text(
                    "select cancel_requested_at from jobs"
                    " where id = :id and fence = :fence and state = 'running' for share"
                ),
                {"id": self.claim.job_id, "fence": self.claim.fence},
            ).first()
            if row is None:
                self._lost.set()
                raise FenceLostError("fence_lost", "Another worker took this job over.")
            if row[0] is not None:
                raise JobCancelledError
            yield uow

    def progress(self, uow: UnitOfWork, **facts: int | str) -> None:
        """Store progress as facts (pages, chunks, phase): what a person sees is what is stored."""
        uow.session.execute(
            text("update jobs set progress = progress || cast(:facts as jsonb) where id = :id and fence = :fence"),
            {"facts": json.dumps(facts), "id": self.claim.job_id, "fence": self.claim.fence},
        )


def finish(uow: UnitOfWork, claim: Claim, state: str, *, code: str | None = None, message: str | None = None) -> None:
    """End the job in `state` (succeeded, failed, cancelled) in the same transaction as its last effect.

    Raises FenceLostError when another holder took the job over.
    """
    done = uow.session.execute(
        text(
            "update jobs set state = :state, code = :code, message = :message, finished_at = now(), lease_until = null"
            " where id = :id and fence = :fence and state = 'running' returning id"
        ),
        {"state": state, "code": code, "message": message, "id": claim.job_id, "fence": claim.fence},
    ).first()
    if done is None:
        raise FenceLostError("fence_lost", "Another worker took this job over.")
    rows.record(uow, claim.job_id, state, **({"code": code} if code else {}))


def set_back(database: Database, claim: Claim, error: FullreadError, *, counts_as_attempt: bool) -> bool:
    """Put a running job back into the queue with a growing delay; False when it has had all its chances.

    A service that is away (`counts_as_attempt=False`) does not use up an attempt.
    """
    if claim.setbacks >= MAX_SETBACKS:
        return False
    delay_s = min(0.5 * 2 ** min(claim.setbacks, 6), 30.0)
    with database.tenant(claim.tenant_id) as uow:
        done = uow.session.execute(
            text(
                "update jobs set state = 'queued', run_after = now() + make_interval(secs => :delay_s),"
                " setbacks = setbacks + 1, attempt = attempt - :refund, code = :code, message = :message,"
                " holder = null, lease_until = null"
                " where id = :id and fence = :fence and state = 'running' returning id"
            ),
            {
                "delay_s": delay_s,
                "refund": 0 if counts_as_attempt else 1,
                "code": error.code,
                "message": error.message,
                "id": claim.job_id,
                "fence": claim.fence,
            },
        ).first()
        if done is not None:
            rows.record(uow, claim.job_id, "set_back", code=error.code, delay_s=delay_s)
    return True
