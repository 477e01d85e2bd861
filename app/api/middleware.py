"""Pure ASGI middleware: request ids, body limits, security headers, metrics, one log line per request.

Never BaseHTTPMiddleware: under it a handler does not hear that the client has left.
"""

import time
from typing import Any

import structlog
from anyio import to_thread
from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api import problems
from app.api.dependencies import bearer_token
from app.core import observability
from app.core.errors import FullreadError, TooLargeError
from app.core.ids import new_id
from app.identity import accounts

log = structlog.get_logger()

JSON_BODY_BYTES = 1024 * 1024
#: Room for the multipart envelope around a file of the largest allowed size.
MULTIPART_OVERHEAD_BYTES = 64 * 1024

_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}


class RequestFrame:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, *, max_upload_bytes: int) -> None:
        self.app = app
        self.max_upload_bytes = max_upload_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = str(new_id())
        scope.setdefault("state", {})["request_id"] = request_id
        began = time.monotonic()
        status = 499  # the client left before a status was known

        async def framed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_id
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                observability.http_seconds.labels(_route(scope)).observe(time.monotonic() - began)
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                refusal = await self._refusal(scope, request_id)
                await (refusal or self.app)(scope, self._limited(scope, receive), framed)
            except Exception as error:
                # Answered here: outside of this frame the answer would lack its headers and be counted as 499.
                log.exception("request_crashed", error=type(error).__name__)
                if status != 499:
                    raise
                await problems.crashed(request_id)(scope, receive, framed)
            finally:
                route = _route(scope)
                observability.http_requests.labels(route, str(status)).inc()
                log.info(
                    "http_request",
                    method=scope["method"],
                    route=route,
                    status=status,
                    milliseconds=round((time.monotonic() - began) * 1000, 1),
                )

    async def _refusal(self, scope: Scope, request_id: str) -> Response | None:
        """The answer to a request whose body need not be read, or None.

        Forms go to disk before the route asks for the caller: strangers must not get that far.
        """
        headers = Headers(scope=scope)
        declared = headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > self._limit(scope):
            return problems.respond(_too_large(self._limit(scope)), request_id)
        if _is_form(scope):
            services = scope["app"].state.services
            try:
                token = bearer_token(headers)
                await to_thread.run_sync(lambda: accounts.authenticate(services.database, token))
            except FullreadError as error:
                return problems.respond(error, request_id)
        return None

    def _limit(self, scope: Scope) -> int:
        return self.max_upload_bytes + MULTIPART_OVERHEAD_BYTES if _is_form(scope) else JSON_BODY_BYTES

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """Count what the client sends, whatever it declared, and stop reading over the limit."""
        limit = self._limit(scope)
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > limit:
                    # The framework turns every other error inside a body into a 400.
                    raise HTTPException(413, detail=_too_large(limit).message)
            return message

        return counted


def _is_form(scope: Scope) -> bool:
    content_type = Headers(scope=scope).get("content-type", "")
    return content_type.lower().startswith(("multipart/", "application/x-www-form-urlencoded"))


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError("body_too_large", "The request is over the size limit.", limit_bytes=limit)


def _route(scope: Scope) -> str:
    """The route's pattern: ids never become metric labels."""
    route: Any = scope.get("route")
    return str(getattr(route, "path", "unmatched"))
