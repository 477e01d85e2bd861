"""Routes of questions and answers: as server-sent events, or as one JSON document from the same generator."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any
from uuid import UUID

import anyio
import structlog
from anyio import to_thread
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from app.analysis import queue
from app.answering import again, record
from app.answering.answer import Ask
from app.answering.events import Event, Events
from app.answering.tables import Answer
from app.api.dependencies import CursorQuery, LimitQuery, PrincipalDep, ServicesDep, UnitDep
from app.api.problems import problem
from app.api.schemas import AnswerOut, AskIn, Items
from app.bootstrap import Services, answer_tools
from app.core.errors import FullreadError
from app.documents import access
from app.identity.permissions import Action, Principal
from app.retrieval import search

log = structlog.get_logger()

router = APIRouter(tags=["answers"])

#: How often the JSON form looks whether the client is still there.
WATCH_S = 0.2


def _listed(row: Answer) -> AnswerOut:
    return AnswerOut.model_validate(record.stored(row, ()))


_ANSWERED: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "the answer, or its events"}
}


@router.post("/collections/{collection_id}/answers", response_model=AnswerOut, responses=_ANSWERED)
async def ask(
    collection_id: UUID,
    body: AskIn,
    request: Request,
    services: ServicesDep,
    actor: PrincipalDep,
    accept: Annotated[str, Header()] = "application/json",
) -> Response:
    """Ask a question. `Accept: text/event-stream` streams; otherwise the whole answer comes as JSON.

    A client that leaves frees the model server within two seconds; its answer is recorded as abandoned. A full pass
    that gets no seat becomes a job (event `queued` with its place): it goes on when its client leaves.
    """
    asked = Ask(
        collection_id=collection_id,
        question=search.checked_query(body.question),
        route=body.route,
        document_ids=tuple(dict.fromkeys(body.document_ids)),
    )
    return await _respond(asked, request, services, actor, accept)


@router.post("/answers/{answer_id}/again", response_model=AnswerOut, responses=_ANSWERED)
async def ask_again(
    answer_id: UUID,
    request: Request,
    services: ServicesDep,
    actor: PrincipalDep,
    accept: Annotated[str, Header()] = "application/json",
) -> Response:
    """Ask a recorded question again, over the documents of today; the answer names what `changes` against the first."""

    def stored() -> Ask:
        with services.database.tenant(actor.tenant_id) as uow:
            return again.ask_of(uow, actor, answer_id)

    return await _respond(await to_thread.run_sync(stored), request, services, actor, accept)


async def _respond(asked: Ask, request: Request, services: Services, actor: Principal, accept: str) -> Response:
    def allowed() -> None:
        with services.database.tenant(actor.tenant_id) as uow:
            access.open_collection(uow, actor, asked.collection_id, Action.ASK)

    await to_thread.run_sync(allowed)
    events = _events(services, actor, asked)
    if "text/event-stream" in accept:
        return StreamingResponse(
            _sse(events, actor.request_id),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )
    return await _json(events, request)


async def _events(services: Services, actor: Principal, asked: Ask) -> Events:
    """The events of an answer; that of a repeated question ends with what differs."""
    async with aclosing(queue.stream(answer_tools(services), actor, asked)) as steps:
        async for step in steps:
            if step.kind == "answer" and asked.again_of is not None:
                data = step.data
                made = await to_thread.run_sync(lambda: again.compared(services.database, actor, data))  # noqa: B023
                yield Event("answer", made)
            else:
                yield step


async def _sse(events: AsyncGenerator[Event, None], request_id: str) -> AsyncGenerator[str, None]:
    """Events as text; an error after the start is an event, because the status has been sent."""
    try:
        async with aclosing(events) as steps:
            async for event in steps:
                yield _frame(event.kind, event.data)
    except FullreadError as error:
        yield _frame("error", problem(error, request_id))
    except Exception as error:
        log.exception("answer_crashed", error=type(error).__name__)
        hidden = FullreadError("internal", f"Something went wrong on our side. Name this id to support: {request_id}.")
        yield _frame("error", problem(hidden, request_id))


def _frame(kind: str, data: dict[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"


async def _json(events: AsyncGenerator[Event, None], request: Request) -> Response:
    """Run the same generator beside a watch on the client; whoever ends first ends the other."""
    final: dict[str, Any] = {}
    failure: FullreadError | None = None

    async def run(scope: anyio.CancelScope) -> None:
        nonlocal failure
        try:
            async with aclosing(events) as steps:
                async for event in steps:
                    if event.kind == "answer":
                        final.update(event.data)
        except FullreadError as error:
            failure = error
        scope.cancel()

    async def watch(scope: anyio.CancelScope) -> None:
        while not await request.is_disconnected():  # noqa: ASYNC110  (the server offers no event to wait for)
            await anyio.sleep(WATCH_S)
        scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(watch, group.cancel_scope)
        await run(group.cancel_scope)
    if failure is not None:
        raise failure
    if not final:
        return Response(status_code=499)  # nobody reads it: the client has left
    return JSONResponse(final)


@router.get("/answers")
def list_answers(
    uow: UnitDep,
    actor: PrincipalDep,
    limit: LimitQuery = 50,
    cursor: CursorQuery = None,
    collection_id: Annotated[UUID | None, Query()] = None,
) -> Items[AnswerOut]:
    """The caller's answers, newest first, without citations."""
    found = record.page(uow, actor, before=cursor, limit=limit, collection_id=collection_id)
    return Items(items=[_listed(row) for row in found], next=str(found[-1].id) if len(found) == limit else None)


@router.get("/answers/{answer_id}")
def get_answer(answer_id: UUID, uow: UnitDep, actor: PrincipalDep) -> AnswerOut:
    """One answer with its citations; a citation of a deleted document has no document id any more."""
    row, citations = record.find(uow, actor, answer_id)
    return AnswerOut.model_validate(record.stored(row, citations))
