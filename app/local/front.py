"""What the two local model servers share: the key check, OpenAI-shaped errors, bodies with a limit, leaving clients."""

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

CLIENT_CLOSED_REQUEST = 499
OPEN_PATHS = frozenset({"/health"})

Result = TypeVar("Result")
Handler = Callable[[Request], Awaitable[Response]]


class ApiError(Exception):
    """An answer in vLLM's error shape. `param` is what clients decide by, never the text."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "BadRequestError",
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.headers = headers


class ClientGoneError(Exception):
    """The client closed its connection before it had an answer."""


def error_response(error: ApiError) -> JSONResponse:
    """{"error": {message, type, param, code}}: what vLLM and OpenAI send."""
    return JSONResponse(
        {"error": {"message": error.message, "type": error.kind, "param": error.param, "code": error.status}},
        status_code=error.status,
        headers=error.headers,
    )


def busy(message: str, retry_after_s: int = 1) -> ApiError:
    """503 with Retry-After: the bounded queue is full."""
    return ApiError(503, message, kind="ServiceUnavailableError", headers={"Retry-After": str(retry_after_s)})


async def read_object(request: Request, limit_bytes: int) -> dict[str, Any]:
    """The body as a JSON object. Raises ApiError 413 or 400, ClientGoneError when the client left meanwhile."""
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > limit_bytes:
                raise ApiError(413, f"The body is over {limit_bytes} bytes.", kind="RequestEntityTooLarge")
    except ClientDisconnect as error:
        raise ClientGoneError from error
    try:
        value = json.loads(bytes(body))
    except ValueError as error:
        raise ApiError(400, "The body is not valid JSON.") from error
    if not isinstance(value, dict):
        raise ApiError(400, "The body must be a JSON object.")
    return value


async def unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Run `work`, cancelled as soon as the client closes the connection (then raises ClientGoneError).

    Only for a request whose body has been read: from then on receive() gives nothing but the disconnect.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class RequireKey:
    """Pure ASGI middleware: `Authorization: Bearer KEY` on all but the health check, compared in constant time."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._expected = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                response = error_response(ApiError(401, "The API key is missing or wrong.", kind="AuthenticationError"))
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _on_api_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(error)


async def _on_gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)  # nobody reads it


async def _on_http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = "NotFoundError" if error.status_code == 404 else "BadRequestError"
    return error_response(ApiError(error.status_code, error.detail, kind=kind))


def application(routes: list[Route], key: str) -> ASGIApp:
    """A Starlette app with these routes, our error shapes and, when `key` is not empty, the key check."""
    app = Starlette(
        routes=routes,
        exception_handlers={ApiError: _on_api_error, ClientGoneError: _on_gone, HTTPException: _on_http_error},
    )
    return RequireKey(app, key) if key else app


def read_key(path: Path | None) -> str:
    """The first line of the key file; empty when no file is given."""
    if path is None:
        return ""
    key = path.read_text(encoding="utf-8").strip()
    if not key:
        raise SystemExit(f"{path} is empty: write an API key into it or leave --api-key-file away")
    return key


def serve(app: ASGIApp, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM; requests in flight get 3 s."""
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=3,
        lifespan="off",
    )
