"""PDF through pdfium: text, line boxes in the displayed frame, and the verdict per page (ok, blank, needs_ocr).

Structure (headings, tables) comes from `blocks`; this module never guesses it. pdfium is not thread-safe: one process.
"""

import ctypes
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

import pypdfium2 as pdfium
import pypdfium2.raw as raw

from ingestion.canonical import Box, Line, ParsedPage, clean, union
from ingestion.errors import ParseError

MIN_USABLE_CHARS: Final = 20
JUNK_SHARE: Final = 0.20
SCAN_COVERAGE: Final = 0.80
MIN_WORD_SHARE: Final = 0.50
LINE_ART_OBJECTS: Final = 4
TAIL_BYTES: Final = 4096
_SAMPLE_WORDS: Final = 200

# pdfium writes U+FFFE where a word was hyphenated at a line end, and drops the line end.
_HYPHEN: Final = "\ufffe"
_BREAKS = re.compile("\r\n|[\r\n\ufffe]")
# Fonts in TeX's T1 encoding without a ToUnicode map: pdfium returns the raw code of the ligature.
_LIGATURES: Final = {"\x1b": "ff", "\x1c": "fi", "\x1d": "fl", "\x1e": "ffi", "\x1f": "ffl"}
_LIGATURE = re.compile("(?<=[^\\W\\d_])[\x1b-\x1f](?=[^\\W\\d_])")
_JUNK = re.compile("[\ufffd\ue000-\uf8ff\U000f0000-\U0010ffff\x00-\x08\x0e-\x1f]")
_WORDLIKE = re.compile(r"^\W{0,2}([^\W\d_]{2,}(['’\-][^\W\d_]+)*|[aAiIyYoOeE&]|[\d.,:/%$€£\-]+)\W{0,3}$")
_LOWER_AFTER_LETTER = re.compile(r"([^\W\d_]+)$")
_PDF_DATE = re.compile(r"D:(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?(?:([+\-Z])(\d\d)?'?(\d\d)?)?")


@contextmanager
def opened(path: Path, password: str | None = None) -> Iterator[pdfium.PdfDocument]:
    """The open document; raises ParseError needs_password or corrupt."""
    try:
        document = pdfium.PdfDocument(path, password=password)
    except pdfium.PdfiumError as error:
        if getattr(error, "err_code", None) == raw.FPDF_ERR_PASSWORD:
            given = "The password given does not open it." if password else "Give its password and try again."
            raise ParseError("needs_password", f"The PDF is encrypted. {given}") from None
        if getattr(error, "err_code", None) == raw.FPDF_ERR_SECURITY:
            raise ParseError("needs_key", "The PDF is encrypted by a method that needs a key or certificate.") from None
        raise ParseError("corrupt", "The PDF is damaged: it cannot be opened.") from None
    try:
        yield document
    finally:
        document.close()


def probe(path: Path, password: str | None = None) -> dict[str, Any]:
    """Page count, metadata and facts, without reading any page's text (except the first of an XFA form)."""
    with opened(path, password) as document:
        count = len(document)
        repaired = not raw.FPDF_DocumentHasValidCrossReferenceTable(document)
        if count == 0:
            raise ParseError("corrupt", "The PDF is damaged: it has no readable page.")
        if repaired and not _has_end_marker(path):
            raise ParseError(
                "corrupt", "The PDF is cut off: its end is missing, so pages may be lost.", pages_readable=count
            )
        form_type = raw.FPDF_GetFormType(document)
        if form_type in (raw.FORMTYPE_XFA_FULL, raw.FORMTYPE_XFA_FOREGROUND) and count <= 2 and _is_notice(document):
            raise ParseError(
                "unsupported_xfa",
                "The PDF is an XFA form: its pages hold only a notice. Print it to PDF in Adobe Reader and try again.",
            )
        facts: dict[str, Any] = {}
        if repaired:
            facts["repaired"] = True
        revision = raw.FPDF_GetSecurityHandlerRevision(document)
        if revision != -1:
            facts["encrypted"] = True
            facts["permissions"] = int(raw.FPDF_GetDocPermissions(document)) & 0xFFFFFFFF
            facts["owner_restricted"] = password is None
        if form_type != raw.FORMTYPE_NONE:
            facts["form"] = True
        attachments = document.count_attachments()
        if attachments:
            facts["attachments"] = attachments
        meta = document.get_metadata_dict(skip_empty=True)
        return {
            "page_count": count,
            "title": clean(meta.get("Title", "")).strip() or None,
            "author": clean(meta.get("Author", "")).strip() or None,
            "created": pdf_date(meta.get("CreationDate", "")),
            "facts": facts,
        }


def parse(path: Path, first: int, last: int, password: str | None = None) -> list[ParsedPage]:
    """Pages first..last (1-based, inclusive), each with text, line boxes and state; no elements."""
    with opened(path, password) as document:
        count = len(document)
        return [_page(document, number) for number in range(first, min(last, count) + 1)]


def _page(document: pdfium.PdfDocument, number: int) -> ParsedPage:
    label = clean(document.get_page_label(number - 1) or "") or None
    try:
        page = document[number - 1]
    except pdfium.PdfiumError:
        return failed_page(number, "corrupt", "The page is damaged.", label=label)
    try:
        width, height = page.get_size()
        rotation = page.get_rotation()
        frame = Frame(page.get_bbox(), rotation)
        textpage = page.get_textpage()
        try:
            text, lines, junk_share = _text(textpage, frame)
        finally:
            textpage.close()
        state, message = _verdict(page, text, junk_share, width * height)
        return ParsedPage(
            number=number,
            label=label,
            width=round(width, 2),
            height=round(height, 2),
            rotation=rotation,
            text=text if state == "ok" else "",
            lines=tuple(lines) if state == "ok" else (),
            elements=(),
            state=state,  # type: ignore[arg-type]
            code="no_text" if state == "needs_ocr" else None,
            message=message,
            parser="pdfium",
        )
    except pdfium.PdfiumError:
        return failed_page(number, "corrupt", "The page is damaged.", label=label)
    finally:
        page.close()


def failed_page(number: int, code: str, message: str, *, label: str | None = None) -> ParsedPage:
    """A page that could not be read: no text, but it stays in the count."""
    return ParsedPage(number, label, None, None, 0, "", (), (), "failed", code, message, "pdfium")


class Frame:
    """Turns PDF user space (origin bottom left, unrotated) into points of the page as displayed, origin top left."""

    __slots__ = ("_box", "_rotation")

    def __init__(self, box: tuple[float, float, float, float], rotation: int) -> None:
        self._box = box
        self._rotation = rotation

    def displayed(self, left: float, bottom: float, right: float, top: float) -> Box:
        """Box (x0, y0, x1, y1) of a user space rectangle (ISO 32000-1, 8.3.2.3 and 14.11.2; /Rotate is clockwise)."""
        x0, y0, x1, y1 = self._box
        if self._rotation == 90:
            values = (bottom - y0, left - x0, top - y0, right - x0)
        elif self._rotation == 180:
            values = (x1 - right, bottom - y0, x1 - left, top - y0)
        elif self._rotation == 270:
            values = (y1 - top, x1 - right, y1 - bottom, x1 - left)
        else:
            values = (left - x0, y1 - top, right - x0, y1 - bottom)
        a, b, c, d = (round(value, 2) for value in values)
        return (min(a, c), min(b, d), max(a, c), max(b, d))


def _text(textpage: pdfium.PdfTextPage, frame: Frame) -> tuple[str, list[Line], float]:
    """Cleaned text, its lines and the share of junk characters in the raw text."""
    chars = textpage.count_chars()
    if chars <= 0:
        return "", [], 0.0
    # Twice the count: characters outside the BMP take two units. get_text_range would cut them.
    buffer = (ctypes.c_ushort * (2 * chars + 2))()
    units = raw.FPDFText_GetText(textpage, 0, chars, buffer)
    source = bytes(memoryview(buffer).cast("B")[: 2 * max(0, units - 1)]).decode("utf-16-le", "surrogatepass")
    solid = _solid(source)
    junk_share = len(_JUNK.findall(source)) / solid if solid else 0.0
    same_index = len(source) == chars
    lowered = source.lower() if _HYPHEN in source else ""
    parts: list[str] = []
    lines: list[Line] = []
    offset = 0
    begin = 0
    for brk in [*_BREAKS.finditer(source), None]:
        end = brk.start() if brk else len(source)
        segment = source[begin:end]
        line = clean(_LIGATURE.sub(lambda m: _LIGATURES[m.group()], segment)).replace("\n", " ")
        hyphen = brk is not None and brk.group() == _HYPHEN
        if not hyphen:
            line = line.rstrip()
        if line.strip():
            box = _line_box(textpage, frame, begin, end, same_index)
            lines.append(Line(offset, offset + len(line), box))
            parts.append(line)
            offset += len(line)
            if hyphen:
                assert brk is not None
                joint = "" if _joins(source, lowered, brk.start()) else "-"
            else:
                joint = "\n"
            parts.append(joint)
            offset += len(joint)
        begin = brk.end() if brk else end
    text = "".join(parts)
    return text.rstrip("\n"), lines, junk_share


def _solid(text: str) -> int:
    """Number of characters that are not white space."""
    return len("".join(text.split()))


def _joins(source: str, lowered: str, at: int) -> bool:
    """Whether the hyphen at a line end only broke a word. A page that also writes it with a hyphen keeps it."""
    after = source[at + 1 : at + 2]
    left = _LOWER_AFTER_LETTER.search(lowered, max(0, at - 40), at)
    if left is None or not after.islower():
        return False
    right = re.match(r"[^\W\d_]+", lowered[at + 1 : at + 41])
    return right is None or f"{left.group(1)}-{right.group()}" not in lowered


def _line_box(textpage: pdfium.PdfTextPage, frame: Frame, begin: int, end: int, same_index: bool) -> Box | None:
    if not same_index:
        begin_char = raw.FPDFText_GetCharIndexFromTextIndex(textpage, begin)
        end_char = raw.FPDFText_GetCharIndexFromTextIndex(textpage, end - 1) + 1
        if begin_char < 0 or end_char <= begin_char:
            return None
        begin, end = begin_char, end_char
    left, top, right, bottom = (ctypes.c_double() for _ in range(4))
    return union(
        frame.displayed(left.value, bottom.value, right.value, top.value)
        for index in range(raw.FPDFText_CountRects(textpage, begin, end - begin))
        if raw.FPDFText_GetRect(textpage, index, left, top, right, bottom)
    )


def _verdict(page: pdfium.PdfPage, text: str, junk_share: float, area: float) -> tuple[str, str | None]:
    """State of the page by what is on it: nothing is silent, and a page with unread content is never `blank`."""
    chars = _solid(text)
    if chars >= MIN_USABLE_CHARS and junk_share <= JUNK_SHARE:
        words = text.split(maxsplit=_SAMPLE_WORDS)[:_SAMPLE_WORDS]
        plausible = sum(_WORDLIKE.match(word) is not None for word in words) / len(words)
        if plausible < MIN_WORD_SHARE and _image_share(page, area) > SCAN_COVERAGE:
            return "needs_ocr", "The page is a scan whose hidden text is unusable."
        return "ok", None
    if chars and junk_share > JUNK_SHARE:
        return "needs_ocr", "The fonts of the page do not say which letters they draw."
    objects = raw.FPDFPage_CountObjects(page)
    if chars:
        if _image_share(page, area) > SCAN_COVERAGE:
            return "needs_ocr", "The page is a scan with almost no text."
        return "ok", None
    if objects == 0 or not _draws(page, objects):
        return "blank", None
    return "needs_ocr", "The page holds a picture but no text."


def _image_share(page: pdfium.PdfPage, area: float) -> float:
    """Share of the page under its largest image (0 to 1)."""
    best = 0.0
    for item in page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=3):
        left, bottom, right, top = item.get_bounds()
        best = max(best, (right - left) * (top - bottom))
    return min(1.0, best / area) if area else 0.0


def _draws(page: pdfium.PdfPage, objects: int) -> bool:
    """Whether a page without text shows anything: a uniform picture (white image, background) is blank."""
    kinds = {raw.FPDFPageObj_GetType(raw.FPDFPage_GetObject(page, index)) for index in range(min(objects, 50))}
    if kinds <= {raw.FPDF_PAGEOBJ_PATH} and objects <= LINE_ART_OBJECTS:
        return False
    width, height = page.get_size()
    scale = min(0.5, 400 / max(width, height, 1.0))
    bitmap = page.render(scale=scale, grayscale=True)
    try:
        pixels = bytes(bitmap.buffer)
        stride, columns = bitmap.stride, bitmap.width
        rows = [pixels[row * stride : row * stride + columns] for row in range(bitmap.height)]
    finally:
        bitmap.close()
    flat = b"".join(rows)
    return bool(flat) and max(flat) - min(flat) > 8


def _is_notice(document: pdfium.PdfDocument) -> bool:
    page = document[0]
    textpage = page.get_textpage()
    text = textpage.get_text_range().lower()
    textpage.close()
    page.close()
    return "please wait" in text or "adobe reader" in text or len(text.split()) < MIN_USABLE_CHARS


def _has_end_marker(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - TAIL_BYTES))
        return b"%%EOF" in file.read()


def pdf_date(value: str) -> str | None:
    """ISO 8601 of a PDF date (ISO 32000-1, 7.9.4), aware; without an offset it is taken as UTC. None if malformed."""
    match = _PDF_DATE.match(value)
    if match is None:
        return None
    year, month, day, hour, minute, second, sign, off_hour, off_minute = match.groups()
    offset = timedelta(hours=int(off_hour or 0), minutes=int(off_minute or 0))
    try:
        zone = timezone(-offset if sign == "-" else offset)
        moment = datetime(
            int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=zone
        )
    except ValueError:
        return None
    return moment.isoformat()
