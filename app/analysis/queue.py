"""The queue of analyses: a full pass that found no seat becomes a job, and its asker sees its place in the queue."""

import time
from contextlib import aclosing
from typing import Any
from uuid import UUID

import anyio
from anyio import to_thread
from sqlalchemy import text, update

from app.answering import answer, record
from app.answering.answer import Ask, Manner, QueuedError
from app.answering.events import Event, Events, status
from app.answering.record import Draft
from app.answering.tables import Answer
from app.answering.tools import AnswerTools
from app.audit import events as audit
from app.core.clock import now
from app.core.db import Database, UnitOfWork
from app.core.errors import ConflictError, FullreadError, NotFoundError
from app.documents import access
from app.identity.permissions import Action, Principal
from app.jobs import hints, queues, rows
from app.jobs.tables import Job

KIND_ANALYSIS = "analysis"
_POLL_S = 0.5
_REPEAT_S = 15.0


async def stream(tools: AnswerTools, actor: Principal, ask: Ask) -> Events:
    """As `answer.stream`; a full pass without a seat goes on as a job, and this stream shows its place and its end.

    A client that leaves then does not stop the job: its answer is found under the same id.
    """
    try:
        async with aclosing(answer.stream(tools, actor, ask, Manner(may_queue=True))) as steps:
            async for step in steps:
                yield step
        return
    except QueuedError as waiting:
        draft = waiting.draft
    job_id = await to_thread.run_sync(lambda: enqueue(tools.database, actor, draft))
    async with aclosing(follow(tools.database, actor, draft.id, job_id)) as steps:
        async for step in steps:
            yield step


def enqueue(database: Database, actor: Principal, draft: Draft) -> UUID:
    """Record the answer as queued with its job in one transaction; the message after it is a hint."""
    with database.tenant(actor.tenant_id) as uow:
        access.open_collection(uow, actor, draft.collection_id, Action.ASK)
        job = rows.enqueue(
            uow,
            kind=KIND_ANALYSIS,
            queue=queues.ANALYSIS,
            subject_id=draft.id,
            collection_id=draft.collection_id,
            created_by=actor.user_id,
        )
        draft.job_id = job.id
        record.write(uow, actor, draft)
    record.count(draft)
    hints.send(queues.ANALYSIS, job.id)
    return job.id


async def follow(database: Database, actor: Principal, answer_id: UUID, job_id: UUID) -> Events:
    """Place in the queue, progress and end of an analysis. Raises the error that it failed with."""
    shown: dict[str, Any] | None = None
    told = 0.0
    while True:
        now_at = await to_thread.run_sync(lambda: _state(database, actor, job_id))
        # Repeated while nothing changes: a proxy cuts a connection that is silent for long.
        if now_at != shown or time.monotonic() - told > _REPEAT_S:
            shown, told = now_at, time.monotonic()
            if now_at["state"] == "queued":
                yield status("queued", job_id=str(job_id), position=now_at["position"])
            elif now_at["state"] == "running" and "section" in now_at["progress"]:
                yield Event("status", {"phase": "reading", **now_at["progress"]})
        if now_at["state"] not in rows.LIVE_STATES:
            break
        await anyio.sleep(_POLL_S)
    made = await to_thread.run_sync(lambda: _ended(database, actor, answer_id))
    for citation in made["citations"]:
        yield Event("citation", citation)
    for verdict in made["verdicts"]:
        yield Event("verdict", verdict)
    yield Event("delta", {"text": made["text"]})
    yield Event("answer", made)


def _state(database: Database, actor: Principal, job_id: UUID) -> dict[str, Any]:
    with database.tenant(actor.tenant_id) as uow:
        job = rows.find(uow, job_id)
        if job is None:
            raise NotFoundError
        found: dict[str, Any] = {"state": job.state, "progress": dict(job.progress), "position": 0}
    if found["state"] == "queued":
        found["position"] = position(database, job_id)
    return found


def position(database: Database, job_id: UUID) -> int:
    """How many analyses of any tenant run or stand before this one, plus one: a number, no names."""
    with database.platform() as work:
        before = work.session.execute(
            text(
                "select count(*) from jobs j, jobs mine where mine.id = :id and j.queue = mine.queue and"
                " (j.state = 'running' or (j.state = 'queued' and (j.priority, j.id) < (mine.priority, mine.id)))"
            ),
            {"id": job_id},
        ).scalar_one()
    return int(before) + 1


def _ended(database: Database, actor: Principal, answer_id: UUID) -> dict[str, Any]:
    with database.tenant(actor.tenant_id) as uow:
        row, citations = record.find(uow, actor, answer_id)
        made = record.stored(row, citations)
    if row.state == "cancelled":
        raise ConflictError("analysis_cancelled", "The analysis was cancelled.")
    if row.state == "failed":
        error = FullreadError(row.code or "internal", row.message or "The analysis failed.")
        raise error
    return made


def cancel(uow: UnitOfWork, actor: Principal, job: Job) -> None:
    """Cancel an analysis: its asker may, and whoever may edit the collection's documents."""
    if job.collection_id is not None and job.created_by != actor.user_id:
        access.open_collection(uow, actor, job.collection_id, Action.WRITE_DOCUMENTS)
    if job.state not in rows.LIVE_STATES:
        raise ConflictError("not_cancellable", "This job is over, or must run to its end.", state=job.state)
    if rows.request_cancel(uow, job):
        cancelled(uow, job.subject_id)
    audit.append(uow, actor.actor, "job.cancel", "job", job.id, request_id=actor.request_id)


def cancelled(uow: UnitOfWork, answer_id: UUID | None) -> None:
    """The answer of an analysis that was cancelled."""
    _end(uow, answer_id, "cancelled", "analysis_cancelled", "The analysis was cancelled.")


def failed(uow: UnitOfWork, answer_id: UUID | None, error: FullreadError) -> None:
    """The answer of an analysis that failed."""
    _end(uow, answer_id, "failed", error.code, error.message)


def _end(uow: UnitOfWork, answer_id: UUID | None, state: str, code: str, message: str) -> None:
    uow.session.execute(
        update(Answer)
        .where(Answer.id == answer_id, Answer.state == "queued")
        .values(state=state, code=code, message=message, finished_at=now())
    )
