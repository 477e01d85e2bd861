"""Question -> proved answer: prepare (scope, route), stream (no transaction open), record (one transaction).

`stream` is an async generator: closing it, or cancelling the task that reads it, closes the connection to the model
server and records the answer as abandoned.
"""

import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import cast, get_args
from uuid import UUID

import anyio
from anyio import to_thread

from app.answering import corpus, coverage, fullpass, passages, record, run, sections, tally
from app.answering.chat import Line
from app.answering.events import Event, Events, status
from app.answering.fullpass import NoSeatError
from app.answering.record import Draft
from app.answering.tools import AnswerTools
from app.core.clock import now
from app.core.errors import FullreadError
from app.core.ids import new_id
from app.identity.permissions import Principal
from app.retrieval import router, search, tasks
from app.retrieval.router import Route


@dataclass(frozen=True, slots=True)
class Ask:
    """A question as it is asked. `document_ids` narrows it to some documents; `again_of` repeats a stored answer."""

    collection_id: UUID
    question: str
    route: Route = "auto"
    document_ids: tuple[UUID, ...] = ()
    again_of: UUID | None = None


class QueuedError(Exception):
    """No seat was free in time: nothing was recorded, `draft` is to become an analysis job."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        super().__init__("no seat at the engine")


@dataclass(frozen=True, slots=True)
class Manner:
    """How an answer is made: interactively (the default), or by a job for an answer that is stored already."""

    lane: str = "interactive"
    #: Longest wait for a seat; None: the setting of interactive questions.
    wait_s: float | None = None
    #: Whether a full pass that gets no seat raises QueuedError.
    may_queue: bool = False
    answer_id: UUID | None = None
    job_id: UUID | None = None
    #: When the question was asked, for a job.
    asked_at: datetime | None = None
    #: Writes the draft; None: in a transaction of its own.
    save: Callable[[Draft], None] | None = None


def asked(route: str) -> Route:
    """A stored route as it was asked. Raises ValueError for another word."""
    for known in get_args(Route):
        if route == known:
            return cast(Route, known)
    raise ValueError(route)


async def stream(tools: AnswerTools, actor: Principal, ask: Ask, manner: Manner = Manner()) -> Events:
    """Answer a question over one collection, as events; the last one is `answer` or `error`.

    Whatever ends it (an error, a client that leaves) is recorded with the usage known by then.
    """
    draft = Draft(
        id=manner.answer_id or new_id(),
        collection_id=ask.collection_id,
        question=search.checked_query(ask.question),
        asked_route=ask.route,
        route="retrieval",
        created_at=manner.asked_at or now(),
        document_ids=ask.document_ids,
        again_of=ask.again_of,
        job_id=manner.job_id,
        model=tools.profile.model,
        form=tools.profile.answer_form,
    )
    wait_s = tools.wait_s if manner.wait_s is None else manner.wait_s
    line = Line(actor, draft.id, draft.meter, lane=manner.lane, wait_s=wait_s)
    save = manner.save or (lambda made: record.store(tools.database, actor, made))
    began = time.monotonic()
    try:
        async with aclosing(_steps(tools, line, draft, ask)) as steps:
            async for step in steps:
                yield step
        draft.timings["total_s"] = round(time.monotonic() - began, 4)
    except FullreadError as error:
        if isinstance(error, NoSeatError) and manner.may_queue:
            draft.state = "queued"
            raise QueuedError(draft) from None
        # Before anything was searched the caller gets the plain error (404, 403, 503) and nothing is recorded.
        refused = draft.coverage is None and error.status < 500 and manner.answer_id is None
        draft.state, draft.code, draft.message = "failed", error.code, error.message
        if refused:
            raise
        await _save(save, draft)
        raise
    except BaseException as error:
        left = isinstance(error, GeneratorExit | anyio.get_cancelled_exc_class())
        draft.state = "abandoned" if left else "failed"
        draft.code = "client_left" if left else "internal"
        await _save(save, draft)
        raise
    await _save(save, draft)
    yield Event("answer", record.shown(draft))


async def _save(save: Callable[[Draft], None], draft: Draft) -> None:
    """Record in a thread, shielded: a client that leaves does not take its own record away."""
    with anyio.CancelScope(shield=True):
        await to_thread.run_sync(lambda: save(draft))


async def _steps(tools: AnswerTools, line: Line, draft: Draft, ask: Ask) -> Events:
    """Scope, route, answer; the draft is complete at the end."""
    yield status("searching", answer_id=str(draft.id))
    scope, size = await to_thread.run_sync(lambda: corpus.scope(tools, line.actor, draft))
    asked = tasks.read(draft.question)
    decision = router.decide(ask.route, asked, size, corpus.limits(tools))
    draft.route, draft.by_document = decision.route, decision.by_document
    draft.route_reasons = list(decision.reasons)
    yield status("routed", route=decision.route, by_document=decision.by_document, reasons=list(decision.reasons))
    plan: sections.Plan | None = None
    write: Events | None
    if decision.route == "retrieval":
        write = passages.answer(tools, line, draft, scope)
    else:
        shape = "documents" if decision.by_document else fullpass.shape(tools)
        scope, snapshot = await to_thread.run_sync(lambda: corpus.frozen(tools, line.actor, draft))
        plan = await sections.plan(tools, line.actor, snapshot, shape)
        draft.coverage = fullpass.covered(scope, plan)
        draft.route_reasons.extend(corpus.split_note(plan, draft.coverage))
        yield status("reading", coverage=draft.coverage.sentence, sections=len(plan.sections))
        if not plan.sections:
            draft.state, write = "not_found", None
        elif decision.by_document:
            write = tally.answer(tools, line, draft, plan, asked)
        else:
            write = fullpass.answer(tools, line, draft, plan, asked)
    if write is not None:
        async with aclosing(write) as steps:
            async for step in steps:
                yield step
    if draft.state == "not_found":
        not_found(draft)
    draft.run = run.record_of(tools, draft, scope, plan)


def not_found(draft: Draft) -> None:
    """Turn the draft into the answer that says where nothing was found."""
    assert draft.coverage is not None
    draft.state, draft.code = "not_found", "not_found"
    draft.text = coverage.not_found(draft.coverage)
    draft.citations.clear()
