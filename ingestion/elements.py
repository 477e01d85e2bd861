"""Unstructured's elements as ours, and the builder that turns blocks of text into a page with exact spans.

Headings come only from the format (styles, h1-h6, #), never from a guess about the words.
"""

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from ingestion.canonical import Element, Line, ParsedPage, clean
from ingestion.errors import ParseError

# Private-use characters that readers put where something stands that is not text (a deletion, a note).
MARK_BASE: Final = 0xF0000
MARK_LIMIT: Final = 0xFFFD
_MARK = re.compile(f"[{chr(MARK_BASE)}-{chr(MARK_BASE + MARK_LIMIT)}]")
MIN_TOKEN_SHARE: Final = 0.95
_TOKEN = re.compile(r"\w+")
_MODEL_FOLDER: Final = Path("spacy") / "en_core_web_sm"
# Modules of unstructured that ask the language model whether a text is a sentence. The answer is not used here, and
# asking costs two thirds of the time.
_GUESSING: Final = ("unstructured.partition.docx", "unstructured.partition.html.parser", "unstructured.partition.text")
_KINDS: Final = {
    "ListItem": "list_item",
    "Table": "table",
    "Header": "header",
    "Footer": "footer",
    "CodeSnippet": "code",
}


def prepare(models_dir: Path, *modules: str) -> None:
    """Load unstructured for offline use: the language model comes from `models_dir`, nothing is ever downloaded."""
    _defer("spacy")
    import unstructured.nlp.tokenize as tokenize

    folder = models_dir / _MODEL_FOLDER

    def load() -> Any:
        spacy: Any = sys.modules[tokenize.__name__].__dict__["spacy"]
        if (folder / "config.cfg").exists():
            return spacy.load(folder, exclude=["ner", "lemmatizer", "attribute_ruler"])
        # Sentence ends by punctuation only. Good enough: no heading or paragraph of ours depends on it.
        blank = spacy.blank("en")
        blank.add_pipe("sentencizer")
        return blank

    tokenize._load_spacy_model = load  # noqa: SLF001 - it would fetch a model from the network
    for name in modules:
        importlib.import_module(name)
    for name in _GUESSING:
        if name in sys.modules:
            module: Any = sys.modules[name]
            module.is_possible_narrative_text = _always


def _defer(name: str) -> None:
    """Put a stand-in for a module in place that becomes the module at its first use.

    spaCy takes seconds to import, and nothing that runs here uses it. (importlib's LazyLoader loads at the second
    import statement in Python 3.11.)
    """
    if name in sys.modules:
        return
    stand_in = ModuleType(name)

    def attribute(wanted: str) -> Any:
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]
        return getattr(importlib.import_module(name), wanted)

    stand_in.__dict__["__getattr__"] = attribute
    sys.modules[name] = stand_in


def _always(text: str, *_: Any, **__: Any) -> bool:
    del text
    return True


def heading_level(element: Any, styles_only: bool = False) -> int | None:
    """Level (1 = top) when the format says that the element is a heading."""
    if type(element).__name__ != "Title":
        return None
    if styles_only:
        style = (getattr(element.metadata, "style_name", None) or "").lower()
        if not style.startswith(("heading", "title", "subtitle", "toc heading")):
            return None
        if style == "title":
            return 1
    depth = element.metadata.category_depth
    return 1 + int(depth or 0)


def kind_of(element: Any) -> str:
    """Our kind for an element that is no heading."""
    return _KINDS.get(type(element).__name__, "paragraph")


def table_rows(html: str) -> list[list[str]]:
    """Cell texts by row, out of the HTML that unstructured gives a table. Nested tables stay inside their cell."""
    from lxml import html as lxml_html

    root = lxml_html.fragment_fromstring(html, create_parent="div")
    table = root.find(".//table")
    if table is None:
        return []
    rows: list[list[str]] = []
    for row in table.iter("tr"):
        if next(row.iterancestors("table")) is not table:
            continue
        cells = [" ".join(cell.itertext()) for cell in row if cell.tag in ("td", "th")]
        rows.append([" ".join(cell.split()) for cell in cells])
    return rows


def row_line(cells: list[str]) -> str:
    """One line per table row: `A | B | C`, no empty tail."""
    cells = [" ".join(cell.split()) for cell in cells]
    while cells and not cells[-1]:
        cells.pop()
    return " | ".join(cells)


def tokens(text: str) -> int:
    """Number of words, for the comparison of two readers."""
    return len(_TOKEN.findall(text))


class PageBuilder:
    """Collects blocks of one page. Text is cleaned before its span is fixed; marks become callbacks with an offset."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._length = 0
        self._elements: list[Element] = []
        self._marks: list[tuple[int, int]] = []
        self._last_kind = ""

    @property
    def is_empty(self) -> bool:
        return self._length == 0

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    @property
    def marks(self) -> list[tuple[int, int]]:
        """(offset in the page text, number of the mark) in order."""
        return list(self._marks)

    def add(self, kind: str, text: str, level: int | None = None, meta: Mapping[str, Any] | None = None) -> None:
        """Append a block. Blocks are apart by an empty line; items of one list by a line end."""
        text = clean(text).strip()
        found = [(match.start(), ord(match.group()) - MARK_BASE) for match in _MARK.finditer(text)]
        bare = _MARK.sub("", text)
        if not bare.strip():
            # Only marks: they stand at the end of what is there.
            self._marks += [(self._length, number) for _, number in found]
            return
        gap = ""
        if self._length:
            gap = "\n" if kind == self._last_kind == "list_item" else "\n\n"
        self._text += [gap, bare]
        start = self._length + len(gap)
        self._marks += [(start + at - index, number) for index, (at, number) in enumerate(found)]
        self._length = start + len(bare)
        self._elements.append(Element(kind, start, self._length, None, level, meta or {}))
        self._last_kind = kind

    def add_table(self, rows: list[list[str]], meta: Mapping[str, Any] | None = None) -> None:
        """Append a table, one line per row."""
        lines = [line for row in rows if (line := row_line(row))]
        self.add(
            "table", "\n".join(lines), None, {**(meta or {}), "columns": max((len(row) for row in rows), default=0)}
        )

    def attach(self, kind: str, offset: int, meta: Mapping[str, Any]) -> None:
        """Add an element without text of its own at an offset."""
        self._elements.append(Element(kind, offset, offset, None, None, meta))

    def page(self, number: int, label: str | None, parser: str) -> ParsedPage:
        """The finished page; `blank` without text."""
        elements = tuple(sorted(self._elements, key=lambda item: (item.start, item.end)))
        state: Any = "ok" if self._length else "blank"
        lines: tuple[Line, ...] = ()
        return ParsedPage(number, label, None, None, 0, self.text, lines, elements, state, parser=parser)


def require_text(pages: list[ParsedPage], message: str = "The file is not empty, but no text was found in it.") -> None:
    """Nothing is silent: a file that gave no text at all is a failure with a code."""
    if not any(page.text.strip() for page in pages):
        raise ParseError("no_text", message)


def first_that_keeps(reference_tokens: int, *attempts: Callable[[], list[ParsedPage]]) -> list[ParsedPage]:
    """The first reader whose pages hold nearly all the words of the file; the last one whatever it gives.

    A reader that raises counts as one that lost everything, as long as another is left.
    """
    for attempt in attempts[:-1]:
        try:
            pages = attempt()
        except (MemoryError, ParseError):
            raise
        except Exception:  # noqa: BLE001, S112 - libraries raise anything on odd files; the next reader takes over
            continue
        if sum(tokens(page.text) for page in pages) >= MIN_TOKEN_SHARE * reference_tokens:
            return pages
    return attempts[-1]()
