"""Plain text and CSV: the characters as they are written, so that a quote stands in the file as it is."""

import csv
import io
import re
from pathlib import Path
from typing import Any, Final

from ingestion.canonical import Element, ParsedPage, clean
from ingestion.charsets import decode
from ingestion.elements import require_text

_MAX_PAGES: Final = 10_000
_BLANK_LINES = re.compile(r"\n[ \t]*\n\s*")
_DELIMITERS: Final = ",;\t|"


def probe(path: Path, kind: str, password: str | None) -> dict[str, Any]:
    """Page count (form feeds in plain text), the charset as a fact."""
    del password
    text, charset = decode(path.read_bytes())
    return {"page_count": len(_txt_pages(text)) if kind == "txt" else 1, "facts": {"charset": charset}}


def parse(path: Path, kind: str, first: int, last: int, password: str | None) -> list[ParsedPage]:
    """Pages first..last. Raises ParseError no_text when nothing is left of the file."""
    del password
    text, _ = decode(path.read_bytes())
    if kind == "csv":
        pages = [_csv_page(text)]
    else:
        pages = [_plain_page(number, part) for number, part in enumerate(_txt_pages(text), start=1)]
    require_text(pages)
    return pages[first - 1 : last]


def _txt_pages(text: str) -> list[str]:
    """Pages by form feed, as printers had them."""
    parts = text.split("\f")
    while len(parts) > 1 and not parts[-1].strip():
        parts.pop()
    return parts if len(parts) <= _MAX_PAGES else ["\n".join(parts)]


def _plain_page(number: int, text: str) -> ParsedPage:
    text = clean(text).strip("\n")
    placed: list[Element] = []
    position = 0
    for gap in [*_BLANK_LINES.finditer(text), None]:
        end = gap.start() if gap else len(text)
        if text[position:end].strip():
            placed.append(Element("paragraph", position, end))
        position = gap.end() if gap else end
    state: Any = "ok" if text.strip() else "blank"
    return ParsedPage(number, None, None, None, 0, text, (), tuple(placed), state, parser="fullread")


def _csv_page(text: str) -> ParsedPage:
    """The rows as they are written; the delimiter and the columns stand in the element's meta."""
    text = clean(text).strip("\n")
    delimiter = _delimiter(text)
    meta: dict[str, Any] = {"delimiter": delimiter}
    try:
        reader = csv.reader(io.StringIO(text), delimiter=delimiter)
        widths = [len(row) for _, row in zip(range(1000), reader, strict=False) if row]
    except csv.Error:
        widths = []
    if widths:
        meta["columns"] = max(widths)
        meta["ragged"] = len(set(widths)) > 1
    state: Any = "ok" if text.strip() else "blank"
    found = (Element("table", 0, len(text), None, None, meta),) if text else ()
    return ParsedPage(1, None, None, None, 0, text, (), found, state, parser="fullread")


def _delimiter(text: str) -> str:
    """The candidate that splits most of the first lines into the same number of cells (quotes respected)."""
    sample = "\n".join(text.split("\n")[:50])
    best, best_score = ",", 0.0
    for delimiter in _DELIMITERS:
        try:
            widths = [len(row) for row in csv.reader(io.StringIO(sample), delimiter=delimiter) if row]
        except csv.Error:
            continue
        usual = max(set(widths), key=widths.count, default=1)
        if usual > 1:
            score = widths.count(usual) / len(widths) + min(usual, 20) / 1000
            if score > best_score:
                best, best_score = delimiter, score
    return best
