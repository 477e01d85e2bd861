"""Celery tasks: thin wrappers. `work` claims rows of a queue and runs their handlers; `sweep` keeps the rows moving."""

import contextlib
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog
from celery.signals import worker_process_init, worker_process_shutdown, worker_ready
from sqlalchemy import text

from app import bootstrap
from app.analysis import queue as analyses
from app.analysis import run as analysis
from app.answering.tools import AnswerTools
from app.core.errors import FenceLostError, FullreadError, UnavailableError
from app.documents import collections, ingest, library, purge
from app.documents.ingest import IngestTools
from app.jobs import claims, hints, queues, sweep
from app.jobs.claims import Claim, JobCancelledError, Lease
from app.settings import load
from workers.celery_app import app

log = structlog.get_logger()

#: How long one message may keep working through the queue before it hands over to the next one.
DRAIN_S = 20.0
BEAT_S = 10.0


@dataclass(slots=True)
class _Process:
    """What this worker process made after its fork."""

    services: bootstrap.Services
    tools: IngestTools
    answers: AnswerTools
    holder: str


@dataclass(frozen=True, slots=True)
class Handler:
    """How a kind of job runs, what a cancel does, and whom to tell when it is out of attempts."""

    run: Callable[[Lease, _Process], None]
    cancelled: Callable[[Lease, _Process], None] | None = None
    died: Callable[[_Process, UUID, UUID, FullreadError], None] | None = None


HANDLERS: dict[str, Handler] = {
    library.KIND_INGEST: Handler(
        run=lambda lease, p: ingest.run(lease, p.tools),
        cancelled=lambda lease, p: ingest.cancelled(lease, p.tools),
        died=lambda p, tenant, subject, error: ingest.died(p.services.database, tenant, subject, error),
    ),
    library.KIND_PURGE_DOCUMENT: Handler(
        run=lambda lease, p: purge.purge_document(lease, p.services.index, p.services.blobs)
    ),
    collections.KIND_PURGE_COLLECTION: Handler(
        run=lambda lease, p: purge.purge_collection(lease, p.services.index, p.services.blobs)
    ),
    analyses.KIND_ANALYSIS: Handler(
        run=lambda lease, p: analysis.run(lease, p.answers),
        cancelled=lambda lease, p: analysis.cancelled(lease, p.services.database),
        died=lambda p, tenant, subject, error: analysis.died(p.services.database, tenant, subject, error),
    ),
    purge.KIND_RETIRE_VERSION: Handler(run=lambda lease, p: purge.retire_version(lease, p.services.index)),
}

_process: _Process | None = None


def process() -> _Process:
    """The clients of this process, made on first use (after the fork: no socket or model is shared)."""
    global _process
    if _process is None:
        made = bootstrap.services(load())
        _process = _Process(
            made, bootstrap.ingest_tools(made), bootstrap.answer_tools(made), f"{socket.gethostname()}:{os.getpid()}"
        )
    return _process


@worker_process_init.connect  # type: ignore[untyped-decorator]
def _after_fork(**_: Any) -> None:
    global _process
    _process = None


@worker_process_shutdown.connect  # type: ignore[untyped-decorator]
def _before_exit(**_: Any) -> None:
    if _process is not None:
        _process.tools.sandbox.close()
        with contextlib.suppress(UnavailableError), _process.services.database.platform() as work_unit:
            # A worker that leaves in order takes its sign of life along: the next start waits for its own workers.
            mine = text("delete from worker_beats where name like :name")
            work_unit.session.execute(mine, {"name": f"%@{_process.holder}"})
        _process.services.database.dispose()


@app.task(name=hints.TASK_WORK)  # type: ignore[untyped-decorator]
def work(queue: str, job_id: str | None = None) -> None:
    """Claim the hinted job, or the next one, and go on through the queue for DRAIN_S seconds."""
    here = process()
    beat(here, queue)
    lease_s = here.services.settings.job_lease_s
    deadline = time.monotonic() + DRAIN_S
    claim: Claim | None = None
    if job_id is not None:
        claim = claims.claim(here.services.database, UUID(job_id), holder=here.holder, lease_s=lease_s, queue=queue)
    if claim is None:
        claim = claims.claim_next(here.services.database, queue, holder=here.holder, lease_s=lease_s)
    while claim is not None:
        run_claim(here, claim)
        if time.monotonic() > deadline:
            hints.send(queue)  # somebody waits perhaps: the next message goes on
            return
        claim = claims.claim_next(here.services.database, queue, holder=here.holder, lease_s=lease_s)


def run_claim(here: _Process, claim: Claim) -> None:
    """Run one claimed job to an end: done, stopped, set back for later, or lost to another worker."""
    settings = here.services.settings
    handler = HANDLERS.get(claim.kind)
    bound = log.bind(job_id=str(claim.job_id), kind=claim.kind, attempt=claim.attempt, fence=claim.fence)
    with Lease(here.services.database, claim, settings.job_lease_s) as lease:
        try:
            if handler is None:
                error = UnavailableError(
                    "unknown_kind", "This worker does not know this kind of job. Update the workers."
                )
                _give_up_or_set_back(here, claim, None, error, counts_as_attempt=True)
                return
            try:
                handler.run(lease, here)
            except JobCancelledError:
                if handler.cancelled is None:
                    with here.services.database.tenant(claim.tenant_id) as uow:
                        claims.finish(uow, claim, "cancelled")
                else:
                    handler.cancelled(lease, here)
        except FenceLostError:
            bound.info("job_lost")
        except UnavailableError as error:
            bound.warning("job_set_back", code=error.code)
            _give_up_or_set_back(here, claim, handler, error, counts_as_attempt=False)
        except Exception as error:  # noqa: BLE001  (a job must end in a state, whatever a handler raises)
            bound.error("job_crashed", error=type(error).__name__, exc_info=not isinstance(error, FullreadError))
            known = (
                error
                if isinstance(error, FullreadError)
                else FullreadError("internal", "Something went wrong on our side. The log has the details.")
            )
            _give_up_or_set_back(here, claim, handler, known, counts_as_attempt=True)


def _give_up_or_set_back(
    here: _Process, claim: Claim, handler: Handler | None, error: FullreadError, *, counts_as_attempt: bool
) -> None:
    database = here.services.database
    try:
        last = counts_as_attempt and claim.attempt >= here.services.settings.job_max_attempts
        if not last and claims.set_back(database, claim, error, counts_as_attempt=counts_as_attempt):
            return
        if handler is not None and handler.died is not None and claim.subject_id is not None:
            handler.died(here, claim.tenant_id, claim.subject_id, error)
        with database.tenant(claim.tenant_id) as uow:
            claims.finish(uow, claim, "failed", code=error.code, message=error.message)
    except (UnavailableError, FenceLostError) as gone:
        # The database is away or the job is somebody else's: the lease runs out and the sweeper takes it back.
        log.warning("job_end_not_stored", job_id=str(claim.job_id), code=gone.code)


@app.task(name="fullread.sweep")  # type: ignore[untyped-decorator]
def sweep_once() -> None:
    """Relay the outbox, repeat lost hints, take back expired leases; one leader at a time."""
    here = process()
    database = here.services.database
    try:
        beat(here, queues.CONTROL)
        with sweep.leadership(database) as leader:
            if not leader:
                return
            for dead in sweep.take_back_expired(database, max_attempts=here.services.settings.job_max_attempts):
                handler = HANDLERS.get(dead.kind)
                if handler is not None and handler.died is not None and dead.subject_id is not None:
                    lost = FullreadError("worker_lost", "The worker was lost too often. Try again.")
                    handler.died(here, dead.tenant_id, dead.subject_id, lost)
            sweep.relay(database, hints.send)
            sweep.repeat_hints(database, hints.send)
            # A hint without a job keeps the workers' sign of life fresh while there is nothing to do.
            for queue in (queues.INGEST, queues.ANALYSIS):
                if _stale(here, queue):
                    hints.send(queue)
    except UnavailableError as error:
        log.warning("sweep_skipped", code=error.code)


def beat(here: _Process, queue: str) -> None:
    """Store a sign of life for /readyz: this process consumes this queue."""
    with here.services.database.platform() as work_unit:
        work_unit.session.execute(
            text(
                "insert into worker_beats (name, queues, at) values (:name, :queues, now())"
                " on conflict (name) do update set at = now()"
            ),
            {"name": f"{queue}@{here.holder}", "queues": [queue]},
        )
        work_unit.session.execute(text("delete from worker_beats where at < now() - interval '10 minutes'"))


def _stale(here: _Process, queue: str) -> bool:
    with here.services.database.platform() as work_unit:
        fresh = work_unit.session.execute(
            text("select 1 from worker_beats where :q = any(queues) and at > now() - make_interval(secs => :s)"),
            {"q": queue, "s": BEAT_S},
        ).first()
    return fresh is None


@worker_ready.connect  # type: ignore[untyped-decorator]
def _announce(sender: Any = None, **_: Any) -> None:
    """As soon as a worker consumes, a hint per queue makes it say so (and picks up what waited)."""
    for queue in sender.task_consumer.queues if sender is not None else ():
        hints.send(queue.name)
