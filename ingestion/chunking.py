"""Chunks of a document: structure first, cut exactly. `text[start:end] == chunk.text` always, and no word is lost.

A heading starts a chunk, a table row is never cut, long paragraphs go through llama-index's sentence splitter; where
that breaks the invariant our own exact splitter takes over.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from ingestion.canonical import CanonicalText, ParsedPage
from ingestion.languages import language_of, languages_of_parts

TARGET_CHARS: Final = 1400
# A remainder below this share of the target joins its neighbour, up to the overflow.
_SMALL: Final = 0.25
_OVERFLOW: Final = 1.25
_SMALL_TABLE_CHARS: Final = 300
_HEADER_PART_CHARS: Final = 120
_HEADER_CHARS: Final = 400

_HEADINGS: Final = frozenset({"title", "heading"})
_FURNITURE: Final = frozenset({"header", "footer"})
# What splits worse and worse; the last resort cuts anywhere (text without spaces).
_CUTS: Final = (
    re.compile(r"\n\s*\n"),
    re.compile(r"(?<=[.!?;:。！？；])\s+|(?<=[。！？；])"),
    re.compile(r"\n"),
    re.compile(r"\s+"),
)
_ENDED = re.compile(r"[.!?:;。！？][\"'”’)\]]*\s*$")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A retrievable passage. `start`/`end` are offsets into the canonical text; pages are 1-based, inclusive.

    `header` (title > section path) is context for embedding and prompts; it is not part of `text`.
    """

    ordinal: int
    start: int
    end: int
    text: str
    header: str
    page_from: int
    page_to: int
    language: str


@dataclass(frozen=True, slots=True)
class _Block:
    kind: str
    start: int
    end: int
    level: int


def chunk(
    canonical: CanonicalText,
    pages: Sequence[ParsedPage],
    *,
    title: str,
    target_chars: int = TARGET_CHARS,
    language: str | None = None,
) -> list[Chunk]:
    """Chunks of the document in reading order. `pages` are those that `canonical` was joined from.

    `language` is the document's, detected when None. Raises ValueError for a target under 50.
    """
    if target_chars < 50:
        raise ValueError("target_chars must be at least 50")
    text = canonical.text
    blocks = _joined(text, list(_blocks(canonical, pages)), canonical)
    spans = list(_pack(text, blocks, target_chars, title))
    document_language = language or language_of(text)
    languages = languages_of_parts([text[start:end] for start, end, _ in spans], document_language)
    chunks: list[Chunk] = []
    for (start, end, header), part_language in zip(spans, languages, strict=True):
        page_from, page_to = canonical.page_range(start, end)
        sheet = pages[page_from - 1]
        if sheet.width is None and sheet.label:  # the name of a sheet; a page label says nothing
            header = f"{header} > {sheet.label}" if header else sheet.label  # noqa: PLW2901
        chunks.append(Chunk(len(chunks), start, end, text[start:end], header, page_from, page_to, part_language))
    return chunks


def _blocks(canonical: CanonicalText, pages: Sequence[ParsedPage]) -> Iterator[_Block]:
    """Elements as blocks in global offsets, in order, without overlap; text between them becomes paragraphs."""
    text = canonical.text
    for page, base in zip(pages, canonical.page_starts, strict=True):
        position = base
        end_of_page = base + len(page.text)
        found: list[_Block] = []
        for element in sorted(page.elements, key=lambda item: (item.start, -item.end)):
            start, end = base + element.start, min(base + element.end, end_of_page)
            if start < position or end <= start:
                continue
            if text[position:start].strip():
                found.append(_Block("paragraph", position, start, 0))
            found.append(_Block(element.kind, start, end, element.level or 1))
            position = end
        if text[position:end_of_page].strip():
            found.append(_Block("paragraph", position, end_of_page, 0))
        for block in found:
            start, end = _trimmed(text, block.start, block.end)
            if start == end:
                continue
            yield replace(block, start=start, end=end)


def _joined(text: str, blocks: Sequence[_Block], canonical: CanonicalText) -> list[_Block]:
    """Blocks with sentences mended that run over a page break (and over the footer and header in between)."""
    joined: list[_Block] = []
    furniture: list[_Block] = []
    for block in blocks:
        if block.kind in _FURNITURE:
            furniture.append(block)
            continue
        if joined and _continues(text, joined[-1], block, canonical):
            joined[-1] = replace(joined[-1], end=block.end)
        else:
            joined += furniture
            joined.append(block)
        furniture.clear()
    return joined + furniture


def _continues(text: str, before: _Block, block: _Block, canonical: CanonicalText) -> bool:
    """Whether a sentence runs from the last block of a page into the first of the next."""
    if before.kind != "paragraph" or block.kind != "paragraph":
        return False
    if canonical.page_of(before.end - 1) == canonical.page_of(block.start):
        return False
    return _ENDED.search(text, max(0, before.end - 8), before.end) is None and text[block.start].islower()


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def _pack(text: str, blocks: Sequence[_Block], target: int, title: str) -> Iterator[tuple[int, int, str]]:
    """Spans with their header: blocks are gathered up to the target, then cut where one alone is too long."""
    sections = _Sections(title)
    gathered: list[_Block] = []

    def flush() -> Iterator[tuple[int, int, str]]:
        if gathered:
            header = sections.header()
            for start, end in _cut_group(text, gathered, target):
                yield start, end, header
            gathered.clear()

    for block in blocks:
        length = block.end - block.start
        if block.kind in _HEADINGS:
            # A heading right under a heading stays with it; else it opens a new chunk.
            if any(item.kind not in _HEADINGS for item in gathered) or (
                gathered and block.end - gathered[0].start > target
            ):
                yield from flush()
            sections.enter(text[block.start : block.end], block.level)
            gathered.append(block)
        elif block.kind == "table" and length > _SMALL_TABLE_CHARS:
            if any(item.kind not in _HEADINGS for item in gathered):
                yield from flush()
            lead = gathered[0].start if gathered else block.start
            gathered.clear()
            yield from _table(text, lead, block, target, sections.header())
        else:
            if gathered and block.end - gathered[0].start > target:
                only_headings = all(item.kind in _HEADINGS for item in gathered)
                if not only_headings:
                    yield from flush()
            gathered.append(block)
    yield from flush()


class _Sections:
    """The stack of headings above the place where we stand."""

    def __init__(self, title: str) -> None:
        self._title = _one_line(title)
        self._stack: list[tuple[int, str]] = []

    def enter(self, heading: str, level: int) -> None:
        while self._stack and self._stack[-1][0] >= level:
            self._stack.pop()
        self._stack.append((level, _one_line(heading)))

    def header(self) -> str:
        parts = [self._title, *(name for _, name in self._stack)]
        return " > ".join(part for part in parts if part)[:_HEADER_CHARS]


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_HEADER_PART_CHARS]


def _table(text: str, lead: int, block: _Block, target: int, header: str) -> Iterator[tuple[int, int, str]]:
    """Whole rows up to the target. Later parts carry the first row in their header, where it names the columns."""
    first_row_end = text.find("\n", block.start, block.end)
    columns = _one_line(text[block.start : first_row_end if first_row_end > 0 else block.end])
    start = lead
    position = block.start
    while position < block.end:
        newline = text.find("\n", position, block.end)
        row_end = block.end if newline < 0 else newline
        if row_end - start > target and position > start and text[start:position].strip():
            if start == lead:
                yield (*_trimmed(text, start, position), header)
            else:
                yield (*_trimmed(text, start, position), f"{header} | {columns}")
            start = position
        position = row_end + 1
    if text[start : block.end].strip():
        yield (*_trimmed(text, start, block.end), header if start == lead else f"{header} | {columns}")


def _cut_group(text: str, group: Sequence[_Block], target: int) -> list[tuple[int, int]]:
    start, end = group[0].start, group[-1].end
    if end - start <= target:
        return [(start, end)]
    pieces = _sentence_spans(text, start, end, target)
    if len(pieces) > 1:
        last_start, last_end = pieces[-1]
        before = pieces[-2]
        if last_end - last_start < _SMALL * target and last_end - before[0] <= _OVERFLOW * target:
            pieces[-2:] = [(before[0], last_end)]
    return pieces


def _sentence_spans(text: str, start: int, end: int, target: int) -> list[tuple[int, int]]:
    """Cut [start, end) at sentences by llama-index; by our own splitter where its pieces are not verbatim, in order,
    complete and bounded."""
    part = text[start:end]
    spans: list[tuple[int, int]] = []
    position = 0
    for piece in _llama_pieces(part, target):
        found = part.find(piece, position)
        if found < 0 or part[position:found].strip() or len(piece) > _OVERFLOW * target:
            return exact_spans(text, start, end, target)
        spans.append((start + found, start + found + len(piece)))
        position = found + len(piece)
    if part[position:].strip() or not spans:
        return exact_spans(text, start, end, target)
    return [trimmed for span in spans if (trimmed := _trimmed(text, *span))[0] < trimmed[1]]


@cache
def _splitter(target: int) -> Any:
    # Imported late: three seconds, and short documents never need it.
    from llama_index.core.node_parser import SentenceSplitter

    # The "tokens" are characters: any model's tokenizer would make the cut depend on a download.
    return SentenceSplitter(chunk_size=target, chunk_overlap=0, tokenizer=_characters, include_metadata=False)


def _characters(text: str) -> range:
    return range(len(text))


def _llama_pieces(part: str, target: int) -> list[str]:
    pieces: list[str] = _splitter(target).split_text(part)
    return pieces


def exact_spans(text: str, start: int, end: int, target: int) -> list[tuple[int, int]]:
    """Spans of at most `target` characters: cut at the last paragraph, sentence, line or space that fits, else hard."""
    spans: list[tuple[int, int]] = []
    start, end = _trimmed(text, start, end)
    while end - start > target:
        cut = start + target
        for pattern in _CUTS:
            # Where a match begins the piece ends: the white space of the match itself may lie beyond the target.
            fitting = [
                match.end()
                for match in pattern.finditer(text, start + target // 3, start + target + 1)
                if match.start() <= start + target
            ]
            if fitting:
                cut = fitting[-1]
                break
        piece = _trimmed(text, start, cut)
        if piece[0] < piece[1]:
            spans.append(piece)
        start = _trimmed(text, cut, end)[0]
    if start < end:
        spans.append((start, end))
    return spans
