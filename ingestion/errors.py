"""The one error of ingestion: a stable code, a sentence for a person, facts as fields. Never document text."""

from typing import Any, Final

# Every code a caller can meet, with what it means. Stable: rows, the CLI and the API show them.
CODES: Final[dict[str, str]] = {
    "empty": "the file holds no bytes, or no content at all",
    "needs_password": "the file is encrypted and no password (or a wrong one) was given",
    "needs_key": "the message is encrypted for a key that is not here",
    "corrupt": "the file is damaged",
    "type_mismatch": "the name's extension contradicts the content",
    "unsupported_format": "no reader for this kind of file",
    "unsupported_xfa": "the PDF is an XFA form whose pages hold only a notice",
    "archive_limits": "the container would unpack to more than is allowed",
    "too_large": "the file is over the size limit",
    "resource_limit": "the parser went over its memory, CPU or output limit",
    "timeout": "the parser went over its deadline",
    "crashed": "the parser process died",
    "no_text": "the file is not empty but no text could be read",
}


class ParseError(Exception):
    """A file (or page range) that cannot be read. `retryable` says whether the same call may succeed later."""

    def __init__(self, code: str, message: str, retryable: bool = False, **facts: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.facts = facts

    def to_json(self) -> dict[str, Any]:
        """Form that crosses the sandbox socket."""
        return {"code": self.code, "message": self.message, "retryable": self.retryable, "facts": self.facts}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "ParseError":
        """Inverse of `to_json`."""
        return cls(value["code"], value["message"], retryable=value["retryable"], **value["facts"])

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions with own constructors do not survive pickling (task queues) without this.
        return _rebuild, (self.to_json(),)


def _rebuild(value: dict[str, Any]) -> ParseError:
    return ParseError.from_json(value)
