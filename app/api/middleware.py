"""Pure ASGI middleware: request ids, body limits, security headers, metrics, one log line per request.

Never BaseHTTPMiddleware: under it a handler does not hear that the client has left.
"""

import time
from typing import Any

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.core import observability
from app.core.errors import TooLargeError
from app.core.ids import new_id

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
                await self.app(scope, self._limited(scope, receive), framed)
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

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """Count what the client sends, whatever it declared, and stop reading over the limit."""
        content_type = dict(scope["headers"]).get(b"content-type", b"")
        multipart = content_type.startswith(b"multipart/form-data")
        limit = self.max_upload_bytes + MULTIPART_OVERHEAD_BYTES if multipart else JSON_BODY_BYTES
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > limit:
                    raise TooLargeError("body_too_large", "The request is over the size limit.", limit_bytes=limit)
            return message

        return counted


def _route(scope: Scope) -> str:
    """The route's pattern: ids never become metric labels."""
    route: Any = scope.get("route")
    return str(getattr(route, "path", "unmatched"))
