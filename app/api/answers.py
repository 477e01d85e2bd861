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

from app.answering import answer, record
from app.answering.answer import Event
from app.answering.tables import Answer
from app.api.dependencies import CursorQuery, LimitQuery, PrincipalDep, ServicesDep, UnitDep
from app.api.problems import problem
from app.api.schemas import AnswerOut, AskIn, Items
from app.bootstrap import answer_tools
from app.core.errors import FullreadError
from app.documents import access
from app.identity.permissions import Action

log = structlog.get_logger()

router = APIRouter(tags=["answers"])

#: How often the JSON form looks whether the client is still there.
WATCH_S = 0.2


def _answer(row: Answer, citations: list[dict[str, Any]] | None = None) -> AnswerOut:
    shown = AnswerOut.model_validate(row, from_attributes=True)
    return shown if citations is None else shown.model_copy(update={"citations": citations})


@router.post(
    "/collections/{collection_id}/answers",
    response_model=AnswerOut,
    responses={200: {"content": {"text/event-stream": {}}, "description": "the answer, or its events"}},
)
async def ask(
    collection_id: UUID,
    body: AskIn,
    request: Request,
    services: ServicesDep,
    actor: PrincipalDep,
    accept: Annotated[str, Header()] = "application/json",
) -> Response:
    """Ask a question. `Accept: text/event-stream` streams; otherwise the whole answer comes as JSON.

    A client that leaves frees the model server within two seconds; its answer is recorded as abandoned.
    """

    def allowed() -> None:
        with services.database.tenant(actor.tenant_id) as uow:
            access.open_collection(uow, actor, collection_id, Action.ASK)

    await to_thread.run_sync(allowed)
    answer.checked(body.question, body.route)
    events = answer.stream(answer_tools(services), actor, collection_id, body.question, body.route)
    if "text/event-stream" in accept:
        return StreamingResponse(
            _sse(events, actor.request_id),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )
    return await _json(events, request)


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
    return Items(items=[_answer(row) for row in found], next=str(found[-1].id) if len(found) == limit else None)


@router.get("/answers/{answer_id}")
def get_answer(answer_id: UUID, uow: UnitDep, actor: PrincipalDep) -> AnswerOut:
    """One answer with its citations; a citation of a deleted document has no document id any more."""
    row, citations = record.find(uow, actor, answer_id)
    return _answer(
        row,
        [
            {
                "ordinal": c.ordinal,
                "document": c.document_name,
                "document_id": str(c.document_id) if c.document_id else None,
                "version_id": str(c.version_id) if c.version_id else None,
                "page": c.page,
                "page_label": c.page_label,
                "quote": c.quote,
                "verified": c.verified,
                "boxes": c.boxes,
                "char_start": c.char_start,
                "char_end": c.char_end,
                "claim": c.claim,
            }
            for c in citations
        ],
    )
