"""XLSX: one page per visible sheet, one line per row (`A | B | C`), values as the sheet shows them."""

import re
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final

from ingestion.canonical import ParsedPage, clean
from ingestion.elements import PageBuilder, require_text
from ingestion.errors import ParseError

_DECIMALS = re.compile(r"0\.(0+)")
_QUOTED = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]')
_MAX_CELLS: Final = 5_000_000


def sheet_names(path: Path) -> tuple[list[str], list[str]]:
    """(visible, hidden) sheet names in order."""
    with _opened(path, data_only=True) as workbook:
        visible = [sheet.title for sheet in workbook.worksheets if sheet.sheet_state == "visible"]
        hidden = [sheet.title for sheet in workbook.worksheets if sheet.sheet_state != "visible"]
    return visible, hidden


def parse(path: Path, first: int, last: int) -> list[ParsedPage]:
    """Visible sheets first..last (1-based, inclusive)."""
    with ExitStack() as stack:
        values = stack.enter_context(_opened(path, data_only=True))
        # A formula without a cached value reads as empty: its text is better than nothing.
        formulas = stack.enter_context(_opened(path, data_only=False)) if _has_formulas(path) else None
        visible = [sheet for sheet in values.worksheets if sheet.sheet_state == "visible"]
        pages = [
            _sheet(number, sheet, None if formulas is None else formulas[sheet.title])
            for number, sheet in enumerate(visible, start=1)
            if first <= number <= last
        ]
    if first == 1 and last >= len(visible):
        require_text(pages, "The workbook has no visible cell with content.")
    return pages


@contextmanager
def _opened(path: Path, *, data_only: bool) -> Iterator[Any]:
    from openpyxl import load_workbook

    # An open file, not a path: it refuses paths by their ending, and stored files have none.
    with path.open("rb") as file:
        try:
            workbook = load_workbook(file, read_only=True, data_only=data_only, keep_links=False)
        except (KeyError, ValueError, zipfile.BadZipFile, OSError, TypeError, AttributeError):
            raise ParseError("corrupt", "The workbook is damaged: it cannot be opened.") from None
        try:
            yield workbook
        finally:
            workbook.close()


def _has_formulas(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if not name.startswith("xl/worksheets/") or not name.endswith(".xml"):
                continue
            with archive.open(name) as part:
                tail = b""
                while piece := part.read(1024 * 1024):
                    if b"<f>" in tail + piece or b"<f " in tail + piece:
                        return True
                    tail = piece[-2:]
    return False


def _sheet(number: int, sheet: Any, formulas: Any) -> ParsedPage:
    builder = PageBuilder()
    rows: list[list[str]] = []
    first_row = 0
    seen = 0
    for index, cells in enumerate(_rows(sheet, formulas), start=1):
        seen += len(cells)
        if seen > _MAX_CELLS:
            raise ParseError("resource_limit", "The workbook has too many cells.", resource="cells", limit=_MAX_CELLS)
        if any(cells):
            if not rows:
                first_row = index
            rows.append(cells)
        elif rows:
            builder.add_table(rows, {"row_from": first_row, "row_to": index - 1})
            rows = []
    if rows:
        builder.add_table(rows, {"row_from": first_row, "row_to": first_row + len(rows) - 1})
    return builder.page(number, clean(sheet.title), "openpyxl")


def _rows(sheet: Any, formulas: Any) -> Iterator[list[str]]:
    # The size that a workbook declares for itself is often wrong; reading on finds the real one.
    sheet.reset_dimensions()
    if formulas is None:
        for row in sheet.iter_rows():
            yield [_shown(cell.value, getattr(cell, "number_format", "General")) for cell in row]
        return
    formulas.reset_dimensions()
    for row, sources in zip(sheet.iter_rows(), formulas.iter_rows(), strict=False):
        texts: list[str] = []
        for cell, source in zip(row, sources, strict=False):
            value = cell.value
            if value is None and isinstance(source.value, str) and source.value.startswith("="):
                value = source.value
            texts.append(_shown(value, getattr(cell, "number_format", "General")))
        yield texts


def _shown(value: Any, number_format: str | None) -> str:
    """A value as the sheet displays it: percent, thousands and decimals by the cell's format, ISO dates."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        return _number(value, number_format or "General")
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(sep=" ", timespec="seconds")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    return " ".join(clean(str(value)).split())


def _number(value: float, number_format: str) -> str:
    shape = _QUOTED.sub("", number_format.split(";")[0])
    match = _DECIMALS.search(shape)
    decimals = len(match.group(1)) if match else 0
    if "%" in shape:
        return f"{value * 100:.{decimals}f}%"
    if "#,##0" in shape or "0,0" in shape:
        return f"{value:,.{decimals}f}"
    if match and "E" not in shape.upper():
        return f"{value:.{decimals}f}"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.15g}" if isinstance(value, float) else str(value)
