"""Canonical text of a document: pages, lines with boxes, elements, and the one offset space that everything uses.

Offsets are Python string indexes (code points). Boxes are PDF points, origin top left of the page as displayed.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

PAGE_SEPARATOR: Final = "\f"

Box = tuple[float, float, float, float]
PageState = Literal["ok", "blank", "needs_ocr", "failed"]

# `revision`, `comment`, `annotation` and `form_field` may have an empty span: their words stand in `meta`.
KINDS: Final = frozenset(
    {
        "title",
        "heading",
        "paragraph",
        "list_item",
        "table",
        "header",
        "footer",
        "code",
        "form_field",
        "annotation",
        "revision",
        "comment",
    }
)

_LINE_ENDS = re.compile("\r\n?|[\v\f\x85\u2028\u2029]")
# C0/C1 controls except tab and newline, lone surrogates, non-characters, zero width no-break space (BOM).
_UNWANTED = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")
# White space of width that is not a line end: levelled to one plain space, one for one, so that words split everywhere.
_SPACES = re.compile("[\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]")


def clean(text: str) -> str:
    """Text as it is stored: line ends are LF, no controls, no lone surrogates, odd spaces are plain spaces.

    Runs once, before offsets exist. Letters are never changed (ligatures and accents stay as written).
    """
    return _UNWANTED.sub("", _SPACES.sub(" ", _LINE_ENDS.sub("\n", text)))


@dataclass(frozen=True, slots=True)
class Line:
    """One visual line: span in the page text and its box (None where the format has no layout)."""

    start: int
    end: int
    box: Box | None


@dataclass(frozen=True, slots=True)
class Element:
    """A structural unit: span in the page text; `level` is the heading or list depth (1 = top)."""

    kind: str
    start: int
    end: int
    box: Box | None = None
    level: int | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ParsedPage:
    """One page (or sheet, or the whole of a format without pages). Offsets inside are relative to `text`."""

    number: int
    label: str | None
    width: float | None
    height: float | None
    rotation: int
    text: str
    lines: tuple[Line, ...]
    elements: tuple[Element, ...]
    state: PageState
    code: str | None = None
    message: str | None = None
    parser: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON form: lines as `[start, end, box]`, elements as `[kind, start, end, box, level, meta]`."""
        return {
            "number": self.number,
            "label": self.label,
            "width": self.width,
            "height": self.height,
            "rotation": self.rotation,
            "text": self.text,
            "lines": [[line.start, line.end, line.box] for line in self.lines],
            "elements": [[e.kind, e.start, e.end, e.box, e.level, dict(e.meta)] for e in self.elements],
            "state": self.state,
            "code": self.code,
            "message": self.message,
            "parser": self.parser,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "ParsedPage":
        """Inverse of `to_json`."""
        return cls(
            number=value["number"],
            label=value["label"],
            width=value["width"],
            height=value["height"],
            rotation=value["rotation"],
            text=value["text"],
            lines=lines_from_json(value["lines"]),
            elements=elements_from_json(value["elements"]),
            state=value["state"],
            code=value["code"],
            message=value["message"],
            parser=value["parser"],
        )


def lines_from_json(value: Iterable[Sequence[Any]]) -> tuple[Line, ...]:
    """Lines out of the `lines` field of `ParsedPage.to_json`."""
    return tuple(Line(start, end, _box(box)) for start, end, box in value)


def elements_from_json(value: Iterable[Sequence[Any]]) -> tuple[Element, ...]:
    """Elements out of the `elements` field of `ParsedPage.to_json`."""
    return tuple(Element(kind, start, end, _box(box), level, meta) for kind, start, end, box, level, meta in value)


def _box(value: Sequence[float] | None) -> Box | None:
    return None if value is None else (value[0], value[1], value[2], value[3])


def union(boxes: Iterable[Box]) -> Box | None:
    """Smallest box around all; None of none."""
    found = list(boxes)
    if not found:
        return None
    return (min(b[0] for b in found), min(b[1] for b in found), max(b[2] for b in found), max(b[3] for b in found))


@dataclass(frozen=True, slots=True)
class Probe:
    """What is known of a file before its pages are read. `created` is ISO 8601; `facts` are JSON values."""

    kind: str
    media_type: str
    page_count: int
    title: str | None = None
    author: str | None = None
    created: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "kind": self.kind,
            "media_type": self.media_type,
            "page_count": self.page_count,
            "title": self.title,
            "author": self.author,
            "created": self.created,
            "facts": dict(self.facts),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Probe":
        """Inverse of `to_json`."""
        return cls(**value)


@dataclass(frozen=True, slots=True)
class CanonicalText:
    """The document's text: page texts joined by a form feed. `page_starts[i]` is the offset of page i + 1."""

    text: str
    page_starts: tuple[int, ...]

    @classmethod
    def of(cls, page_texts: Iterable[str]) -> "CanonicalText":
        """Join page texts (in page order, one per page, empty for pages without text)."""
        starts: list[int] = []
        offset = 0
        texts = list(page_texts)
        for text in texts:
            starts.append(offset)
            offset += len(text) + len(PAGE_SEPARATOR)
        return cls(PAGE_SEPARATOR.join(texts), tuple(starts))

    def page_of(self, offset: int) -> int:
        """1-based page that holds this offset (a separator belongs to the page before it)."""
        return max(1, bisect_right(self.page_starts, offset))

    def page_range(self, start: int, end: int) -> tuple[int, int]:
        """First and last 1-based page of the span [start, end)."""
        return self.page_of(start), self.page_of(max(start, end - 1))

    def page_text(self, number: int) -> str:
        """Text of the 1-based page."""
        start = self.page_starts[number - 1]
        end = self.page_starts[number] - len(PAGE_SEPARATOR) if number < len(self.page_starts) else len(self.text)
        return self.text[start:end]

    def local(self, offset: int) -> tuple[int, int]:
        """(1-based page, offset inside that page's text)."""
        page = self.page_of(offset)
        return page, offset - self.page_starts[page - 1]

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {"text": self.text, "page_starts": list(self.page_starts)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "CanonicalText":
        """Inverse of `to_json`."""
        return cls(value["text"], tuple(value["page_starts"]))
