"""The error tree: categories with a stable `code`, a sentence for a person and facts as fields.

The category decides once the HTTP status (RFC 9457 problem documents) and once whether a retry helps.
"""

from typing import Any, ClassVar


class FullreadError(Exception):
    """Base of every expected failure.

    `code` is stable and machine readable, `message` says what happened and what to do, `facts` are
    JSON-serialisable fields that a client may show. Never put document text into any of them.
    """

    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    title: ClassVar[str] = "Internal error"

    def __init__(self, code: str, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.facts = facts


class InvalidInputError(FullreadError):
    """The request itself is wrong (422)."""

    status = 422
    title = "Invalid input"


class UnauthenticatedError(FullreadError):
    """No credentials, or credentials that are not valid any more (401)."""

    status = 401
    title = "Not signed in"


class ForbiddenError(FullreadError):
    """The caller sees the object but its role does not allow the action (403)."""

    status = 403
    title = "Not allowed"


class NotFoundError(FullreadError):
    """The object does not exist or the caller may not see it: the two are the same answer (404)."""

    status = 404
    title = "Not found"

    def __init__(self, code: str = "not_found", message: str = "There is no such object.", **facts: Any) -> None:
        super().__init__(code, message, **facts)


class ConflictError(FullreadError):
    """The object's state does not allow the action now (409)."""

    status = 409
    title = "Conflict"


class TooLargeError(FullreadError):
    """The body or the file is over its limit (413)."""

    status = 413
    title = "Too large"


class RateLimitedError(FullreadError):
    """Too many requests; `retry_after_s` in the facts (429)."""

    status = 429
    retryable = True
    title = "Too many requests"


class UnavailableError(FullreadError):
    """A service that we need does not answer; a retry helps (503)."""

    status = 503
    retryable = True
    title = "Service unavailable"


class UpstreamError(FullreadError):
    """A model server answered with something that a retry will not change (502)."""

    status = 502
    title = "Model server error"


class FenceLostError(FullreadError):
    """Another holder took the job over: this one must stop writing at once (409, never shown to users)."""

    status = 409
    title = "Fence lost"
