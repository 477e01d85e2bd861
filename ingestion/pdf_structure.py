"""PDF with structure: pdfium's text and lines, and on them the headings, lists, tables and fields that liteparse finds.

Offsets are always those of pdfium's text. A block that cannot be found in that text gives no element.
"""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pypdfium2

from ingestion import pdf
from ingestion.canonical import Box, Element, Line, ParsedPage, clean, union
from ingestion.placement import Squeezed, squeeze

MIN_TOKEN_SHARE: Final = 0.95
_MIN_OVERLAP: Final = 0.8
_EDGE_SHARE: Final = 0.12
_MIN_REPEATS: Final = 3
_EVERY_PAGE: Final = 1_000_000
_TINY_PDF: Final = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
)
_TOKEN = re.compile(r"\w+")
_NUMBER = re.compile(r"\d+")
_KINDS: Final = {
    "heading": "heading",
    "paragraph": "paragraph",
    "list_item": "list_item",
    "code": "code",
    "table": "table",
    "grid_fallback": "table",
}


def prepare(models_dir: Path) -> None:
    """Load the native libraries before the fork: both wait for their first document."""
    del models_dir
    from liteparse import LiteParse

    LiteParse(ocr_enabled=False, quiet=True).parse(_TINY_PDF)
    pypdfium2.PdfDocument(_TINY_PDF).close()


def probe(path: Path, kind: str, password: str | None) -> dict[str, Any]:
    """See `pdf.probe`."""
    del kind
    return pdf.probe(path, password)


def parse(path: Path, kind: str, first: int, last: int, password: str | None) -> list[ParsedPage]:
    """Pages first..last with text, lines, elements and the parser that gave the structure."""
    del kind
    pages = pdf.parse(path, first, last, password)
    blocks = _blocks(path, first, last, password)
    return _mark_furniture([_structured(page, blocks.get(page.number)) for page in pages])


def _blocks(path: Path, first: int, last: int, password: str | None) -> dict[int, Any]:
    """liteparse's page by page number; empty when it gives up (pdfium's text stands anyway)."""
    from liteparse import LiteParse
    from liteparse import ParseError as LiteParseError

    with tempfile.TemporaryDirectory() as folder:
        # It decides by the name's ending and would hand anything else to an office program.
        named = Path(folder) / "document.pdf"
        named.symlink_to(path.resolve())
        reader = LiteParse(
            ocr_enabled=False,
            keep_headers_footers=True,
            extract_blocks=True,
            extract_form_fields=True,
            extract_annotations=True,
            extract_links=False,
            emit_word_boxes=False,
            continue_on_page_error=True,
            # Its default of 1,000 pages cuts longer documents without an error.
            max_pages=_EVERY_PAGE,
            target_pages=f"{first}-{last}",
            output_format="markdown",
            image_mode="off",
            num_workers=1,
            password=password,
            quiet=True,
        )
        try:
            result = reader.parse(named)
        except LiteParseError:
            return {}
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # how a panic of its native code arrives; no Exception
                raise
            return {}
    return {page.page_num: page for page in result.pages}


def _structured(page: ParsedPage, source: Any) -> ParsedPage:
    if source is None or page.state == "failed":
        return page
    elements: list[Element] = []
    parser = "pdfium"
    if page.state == "ok":
        blocks = [block for block in source.blocks or () if block.kind in _KINDS]
        ours = len(_TOKEN.findall(page.text))
        theirs = sum(len(_TOKEN.findall(_block_text(block))) for block in blocks)
        if ours and theirs / ours >= MIN_TOKEN_SHARE:
            elements = _place(page, blocks)
            parser = "liteparse"
    return _with_fields(replace(page, elements=tuple(elements), parser=parser), source)


def _block_text(block: Any) -> str:
    parts: list[str] = [block.marker or "", block.text or ""]
    parts += block.lines or ()
    for row in [block.header or (), *(block.rows or ())]:
        parts += [cell.text for cell in row]
    return " ".join(part for part in parts if part)


def _place(page: ParsedPage, blocks: Sequence[Any]) -> list[Element]:
    """Elements at the spans of their words, in text order, none over another."""
    squeezed = Squeezed(page.text)
    placed: list[Element] = []
    cursor = 0
    for block in blocks:
        words = squeeze(_block_text(block))
        if not words:
            continue
        inside = _lines_inside(page.lines, block.bbox)
        span = _find(squeezed, words, cursor, page.lines, inside)
        if span is None and block.marker:
            span = _find(squeezed, squeeze(block.text or ""), cursor, page.lines, inside)
        if span is None:
            span = _by_place(page, words, inside)
        if span is None:
            continue
        start, end = _whole_words(page.text, *span, block.marker)
        cursor = squeezed.index_of(end)
        kind = _KINDS[block.kind]
        level = block.level if kind in ("heading", "list_item") else None
        if kind == "list_item":
            level = (block.level or 0) + 1
        placed.append(Element(kind, start, end, _span_box(page.lines, start, end), level, _meta(block)))
    return _apart(placed)


def _find(
    squeezed: Squeezed, words: str, cursor: int, lines: Sequence[Line], inside: Sequence[int]
) -> tuple[int, int] | None:
    """Exact run of the block's letters: where the page has them, else after the last block, else anywhere."""
    starts = [squeezed.index_of(lines[inside[0]].start)] if inside else []
    for begin in [*starts, cursor, 0]:
        span = squeezed.find(words, begin)
        if span is not None:
            return span
    return None


def _lines_inside(lines: Sequence[Line], bbox: Any) -> list[int]:
    if bbox is None:
        return []
    left, top, right, bottom = bbox.x - 3, bbox.y - 3, bbox.x + bbox.width + 3, bbox.y + bbox.height + 3
    found = []
    for index, line in enumerate(lines):
        if line.box is None:
            continue
        x0, y0, x1, y1 = line.box
        overlap = min(x1, right) - max(x0, left)
        if top <= (y0 + y1) / 2 <= bottom and overlap >= 0.5 * max(x1 - x0, 0.1):
            found.append(index)
    return found


def _by_place(page: ParsedPage, words: str, inside: Sequence[int]) -> tuple[int, int] | None:
    """The run of lines inside the block's box, when they stand together in the text and hold the same letters."""
    if not inside or inside[-1] - inside[0] + 1 != len(inside):
        return None
    start, end = page.lines[inside[0]].start, page.lines[inside[-1]].end
    ours, theirs = Counter(squeeze(page.text[start:end])), Counter(words)
    common = sum((ours & theirs).values())
    if common < _MIN_OVERLAP * max(sum(ours.values()), sum(theirs.values())):
        return None
    return start, end


def _whole_words(text: str, start: int, end: int, marker: str | None) -> tuple[int, int]:
    """Grow the span over the punctuation and the list mark that belong to it, never over a letter or a line end."""
    while end < len(text) and not text[end].isalnum() and not text[end].isspace():
        end += 1
    while start > 0 and not text[start - 1].isalnum() and not text[start - 1].isspace():
        start -= 1
    if marker:
        line_start = text.rfind("\n", 0, start) + 1
        if text[line_start:start].strip() == marker.strip():
            start = line_start
    return start, end


def _span_box(lines: Sequence[Line], start: int, end: int) -> Box | None:
    return union(line.box for line in lines if line.start < end and line.end > start and line.box is not None)


def _meta(block: Any) -> dict[str, Any]:
    if block.kind == "table":
        rows = [*([block.header] if block.header else []), *(block.rows or [])]
        return {
            "rows": [[clean(cell.text) for cell in row] for row in rows],
            "header_rows": 1 if block.header else 0,
            "boxes": [[None if cell.bbox is None else _rect(cell.bbox) for cell in row] for row in rows],
        }
    if block.kind == "list_item" and block.marker:
        return {"marker": clean(block.marker)}
    return {}


def _rect(rect: Any) -> Box:
    return (round(rect.x, 1), round(rect.y, 1), round(rect.x + rect.width, 1), round(rect.y + rect.height, 1))


def _apart(elements: list[Element]) -> list[Element]:
    """In text order; of two that overlap the first stays."""
    kept: list[Element] = []
    for element in sorted(elements, key=lambda item: (item.start, -item.end)):
        if not kept or element.start >= kept[-1].end:
            kept.append(element)
    return kept


def _with_fields(page: ParsedPage, source: Any) -> ParsedPage:
    """Values of form fields and typed-on text are part of the page that a reader sees: they join its text at the end.

    Comments (notes, highlights) are not: they stand in an element's meta with an empty span.
    """
    text, lines, elements = page.text, list(page.lines), list(page.elements)

    def append(kind: str, value: str, rect: Any, meta: dict[str, Any]) -> None:
        nonlocal text
        box = None if rect is None else _rect(rect)
        value = clean(value).strip()
        if value:
            text += ("\n" if text else "") + value
            lines.append(Line(len(text) - len(value), len(text), box))
        elements.append(Element(kind, len(text) - len(value), len(text), box, None, meta))

    for field in source.form_fields or ():
        meta = {"name": clean(field.name or ""), "type": field.type}
        if field.type in ("checkbox", "radio", "radiobutton", "pushbutton", "signature"):
            append("form_field", "", field.rect, {**meta, "checked": field.checked, "value": clean(field.value or "")})
        else:
            shown = ", ".join(field.selected_options) or field.value or ""
            append("form_field", shown, field.rect, {**meta, "value": clean(shown)})
    for note in source.annotations or ():
        if not note.contents or not note.contents.strip():
            continue
        meta = {"type": note.subtype, "author": clean(note.title or "")}
        if note.subtype == "freetext":
            append("annotation", note.contents, note.rect, meta)
        elif note.subtype not in ("link", "widget", "popup"):
            append("annotation", "", note.rect, {**meta, "text": clean(note.contents)})
    if text == page.text and len(elements) == len(page.elements):
        return page
    added = text != page.text and page.state in ("blank", "ok")
    return replace(
        page,
        text=text if page.state != "needs_ocr" else page.text,
        lines=tuple(lines) if page.state != "needs_ocr" else page.lines,
        elements=tuple(elements) if page.state != "needs_ocr" else page.elements,
        state="ok" if added else page.state,
    )


def _mark_furniture(pages: list[ParsedPage]) -> list[ParsedPage]:
    """Mark as header or footer what comes back on several pages (numbers aside): lines at the edge, and "headings"."""
    edges: dict[int, list[tuple[str, Line]]] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for page in pages:
        edges[page.number] = found = list(_edge_lines(page))
        counts.update({(kind, _key(page, line)) for kind, line in found})
        counts.update({("heading", _key(page, item)) for item in page.elements if item.kind == "heading"})
    marked: list[ParsedPage] = []
    for page in pages:
        furniture = [
            Element(kind, line.start, line.end, line.box)
            for kind, line in edges[page.number]
            if counts[kind, _key(page, line)] >= _MIN_REPEATS
        ]
        own: list[Element] = []
        for item in page.elements:
            if any(line.start < item.end and item.start < line.end for line in furniture):
                continue
            if item.kind == "heading" and counts["heading", _key(page, item)] >= _MIN_REPEATS:
                upper = item.box is not None and item.box[1] < (page.height or 0) / 2
                own.append(Element("header" if upper else "footer", item.start, item.end, item.box))
            else:
                own.append(item)
        marked.append(replace(page, elements=tuple(sorted([*own, *furniture], key=lambda item: item.start))))
    return marked


def _edge_lines(page: ParsedPage) -> Iterator[tuple[str, Line]]:
    for line in page.lines:
        if line.box is None or not page.height:
            continue
        if line.box[3] <= _EDGE_SHARE * page.height:
            yield "header", line
        elif line.box[1] >= (1 - _EDGE_SHARE) * page.height:
            yield "footer", line


def _key(page: ParsedPage, span: Line | Element) -> str:
    return _NUMBER.sub("#", page.text[span.start : span.end]).strip().casefold()
