"""Rows as CSV (RFC 4180) in which no spreadsheet finds a formula. Pure.

Text is always quoted and may be guarded; numbers, times and ids stay as they are; null is an empty cell without quotes.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

BOM = b"\xef\xbb\xbf"
GUARD = "'"
_LINE_END = "\r\n"
_FORMULA = frozenset("=+-@")
_FORMULA_AT_ONCE = frozenset("\t\r\n")
#: Categories that a spreadsheet skips or does not show before a formula: spaces, controls, invisible letters.
_UNSEEN = frozenset({"Zs", "Zl", "Zp", "Cc", "Cf"})

Cell = str | int | float | bool | UUID | datetime | None


def document(header: Sequence[str], rows: Iterable[Sequence[Cell]], *, bom: bool = False) -> bytes:
    """The whole file as UTF-8, with a header row. `bom`: for old versions of Excel, which take it for Latin-1 else."""
    lines = [",".join(map(quoted, header)), *(",".join(map(_cell, row)) for row in rows), ""]
    text = _LINE_END.join(lines).encode()
    return BOM + text if bom else text


def _cell(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return quoted(guarded(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return str(value)


def quoted(text: str) -> str:
    """A quoted cell; also without need, because a semicolon ends a cell where it is the list separator."""
    return '"' + text.replace('"', '""') + '"'


def guarded(text: str) -> str:
    """The text, after an apostrophe when a spreadsheet could take it for a formula.

    Reversible: a text is guarded exactly when it is still dangerous after leading apostrophes are taken away.
    """
    return GUARD + text if is_dangerous(text) else text


def is_dangerous(text: str) -> bool:
    """Whether = + - @ (full-width, too) comes first, after white space and apostrophes, or a tab or line end does."""
    body = text.lstrip(GUARD)
    if body[:1] in _FORMULA_AT_ONCE:
        return True
    for char in body:
        if unicodedata.normalize("NFKC", char)[:1] in _FORMULA:
            return True
        if char != GUARD and not char.isspace() and unicodedata.category(char) not in _UNSEEN:
            return False
    return False
