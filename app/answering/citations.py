"""Quotes: found in the stored text by the rule below, verified, and located as page spans and boxes. Pure.

Equal means: after NFKC, with white-space runs, soft and line-end hyphens and quote marks levelled; never case, digits
or punctuation. What is shown is always the stored span, never the wording of the model.
"""

import re
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

Box = tuple[float, float, float, float]

# How two neighbouring characters of the levelled text are joined. One byte each, so that spans compare as bytes.
_TIGHT, _SPACE, _HYPHEN, _HYPHEN_SPACE, _WRAPPED, _WRAPPED_NUMBER = range(6)
_WRAPPED_IS = frozenset({_TIGHT, _HYPHEN, _HYPHEN_SPACE, _WRAPPED, _WRAPPED_NUMBER})
_WRAPPED_NUMBER_IS = frozenset({_HYPHEN, _HYPHEN_SPACE, _WRAPPED_NUMBER})

_HYPHENS = frozenset("-\u2010\u2011")
_SOFT_HYPHEN = "\u00ad"
_INVISIBLE = frozenset("\u200b\u2060\ufeff")
_SINGLE_QUOTES = frozenset("'`\u00b4\u2018\u2019\u201a\u201b\u2039\u203a\uff07")
_DOUBLE_QUOTES = frozenset('"\u201c\u201d\u201e\u201f\u00ab\u00bb\uff02')
_LINE_ENDS = frozenset("\n\f\r\v\x85\u2028\u2029")
_WORD_GOES_ON = frozenset({_TIGHT, _HYPHEN, _WRAPPED, _WRAPPED_NUMBER})
# A run that levels to itself; what follows must not be a mark that would change its last character.
_PLAIN = re.compile(r"[A-Za-zÀ-ÖØ-öø-ÿ0-9.,;:()%$/&!?]+(?![^\x00-\u02ff])")
# What makes a number longer than the quote: 5 is not quoted from 5,120, from -5, from 5-10 or from 1 500 005.
_NUMBER_BEFORE = re.compile("(?:\\d[.,:/'’]|[-\u2010\u2011\u2212\u2013])\\Z")
_NUMBER_AFTER = re.compile("[.,:/'’\u2010\u2011\u2212\u2013-]\\d")
# 750,000 is whole as it stands: what follows it after a space is another number, not its next group of thousands.
_GROUP, _GROUP_LEAD = re.compile(r"\d{3}(?!\d)"), re.compile(r"(?<![\d.,'’])\d{1,3}\Z")
_GROUP_BEFORE = re.compile(r"(?<![\d.,'’])\d{1,3}[ \xa0\u2009\u202f]\Z")
_GROUP_AFTER = re.compile(r"[ \xa0\u2009\u202f]\d{3}(?!\d)")


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets into a text, end exclusive."""

    start: int
    end: int


class LineLike(Protocol):
    """A line of a page: offsets into the page's text and its box in points (None where the format has no layout)."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def box(self) -> Box | None: ...


@dataclass(frozen=True, slots=True)
class PageText:
    """One page of the stored text: `start`/`end` are offsets in the canonical text, lines are relative to `start`."""

    number: int
    start: int
    end: int
    lines: Sequence[LineLike] = ()
    label: str | None = None


@dataclass(frozen=True, slots=True)
class PageSpan:
    """The part of a quote that stands on one page: offsets into that page's text, boxes in points of that page."""

    page: int
    label: str | None
    start: int
    end: int
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class VerifiedQuote:
    """The outcome of a check. When verified, `text` is the stored wording, `char_start`/`char_end` its canonical
    offsets and `spans` its pages; `page`, `page_label` and `boxes` repeat the first of them. Otherwise `text` is the
    wording that was asked for and nothing else is set.
    """

    verified: bool
    text: str
    page: int | None = None
    page_label: str | None = None
    char_start: int | None = None
    char_end: int | None = None
    boxes: tuple[Box, ...] = ()
    spans: tuple[PageSpan, ...] = ()


class Levelled:
    """A text prepared for finding quotes in it: build once per text, use for every quote. Linear in the text."""

    __slots__ = ("chars", "ends", "joints", "starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts, self.ends, self.joints = array("q"), array("q"), bytearray()
        chars: list[str] = []
        for levelled, start, end, joint in _level(text):
            chars.append(levelled)
            size = len(levelled)
            # A run of plain characters comes as one piece: each stands for itself.
            single = end - start == size
            self.starts.extend(range(start, end) if single else [start] * size)
            self.ends.extend(range(start + 1, end + 1) if single else [end] * size)
            self.joints.append(joint)
            self.joints.extend(bytes(size - 1))
        self.chars = "".join(chars)


def find_all(text: str | Levelled, quote: str) -> list[Span]:
    """Every place where the quote stands in the text, in order, as offsets into the original text."""
    source = text if isinstance(text, Levelled) else Levelled(text)
    wanted = Levelled(quote)
    length = len(wanted.chars)
    if not any(c.isalnum() for c in wanted.chars):
        return []
    found: list[Span] = []
    at = source.chars.find(wanted.chars)
    while at >= 0:
        # The joint before the first character belongs to what stands in front of the quote.
        span = Span(source.starts[at], source.ends[at + length - 1])
        alike = _joined_alike(source.joints[at + 1 : at + length], wanted.joints[1:length])
        cut = _inside_word(source, at) or _inside_word(source, at + length)
        if alike and not cut and _whole_numbers(source.text, span):
            found.append(span)
        at = source.chars.find(wanted.chars, at + 1)
    return found


def find_quote(text: str | Levelled, quote: str, *, near: Span | None = None) -> Span | None:
    """The place of the quote in the text: the first one, or the one inside or nearest to `near`; None when absent.

    A quote never begins or ends inside a word or a number: `5` is not found in `5,120`, `5%` not in `-5%`.
    """
    places = find_all(text, quote)
    if not places:
        return None
    if near is None:
        return places[0]
    return min(places, key=lambda span: (_distance(span, near), span.start))


def locate(lines: Sequence[LineLike], start: int, end: int) -> tuple[Box, ...]:
    """Boxes of the lines that share a printed character with the span; the same offsets as the lines, in their order.

    Lines without a box are left out, so formats without layout give no box.
    """
    boxes = (line.box for line in lines if line.start < end and line.end > start)
    return tuple(dict.fromkeys(box for box in boxes if box is not None))


def locate_pages(text: str, pages: Sequence[PageText], start: int, end: int) -> tuple[PageSpan, ...]:
    """Split a span of the canonical text into pages; white space at a page's edge is not part of the quote there.

    `text` is the canonical text, or any text whose offsets the pages share.
    """
    spans: list[PageSpan] = []
    for page in pages:
        a, b = max(start, page.start), min(end, page.end)
        piece = text[a:b] if a < b else ""
        if piece.strip():
            a, b = a + len(piece) - len(piece.lstrip()), a + len(piece.rstrip())
            a, b = a - page.start, b - page.start
            spans.append(PageSpan(page.number, page.label, a, b, locate(page.lines, a, b)))
    return tuple(spans)


def verify(
    quote: str, text: str | Levelled, pages: Sequence[PageText], *, near: Span | None = None, offset: int = 0
) -> VerifiedQuote:
    """Check a quote against stored text and place it.

    `text` is the stored text of consecutive pages (joined by form feeds), `offset` where it begins in the canonical
    text (0 for the whole), `pages` its pages and `near` the cited chunk, both in canonical offsets.
    """
    source = text if isinstance(text, Levelled) else Levelled(text)
    hint = Span(near.start - offset, near.end - offset) if near else None
    span = find_quote(source, quote, near=hint)
    if span is None:
        return VerifiedQuote(verified=False, text=quote)
    return place(source.text, pages, span.start + offset, span.end + offset, offset=offset)


def place(text: str, pages: Sequence[PageText], start: int, end: int, *, offset: int = 0) -> VerifiedQuote:
    """A quote whose exact canonical span is already known, as an extracted sentence's is.

    Not verified when the span lies outside the pages that are given: then nobody can look it up.
    """
    wording = text[start - offset : end - offset]
    shifted = [PageText(p.number, p.start - offset, p.end - offset, p.lines, p.label) for p in pages]
    spans = locate_pages(text, shifted, start - offset, end - offset)
    if not spans:
        return VerifiedQuote(verified=False, text=wording)
    return VerifiedQuote(
        verified=True,
        text=wording,
        page=spans[0].page,
        page_label=spans[0].label,
        char_start=start,
        char_end=end,
        boxes=spans[0].boxes,
        spans=spans,
    )


def _distance(span: Span, near: Span) -> int:
    if span.start >= near.start and span.end <= near.end:
        return 0
    return 1 + max(0, near.start - span.end, span.start - near.end)


def _joined_alike(have: bytearray, want: bytearray) -> bool:
    return have == want or all(_alike(a, b) for a, b in zip(have, want, strict=True) if a != b)


def _alike(a: int, b: int) -> bool:
    """Nobody can tell whether a hyphen at a line end belongs to the word: both readings count as equal."""
    if _WRAPPED in (a, b):
        return (b if a == _WRAPPED else a) in _WRAPPED_IS
    if _WRAPPED_NUMBER in (a, b):
        return (b if a == _WRAPPED_NUMBER else a) in _WRAPPED_NUMBER_IS
    return False


def _inside_word(source: Levelled, at: int) -> bool:
    """Whether a word or number goes on across the edge before the levelled character `at`.

    A compound is one word: `refundable` is not found in `non-refundable`, nor `nation` in a divided `termi-nation`.
    """
    if not 0 < at < len(source.chars) or source.joints[at] not in _WORD_GOES_ON:
        return False
    left, right = source.text[source.ends[at - 1] - 1], source.text[source.starts[at]]
    if not right.isalnum() and unicodedata.combining(right) == 0:
        return False
    # A footnote mark on a word is no part of it; on a number it might be a power.
    return left.isnumeric() if right.isnumeric() and not right.isdecimal() else left.isalnum()


def _whole_numbers(text: str, span: Span) -> bool:
    """Whether no number goes on beyond the edges: by a point or comma, a sign, a range or a group of thousands."""
    before, after = text[max(0, span.start - 8) : span.start], text[span.end : span.end + 8]
    head, tail = text[span.start : span.start + 8], text[max(0, span.end - 8) : span.end]
    if head[0].isdigit() and (_NUMBER_BEFORE.search(before) or (_GROUP.match(head) and _GROUP_BEFORE.search(before))):
        return False
    if not tail[-1].isdigit():
        return True
    return not (_NUMBER_AFTER.match(after) or (_GROUP_LEAD.search(tail) and _GROUP_AFTER.match(after)))


def _level(text: str) -> Iterator[tuple[str, int, int, int]]:
    """(levelled characters, start, end, joint before them) in order; start and end are offsets of their origin."""
    joint, word, previous = _SPACE, False, ""  # word: a letter or digit stands directly before
    at, size = 0, len(text)
    while at < size:
        run = _PLAIN.match(text, at)
        char = text[at]
        if run:
            yield run.group(), at, run.end(), joint
            previous, joint, at = text[run.end() - 1], _TIGHT, run.end()
            word = previous.isalnum()
        elif char.isspace():
            joint = {_TIGHT: _SPACE, _HYPHEN: _HYPHEN_SPACE}.get(joint, joint)
            at += 1
        elif char in _INVISIBLE:
            at += 1
        elif char == _SOFT_HYPHEN or (char in _HYPHENS and word and joint == _TIGHT):
            joint, at = _hyphen(text, at, joint, previous)
        else:
            end = at + 1
            while end < size and _extends(text[end]):
                end += 1
            # Only what stands directly before counts: a mark after "750,000 " opens a quote, it is no sign for feet.
            levelled = _characters(text[at:end], previous if joint == _TIGHT else "", text[end : end + 1])
            yield levelled, at, end, joint
            previous, joint, at = levelled[-1], _TIGHT, end
            word = previous.isalnum()


def _hyphen(text: str, at: int, joint: int, previous: str) -> tuple[int, int]:
    """The joint that a hyphen makes and where reading goes on; a hyphen at a line end swallows the break."""
    after = at + 1
    broken = False
    while after < len(text) and (text[after].isspace() or text[after] in _INVISIBLE):
        broken = broken or text[after] in _LINE_ENDS
        after += 1
    if text[at] == _SOFT_HYPHEN:
        # Alone it is nothing; at a line end it is where the word was divided.
        return (_WRAPPED, after) if broken and joint == _TIGHT else (joint, at + 1)
    if broken and after < len(text) and text[after].isalnum():
        number = previous.isdigit() or text[after].isdigit()
        return (_WRAPPED_NUMBER if number else _WRAPPED), after
    return _HYPHEN, at + 1


def _extends(char: str) -> bool:
    """Combining marks and conjoining jamo are normalised together with the character before them."""
    return char > "\u02ff" and (unicodedata.combining(char) != 0 or "\u1160" <= char <= "\u11ff")


def _characters(cluster: str, previous: str, following: str) -> str:
    """NFKC of one character with its marks. Digits that are not decimal (superscripts, fractions) keep apart from
    the number beside them (10² is not 102, 5½ is not 51/2), quote marks after a digit from each other (feet, inches).
    """
    if cluster in _DOUBLE_QUOTES:
        return '"'
    if cluster in _SINGLE_QUOTES:
        return "'" if previous.isdigit() else '"'
    if cluster.isascii():
        return cluster
    normal = "".join(c for c in unicodedata.normalize("NFKC", cluster) if not c.isspace()) or cluster
    if cluster[0].isnumeric() and not cluster[0].isdecimal():
        lead = "^" if previous.isdigit() and normal[0].isdigit() else ""
        return lead + normal + ("^" if normal[-1].isdigit() and following.isdigit() else "")
    return normal
