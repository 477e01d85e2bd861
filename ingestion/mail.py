"""E-mail (RFC 5322): header lines, the body through unstructured, attachments named but not read."""

import email
import email.policy
from datetime import UTC
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final

from ingestion import elements, markup
from ingestion.canonical import ParsedPage, clean
from ingestion.charsets import decode
from ingestion.elements import PageBuilder
from ingestion.errors import ParseError

_SHOWN: Final = ("From", "To", "Cc", "Date", "Subject")
_ENCRYPTED: Final = ("multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime")


def prepare(models_dir: Path) -> None:
    """Load the libraries before the fork."""
    markup.prepare(models_dir)
    elements.prepare(models_dir, "unstructured.partition.text", "unstructured.partition.email")


def probe(path: Path, kind: str, password: str | None) -> dict[str, Any]:
    """One page; subject as title, sender as author, sent date, attachments as facts."""
    del kind, password
    _, message = _message(path)
    attachments = _attachments(message)
    return {
        "page_count": 1,
        "title": _header(message, "Subject") or None,
        "author": _header(message, "From") or None,
        "created": _sent(message),
        "facts": {"attachments": attachments} if attachments else {},
    }


def parse(path: Path, kind: str, first: int, last: int, password: str | None) -> list[ParsedPage]:
    """The one page of the message."""
    del kind, password
    raw, message = _message(path)
    if first > 1 or last < 1:
        return []
    reference = elements.tokens(_body_text(message))
    return elements.first_that_keeps(reference, lambda: [_by_unstructured(raw, message)], lambda: [_by_hand(message)])


def _message(path: Path) -> tuple[bytes, EmailMessage]:
    raw = path.read_bytes()
    decoded, charset = decode(raw[:4096])
    if charset.startswith(("utf-16", "utf-32")):
        # Mail parsers work on bytes of ASCII; a file saved as UTF-16 would come out as garbage, without an error.
        decoded, _ = decode(raw)
        raw = decoded.lstrip("\ufeff").encode("utf-8")
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    message = email.message_from_bytes(raw, policy=email.policy.default)
    content_type = message.get_content_type()
    if content_type in _ENCRYPTED and message.get_param("smime-type") != "signed-data":
        raise ParseError("needs_key", "The message is encrypted for a key that is not here.")
    if not message.keys():
        raise ParseError("corrupt", "The file is no e-mail: it has no header.")
    return raw, message


def _header(message: EmailMessage, name: str) -> str:
    try:
        value = message.get(name)
    except (ValueError, IndexError, AttributeError, TypeError):  # the parser of malformed headers fails in many ways
        return ""
    return " ".join(clean(str(value or "")).split())


def _sent(message: EmailMessage) -> str | None:
    try:
        moment = parsedate_to_datetime(_header(message, "Date"))
    except (ValueError, TypeError, IndexError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()


def _attachments(message: EmailMessage) -> list[dict[str, Any]]:
    """Name, media type and size of every part that is not the body."""
    body = _body(message)
    found: list[dict[str, Any]] = []
    for part in message.walk():
        if part is body or part.get_content_maintype() == "multipart":
            continue
        name = part.get_filename()
        if name is None and part.get_content_disposition() != "attachment" and part.get_content_maintype() == "text":
            continue
        content = part.get_payload(decode=True)
        found.append(
            {
                "name": " ".join(clean(name or "").split()) or None,
                "media_type": part.get_content_type(),
                "size_bytes": len(content) if isinstance(content, bytes) else None,
            }
        )
    return found


def _body(message: EmailMessage) -> Any:
    try:
        return message.get_body(preferencelist=("html", "plain"))
    except (KeyError, AttributeError):
        return None


def _content(part: Any) -> str:
    try:
        content = part.get_content()
    except (LookupError, ValueError, AttributeError):  # a charset that does not exist
        payload = part.get_payload(decode=True)
        content = decode(payload)[0] if isinstance(payload, bytes) else ""
    return content if isinstance(content, str) else ""


def _body_text(message: EmailMessage) -> str:
    part = _body(message)
    if part is None:
        return ""
    content = _content(part)
    if part.get_content_type() != "text/html":
        return clean(content)
    try:
        return markup.html_pages(content)[0].text
    except ParseError as error:
        if error.code != "no_text":
            raise
        return ""


def _open(message: EmailMessage) -> PageBuilder:
    builder = PageBuilder()
    lines = [f"{name}: {value}" for name in _SHOWN if (value := _header(message, name))]
    if lines:
        builder.add("header", "\n".join(lines))
    return builder


def _close(builder: PageBuilder, message: EmailMessage, parser: str) -> ParsedPage:
    for attachment in _attachments(message):
        name = attachment["name"] or attachment["media_type"]
        builder.add("paragraph", f"Attachment (not read): {name}", None, {"attachment": attachment})
    return builder.page(1, None, parser)


def _by_unstructured(raw: bytes, message: EmailMessage) -> ParsedPage:
    import io

    from unstructured.partition.email import partition_email

    builder = _open(message)
    # Attachments stay out: one picture among them and the whole message fails.
    for element in partition_email(file=io.BytesIO(raw), process_attachments=False, languages=[""]):
        level = elements.heading_level(element) if _is_html(message) else None
        if level is not None:
            builder.add("heading", element.text, level)
        elif type(element).__name__ == "Table" and element.metadata.text_as_html:
            builder.add_table(elements.table_rows(element.metadata.text_as_html))
        else:
            kind = elements.kind_of(element)
            builder.add(kind, element.text, 1 if kind == "list_item" else None)
    return _close(builder, message, "unstructured")


def _is_html(message: EmailMessage) -> bool:
    part = _body(message)
    return part is not None and part.get_content_type() == "text/html"


def _by_hand(message: EmailMessage) -> ParsedPage:
    builder = _open(message)
    for block in _body_text(message).split("\n\n"):
        builder.add("paragraph", block)
    return _close(builder, message, "fullread")
