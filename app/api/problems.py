"""Errors as RFC 9457 problem documents: one shape, a stable code, a sentence, facts; never internals."""

from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from app.core.errors import FullreadError, TooLargeError

log = structlog.get_logger()

MEDIA_TYPE = "application/problem+json"
BEARER_CHALLENGE = 'Bearer realm="fullread"'
#: Of the routes for reporting tools: Excel and Power Query ask for user and password only after this one.
BASIC_CHALLENGE = 'Basic realm="Fullread", charset="UTF-8"'
_TITLES = {404: "Not found", 405: "Method not allowed", 400: "Bad request", 413: "Too large"}


def problem(error: FullreadError, request_id: str) -> dict[str, Any]:
    """The problem document of an error. Facts that are none of the standard members are shown as they are."""
    return {
        **error.facts,
        "type": f"urn:fullread:problem:{error.code}",
        "title": error.title,
        "status": error.status,
        "code": error.code,
        "detail": error.message,
        "request_id": request_id,
    }


def respond(error: FullreadError, request_id: str, *, challenge: str = BEARER_CHALLENGE) -> JSONResponse:
    """The HTTP response of an error; `challenge` says how to sign in."""
    headers = {}
    if error.retryable:
        headers["retry-after"] = str(error.facts.get("retry_after_s", 2))
    if error.status == 401:
        headers["www-authenticate"] = challenge
    return JSONResponse(problem(error, request_id), status_code=error.status, media_type=MEDIA_TYPE, headers=headers)


def crashed(request_id: str) -> JSONResponse:
    """The response to an error that nobody expected: an id for support, and nothing of the error itself."""
    hidden = FullreadError("internal", f"Something went wrong on our side. Name this id to support: {request_id}.")
    return respond(hidden, request_id)


def install(app: FastAPI) -> None:
    """Register the handlers on the application."""

    @app.exception_handler(FullreadError)
    async def _known(request: Request, error: FullreadError) -> JSONResponse:
        if error.status >= 500:
            log.warning("request_failed", code=error.code)
        challenge = getattr(request.state, "challenge", BEARER_CHALLENGE)
        return respond(error, _request_id(request), challenge=challenge)

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        # The input itself is not echoed: it may hold secrets or document text.
        fields = [
            {"field": ".".join(str(part) for part in item["loc"]), "message": item["msg"]} for item in error.errors()
        ]
        return JSONResponse(
            {
                "type": "urn:fullread:problem:invalid_request",
                "title": "Invalid input",
                "status": 422,
                "code": "invalid_request",
                "detail": "; ".join(f"{f['field']}: {f['message']}" for f in fields[:5]),
                "fields": fields,
                "request_id": _request_id(request),
            },
            status_code=422,
            media_type=MEDIA_TYPE,
        )

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == TooLargeError.status:
            return respond(TooLargeError("body_too_large", str(error.detail)), _request_id(request))
        title = _TITLES.get(error.status_code, "Error")
        return JSONResponse(
            {
                "type": "about:blank",
                "title": title,
                "status": error.status_code,
                "code": title.lower().replace(" ", "_"),
                "detail": title,
                "request_id": _request_id(request),
            },
            status_code=error.status_code,
            media_type=MEDIA_TYPE,
            headers=error.headers,
        )


def _request_id(request: Request) -> str:
    return str(getattr(request.state, "request_id", ""))
