"""Office files: metadata, passwords, and the way to the reader of each format."""

import tempfile
import zipfile
from pathlib import Path
from typing import Any

from ingestion import elements, sheets, word
from ingestion.canonical import ParsedPage, clean
from ingestion.errors import ParseError
from ingestion.ooxml import parse_xml, transitional_copy

_CORE = {
    "title": "{http://purl.org/dc/elements/1.1/}title",
    "author": "{http://purl.org/dc/elements/1.1/}creator",
    "created": "{http://purl.org/dc/terms/}created",
}


def prepare(models_dir: Path) -> None:
    """Load the libraries before the fork."""
    elements.prepare(models_dir, "unstructured.partition.docx")
    import docx
    import msoffcrypto
    import openpyxl

    # The first document loads templates and the XML classes.
    _ = (docx.Document(), msoffcrypto.OfficeFile, openpyxl.load_workbook)


def probe(path: Path, kind: str, password: str | None) -> dict[str, Any]:
    """Page count (stored page breaks of docx, visible sheets of xlsx), title, author, creation date, facts."""
    del password
    found: dict[str, Any] = {**_properties(path), "facts": {}}
    if kind == "xlsx":
        visible, hidden = sheets.sheet_names(transitional_copy(path))
        if not visible:
            raise ParseError("no_text", "The workbook has no visible sheet with cells.")
        found["page_count"] = len(visible)
        if hidden:
            found["facts"]["hidden_sheets"] = [clean(name) for name in hidden]
        return found
    pages = word.parse(path)
    found["page_count"] = len(pages)
    revisions = sum(element.kind == "revision" for page in pages for element in page.elements)
    comments = sum(element.kind == "comment" for page in pages for element in page.elements)
    if revisions:
        found["facts"]["revisions"] = revisions
    if comments:
        found["facts"]["comments"] = comments
    return found


def parse(path: Path, kind: str, first: int, last: int, password: str | None) -> list[ParsedPage]:
    """Pages first..last."""
    del password
    if kind == "xlsx":
        return sheets.parse(transitional_copy(path), first, last)
    return word.parse(path)[first - 1 : last]


def decrypted(path: Path, password: str) -> Path:
    """A decrypted copy in the temporary folder. Raises ParseError needs_password when the password is wrong."""
    import msoffcrypto
    from msoffcrypto.exceptions import DecryptionError, FileFormatError, InvalidKeyError

    target = Path(tempfile.mkdtemp()) / "document"
    try:
        with path.open("rb") as source, target.open("wb") as plain:
            office = msoffcrypto.OfficeFile(source)
            office.load_key(password=password, verify_password=True)
            office.decrypt(plain)
    except InvalidKeyError:
        raise ParseError("needs_password", "The password given does not open the file.") from None
    except (DecryptionError, FileFormatError):
        raise ParseError("corrupt", "The encrypted file is damaged.") from None
    return target


def _properties(path: Path) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            root = parse_xml(archive.read("docProps/core.xml"))
    except (KeyError, ParseError):
        return {}
    found: dict[str, Any] = {}
    for name, tag in _CORE.items():
        node = root.find(tag)
        text = clean(node.text or "").strip() if node is not None else ""
        if text:
            found[name] = text
    return found
