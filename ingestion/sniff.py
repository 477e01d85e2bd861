"""Which format a file is, by its bytes: magic numbers, the container's directory, the look of text.

Never by name alone: the name decides only between kinds of text; a name that contradicts the bytes is refused.
"""

import codecs
import re
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final

from ingestion.errors import ParseError

HEAD_BYTES: Final = 64 * 1024
_OLE_MAGIC: Final = bytes.fromhex("d0cf11e0a1b11ae1")
_PDF_WINDOW_BYTES: Final = 1024

MEDIA_TYPES: Final[dict[str, str]] = {
    "pdf": "application/pdf",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "html": "text/html",
    "md": "text/markdown",
    "txt": "text/plain",
    "csv": "text/csv",
    "eml": "message/rfc822",
}

# Extension -> kind that it promises. Names without an extension, or with one not listed, promise nothing.
_PROMISES: Final[dict[str, str]] = {
    ".pdf": "pdf",
    ".docx": "docx",
    ".docm": "docx",
    ".dotx": "docx",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
    ".xltx": "xlsx",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".md": "md",
    ".markdown": "md",
    ".txt": "txt",
    ".text": "txt",
    ".log": "txt",
    ".csv": "csv",
    ".tsv": "csv",
    ".eml": "eml",
    ".doc": "doc",
    ".xls": "xls",
    ".ppt": "ppt",
    ".pptx": "pptx",
    ".odt": "odt",
    ".ods": "ods",
    ".rtf": "rtf",
    ".msg": "msg",
    ".epub": "epub",
    ".zip": "zip",
    ".png": "image",
    ".jpg": "image",
    ".jpeg": "image",
    ".tif": "image",
    ".tiff": "image",
    ".gif": "image",
}
_TEXT_KINDS: Final = frozenset({"html", "md", "txt", "csv", "eml"})
_OLE_KINDS: Final = frozenset({"doc", "xls", "ppt", "msg"})
_NAMES: Final = {
    "pdf": "a PDF",
    "docx": "a Word document (docx)",
    "xlsx": "an Excel workbook (xlsx)",
    "html": "HTML",
    "md": "Markdown",
    "txt": "plain text",
    "csv": "CSV",
    "eml": "an e-mail",
    "image": "an image",
    "ole": "an old Office file (doc, xls, ppt or msg)",
}
_IMAGE_MAGICS: Final = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"II*\x00", b"MM\x00*", b"BM")
_HTML = re.compile(rb"<(?:!doctype\s+html|html[\s>]|head[\s>]|body[\s>])", re.IGNORECASE)
_MAIL_FIELD = re.compile(rb"^(?:[A-Za-z][A-Za-z0-9\-]{1,40}:[ \t].*|[ \t].*|From .*)$")
_MAIL_WORDS = re.compile(
    rb"^(?:from|to|subject|date|received|message-id|mime-version|return-path|delivered-to|content-type):",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class FileKind:
    """Format of a file (`pdf docx xlsx html md txt csv eml`) and its media type."""

    name: str
    media_type: str


def sniff(path: Path, filename: str) -> FileKind:
    """Kind of the file.

    Raises ParseError: empty, type_mismatch, unsupported_format, needs_password (encrypted Office), corrupt.
    """
    size_bytes = path.stat().st_size
    if size_bytes == 0:
        raise ParseError("empty", "The file is empty (0 bytes).")
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    promised = _PROMISES.get(PurePath(filename).suffix.lower())
    found = _binary_kind(path, head)
    if found is None:
        found = _text_kind(head, promised)
    _compare(found, promised, filename)
    if found == "ole":
        found = promised or "ole"
    if found not in MEDIA_TYPES:
        raise ParseError("unsupported_format", f"There is no reader for {_name(found)} files.", kind=found)
    return FileKind(found, MEDIA_TYPES[found])


def _binary_kind(path: Path, head: bytes) -> str | None:
    if b"%PDF-" in head[:_PDF_WINDOW_BYTES]:
        return "pdf"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip_kind(path)
    if head.startswith(_OLE_MAGIC):
        return _ole_kind(path, head)
    if head.startswith(_IMAGE_MAGICS):
        return "image"
    if head.startswith(b"{\\rtf"):
        return "rtf"
    return None


def _zip_kind(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
            # Office writes no "mimetype" member; ODF and EPUB must.
            if "mimetype" in names and archive.getinfo("mimetype").file_size < 200:
                declared = archive.read("mimetype").decode("ascii", "replace")
                return {
                    "application/epub+zip": "epub",
                    "application/vnd.oasis.opendocument.text": "odt",
                    "application/vnd.oasis.opendocument.spreadsheet": "ods",
                }.get(declared.strip(), "zip")
    except (zipfile.BadZipFile, OSError, struct.error, ValueError, NotImplementedError, RuntimeError):
        raise ParseError("corrupt", "The file is damaged: its container is cut off or broken.") from None
    if "[Content_Types].xml" in names:
        for prefix, kind in (("word/", "docx"), ("xl/", "xlsx"), ("ppt/", "pptx")):
            if any(name.startswith(prefix) for name in names):
                return kind
    return "zip"


def _ole_kind(path: Path, head: bytes) -> str:
    # The stream name of an encrypted OOXML package, as the container's directory spells it (UTF-16).
    marker = "EncryptedPackage".encode("utf-16-le")
    with path.open("rb") as file:
        tail = b""
        while chunk := file.read(1024 * 1024):
            if marker in tail + chunk:
                return "encrypted"
            tail = chunk[-len(marker) :]
    return "ole"


def _text_kind(head: bytes, promised: str | None) -> str:
    text_bytes = _as_ascii_compatible(head)
    if text_bytes is None:
        return "binary"
    if promised in _TEXT_KINDS:
        return promised or "txt"
    stripped = text_bytes.lstrip()
    if _looks_like_mail(stripped):
        return "eml"
    if _HTML.search(stripped[:2048]):
        return "html"
    return "txt"


def _as_ascii_compatible(head: bytes) -> bytes | None:
    """The head in a form where ASCII patterns match; None when it is no text."""
    for mark, codec in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF32_BE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if head.startswith(mark):
            return head.decode(codec, "replace").encode()
    nuls = head.count(0)
    if nuls:
        even, odd = head[0::2].count(0), head[1::2].count(0)
        # UTF-16 without a mark: ASCII letters leave NULs on one side only.
        if max(even, odd) > 0.3 * len(head) / 2 and min(even, odd) <= 0.05 * max(even, odd):
            return head.decode("utf-16-be" if even > odd else "utf-16-le", "replace").encode()
        if nuls > 0.001 * len(head):
            return None
    controls = sum(byte < 32 and byte not in b"\t\n\r\f\v\x1a\x1b" for byte in head) - nuls
    return head if controls <= 0.02 * len(head) else None


def _looks_like_mail(head: bytes) -> bool:
    lines = head.splitlines()[:12]
    block = lines[: lines.index(b"")] if b"" in lines else lines
    if len(block) < 2 or not all(_MAIL_FIELD.match(line) for line in block):
        return False
    return len(_MAIL_WORDS.findall(b"\n".join(block))) >= 2


def _compare(found: str, promised: str | None, filename: str) -> None:
    if found == "encrypted":
        if promised in (None, "docx", "xlsx", "pptx", "doc", "xls", "ppt"):
            raise ParseError("needs_password", "The Office file is encrypted. Give its password and try again.")
        raise _mismatch("an encrypted Office file", filename)
    if found == "ole" and (promised is None or promised in _OLE_KINDS):
        return
    if found == "binary":
        if promised is None:
            raise ParseError("unsupported_format", "The file is neither text nor a format with a reader.")
        if promised in MEDIA_TYPES:
            if promised in _TEXT_KINDS:
                raise ParseError("type_mismatch", f"The name says {_name(promised)}, but the content is not text.")
            raise ParseError("corrupt", f"The file is damaged: it does not begin like {_name(promised)}.")
        return
    if promised is None or promised == found or {found, promised} <= _TEXT_KINDS:
        return
    if found in _TEXT_KINDS:
        raise ParseError(
            "type_mismatch",
            f"The name says {_name(promised)}, but the content is text. Rename the file to what it is and try again.",
            promised=promised,
            found=found,
        )
    if found == "zip" and promised not in MEDIA_TYPES:
        return
    raise _mismatch(_name(found), filename, promised=promised, found=found)


def _mismatch(content: str, filename: str, **facts: Any) -> ParseError:
    suffix = PurePath(filename).suffix.lower()
    return ParseError(
        "type_mismatch",
        f"The name ends in {suffix}, but the content is {content}. Rename the file to what it is and try again.",
        **facts,
    )


def _name(kind: str) -> str:
    return _NAMES.get(kind, kind)
