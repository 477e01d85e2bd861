"""Making, reading and cancelling jobs inside a tenant's unit of work."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import select, update

from app.core.clock import now
from app.core.db import UnitOfWork
from app.core.ids import new_id
from app.jobs.tables import Job, JobEvent, Outbox

LIVE_STATES = ("queued", "running")


def enqueue(
    uow: UnitOfWork,
    *,
    kind: str,
    queue: str,
    subject_id: UUID | None = None,
    collection_id: UUID | None = None,
    created_by: UUID | None = None,
    payload: dict[str, Any] | None = None,
    priority: int = 0,
) -> Job:
    """Write the job and its outbox row in the caller's transaction. `payload` holds ids and settings only.

    `priority`: smaller runs earlier. Send `app.jobs.hints.send` after the commit; the relay repeats it if lost.
    """
    job = Job(
        tenant_id=uow.tenant_id,
        id=new_id(),
        kind=kind,
        queue=queue,
        state="queued",
        subject_id=subject_id,
        collection_id=collection_id,
        created_by=created_by,
        payload=payload or {},
        progress={},
        priority=priority,
        attempt=0,
        setbacks=0,
        fence=0,
        holder=None,
        lease_until=None,
        run_after=now(),
        hinted_at=None,
        cancel_requested_at=None,
        code=None,
        message=None,
        created_at=now(),
        started_at=None,
        finished_at=None,
    )
    uow.session.add(job)
    uow.session.flush()
    uow.session.add(
        Outbox(tenant_id=uow.tenant_id, id=new_id(), job_id=job.id, queue=queue, created_at=now(), sent_at=None)
    )
    record(uow, job.id, "queued")
    return job


def record(uow: UnitOfWork, job_id: UUID, event: str, **detail: Any) -> None:
    """Append to the job's history."""
    uow.session.add(JobEvent(tenant_id=uow.tenant_id, id=new_id(), job_id=job_id, at=now(), event=event, detail=detail))


def find(uow: UnitOfWork, job_id: UUID) -> Job | None:
    """One job of the tenant, or None."""
    return uow.session.get(Job, (uow.tenant_id, job_id))


def live_jobs(uow: UnitOfWork, subject_id: UUID, kind: str | None = None) -> Sequence[Job]:
    """Queued or running jobs about a subject (a version, a document, a collection)."""
    query = select(Job).where(Job.subject_id == subject_id, Job.state.in_(LIVE_STATES))
    if kind is not None:
        query = query.where(Job.kind == kind)
    return uow.session.scalars(query).all()


def request_cancel(uow: UnitOfWork, job: Job) -> bool:
    """Cancel a queued job now, or ask a running one to stop. True when it ended here and now.

    The queued case is a compare-and-set: a worker that claims at the same moment wins, and then sees the request.
    """
    ended = uow.session.execute(
        update(Job)
        .where(Job.id == job.id, Job.state == "queued")
        .values(state="cancelled", finished_at=now(), cancel_requested_at=now())
        .returning(Job.id)
    ).first()
    if ended is not None:
        record(uow, job.id, "cancelled")
        return True
    uow.session.execute(
        update(Job)
        .where(Job.id == job.id, Job.state == "running", Job.cancel_requested_at.is_(None))
        .values(cancel_requested_at=now())
    )
    record(uow, job.id, "cancel_requested")
    return False


def history(uow: UnitOfWork, job_id: UUID) -> Sequence[JobEvent]:
    """Events of a job, oldest first."""
    return uow.session.scalars(select(JobEvent).where(JobEvent.job_id == job_id).order_by(JobEvent.id)).all()
