"""The job of an analysis: the same answer as an interactive one, on the batch lane, under the job's fence."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from uuid import UUID

import anyio
from anyio import to_thread

from app.analysis import queue
from app.answering import answer, record
from app.answering.answer import Ask, Manner
from app.answering.record import Draft
from app.answering.tables import Answer
from app.answering.tools import AnswerTools
from app.core.db import Database
from app.core.errors import FenceLostError, FullreadError, UnavailableError
from app.identity import accounts
from app.identity.permissions import Principal, Scope
from app.jobs import claims
from app.jobs.claims import JobCancelledError, Lease

#: A batch seat may take long: others read for minutes. The job's lease lives on meanwhile.
_SEAT_WAIT_S = 6 * 3600.0
_WATCH_S = 0.5
_ENDED = ("succeeded", "not_found")


@dataclass(slots=True)
class _Run:
    lease: Lease
    stopped: Exception | None = None
    error: FullreadError | None = None


def run(lease: Lease, tools: AnswerTools) -> None:
    """Read and answer, then store answer and job's end in one transaction. Raises UnavailableError to try again."""
    found = _asked(lease, tools.database)
    if found is None:
        with lease.unit() as uow:
            claims.finish(uow, lease.claim, "cancelled", code="deleted")
        return
    actor, ask, manner = found
    state = _Run(lease)
    asyncio.run(_answer(state, tools, actor, ask, manner))
    if state.stopped is not None:
        raise state.stopped
    if state.error is not None:
        if isinstance(state.error, UnavailableError):
            raise state.error
        with lease.unit() as uow:
            queue.failed(uow, lease.claim.subject_id, state.error)
            claims.finish(uow, lease.claim, "failed", code=state.error.code, message=state.error.message)


def cancelled(lease: Lease, database: Database) -> None:
    """A person stopped the running analysis."""
    with database.tenant(lease.claim.tenant_id) as uow:
        claims.finish(uow, lease.claim, "cancelled")
        queue.cancelled(uow, lease.claim.subject_id)


def died(database: Database, tenant_id: UUID, answer_id: UUID, error: FullreadError) -> None:
    """The analysis is out of attempts."""
    with database.tenant(tenant_id) as uow:
        queue.failed(uow, answer_id, error)


def _asked(lease: Lease, database: Database) -> tuple[Principal, Ask, Manner] | None:
    """Who asked what, with the rights of now; None when the answer is gone or ended."""
    claim = lease.claim
    with database.tenant(claim.tenant_id) as uow:
        row = uow.session.get(Answer, (claim.tenant_id, claim.subject_id))
        if row is None or row.state != "queued":
            return None
        actor = accounts.principal_of(uow, row.user_id, frozenset({Scope.READ}))
        ask = Ask(
            collection_id=row.collection_id,
            question=row.question,
            route=answer.asked(row.asked_route),
            document_ids=tuple(UUID(document_id) for document_id in row.selection.get("document_ids", ())),
            again_of=row.again_of,
        )
        manner = Manner(
            lane="batch", wait_s=_SEAT_WAIT_S, answer_id=row.id, job_id=claim.job_id, asked_at=row.created_at
        )
        return actor, ask, manner


async def _answer(state: _Run, tools: AnswerTools, actor: Principal, ask: Ask, manner: Manner) -> None:
    lease = state.lease

    def save(draft: Draft) -> None:
        if draft.state not in _ENDED:
            return  # how it ended otherwise is decided by the job: tried again, cancelled, failed
        with lease.unit() as uow:
            record.write(uow, actor, draft)
            claims.finish(uow, lease.claim, "succeeded")
        record.count(draft)

    made = replace(manner, save=save)
    async with anyio.create_task_group() as group:
        group.start_soon(_watch, state, group.cancel_scope.cancel)
        try:
            async with aclosing(answer.stream(tools, actor, ask, made)) as steps:
                async for step in steps:
                    if step.kind == "status" and "section" in step.data:
                        await to_thread.run_sync(lambda data=step.data: _progress(lease, data))  # type: ignore[misc]
        except (JobCancelledError, FenceLostError) as stopped:
            state.stopped = stopped
        except FullreadError as error:
            state.error = error
        group.cancel_scope.cancel()


def _progress(lease: Lease, data: dict[str, object]) -> None:
    with lease.unit() as uow:
        lease.progress(uow, **{name: value for name, value in data.items() if isinstance(value, int | str)})


async def _watch(state: _Run, stop: Callable[[], None]) -> None:
    """Hear of a cancel or a lost lease while the engine is silent; the stream is closed at once."""
    while True:
        await anyio.sleep(_WATCH_S)
        try:
            state.lease.check()
        except (JobCancelledError, FenceLostError) as stopped:
            state.stopped = stopped
            stop()
            return
