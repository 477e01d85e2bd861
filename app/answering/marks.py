"""Citation marks in a streamed answer: `[2: "exact words of source 2"]`. Pure; checks no quote, trusts no number.

Text comes out as it arrives, marks when they are complete, whatever the pieces are that the model sends.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.answering.sentences import sentences

MAX_MARK_CHARS = 2_000
_OPEN, _CLOSE = "\"'“”„«»‘’`", "\"'“”«»‘’`"
# `[2]`, `[2: "..."]`, `[2: "..."; 3: "..."]`, also `[source 2, "..."]`
_HEAD = re.compile(
    rf"\s*(?:source|fuente|font|src)?\s*#?(\d{{1,4}})\s*(?:[:,–-]\s*(?=[{_OPEN}])|(?=[\];]))", re.IGNORECASE
)
# The beginning of such a head, as far as it has arrived.
_HEAD_BEGUN = re.compile(
    r"\s*(?:s(?:o(?:u(?:r(?:ce?)?)?)?|r(?:c)?)?|f(?:u(?:e(?:n(?:te?)?)?)?|o(?:n(?:t)?)?)?)?"
    r"\s*#?(?:\d{1,4}\s*(?:[:,–-]\s*)?)?\Z",
    re.IGNORECASE,
)
# The quote ends at a quote mark before `]` or before the next source, so quote marks inside it do no harm.
_QUOTE_END = re.compile(rf"[{_CLOSE}]\s*(?P<last>\])|[{_CLOSE}]\s*[;,]\s*(?=#?\d{{1,4}}\s*:)")
_GIVEN_UP = re.compile(r"\n[ \t]*\n")


class DropReason(StrEnum):
    """Why a mark is not shown."""

    UNKNOWN_SOURCE = "unknown_source"
    UNCLOSED = "unclosed"
    EMPTY_QUOTE = "empty_quote"


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the answer's own words."""

    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A complete mark: source number, its quote (None for a bare `[2]`) and the offset in the text so far."""

    source: int
    quote: str | None
    at: int


@dataclass(frozen=True, slots=True)
class DroppedMark:
    """A mark that is not shown and why; `source` when it could be read."""

    reason: DropReason
    at: int
    source: int | None = None


Event = TextDelta | Mark | DroppedMark


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence of the answer, `text[start:end]`, and the marks that follow it or stand in it."""

    start: int
    end: int
    marks: tuple[Mark, ...]


class MarkParser:
    """Feed pieces, take events; `close` at the end. `sources` are the numbers that the prompt gave out."""

    def __init__(self, sources: Collection[int]) -> None:
        self._sources = frozenset(sources)
        self._held = ""  # from an opening bracket that may become a mark
        self._written = 0

    def feed(self, piece: str) -> list[Event]:
        """Events that the new piece completes."""
        self._held += piece
        return _joined(self._drain(final=False))

    def close(self) -> list[Event]:
        """What is still held: text that only looked like a mark, or a mark that was cut off."""
        return _joined(self._drain(final=True))

    def _drain(self, *, final: bool) -> Iterator[Event]:
        while self._held:
            bracket = self._held.find("[")
            plain = self._held if bracket < 0 else self._held[:bracket]
            if plain:
                self._held = self._held[len(plain) :]
                self._written += len(plain)
                yield TextDelta(plain)
                continue
            head = _HEAD.match(self._held, 1)
            if head is None:
                if not final and _HEAD_BEGUN.match(self._held, 1) and len(self._held) < 40:
                    return
                self._held = self._held[1:]
                self._written += 1
                yield TextDelta("[")
                continue
            found, used = _entries(self._held, 1)
            if used:
                yield from (self._mark(number, quote) for number, quote in found)
                self._held = self._held[used:]
                continue
            gap = _GIVEN_UP.search(self._held)
            if gap is None and not final and len(self._held) <= MAX_MARK_CHARS:
                return
            yield DroppedMark(DropReason.UNCLOSED, self._written, int(head.group(1)))
            self._held = self._held[gap.start() :] if gap else ""

    def _mark(self, source: int, quote: str | None) -> Mark | DroppedMark:
        if source not in self._sources:
            return DroppedMark(DropReason.UNKNOWN_SOURCE, self._written, source)
        if quote is not None and not any(c.isalnum() for c in quote):
            return DroppedMark(DropReason.EMPTY_QUOTE, self._written, source)
        return Mark(source, quote, self._written)


def parse(answer: str, sources: Collection[int]) -> tuple[str, list[Mark], list[DroppedMark]]:
    """A whole answer at once: its own words, the marks and what was dropped."""
    parser = MarkParser(sources)
    events = [*parser.feed(answer), *parser.close()]
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    return text, [e for e in events if isinstance(e, Mark)], [e for e in events if isinstance(e, DroppedMark)]


def claims(text: str, marks: Sequence[Mark]) -> list[Claim]:
    """Give each mark to the sentence that it stands in or directly follows; sentences without marks stay, empty."""
    spans = sentences(text)
    given: list[list[Mark]] = [[] for _ in spans]
    for mark in marks:
        # A mark before a sentence's first letter belongs to the sentence before.
        index = max((i for i, (start, _) in enumerate(spans) if start < mark.at), default=None)
        if index is not None:
            given[index].append(mark)
    return [Claim(start, end, tuple(own)) for (start, end), own in zip(spans, given, strict=True)]


def _entries(held: str, at: int) -> tuple[list[tuple[int, str | None]], int]:
    """The entries of a complete mark and the length used; length 0 while the mark is not complete."""
    found: list[tuple[int, str | None]] = []
    while (head := _HEAD.match(held, at)) is not None:
        number, at = int(head.group(1)), head.end()
        if at < len(held) and held[at] == "]":
            return [*found, (number, None)], at + 1
        if at < len(held) and held[at] == ";":
            found.append((number, None))
            at += 1
            continue
        end = _QUOTE_END.search(held, at + 1)
        if end is None:
            return found, 0
        found.append((number, held[at + 1 : end.start()].strip()))
        at = end.end()
        if end.group("last"):
            return found, at
    return found, 0


def _joined(events: Iterable[Event]) -> list[Event]:
    """Neighbouring text as one delta."""
    joined: list[Event] = []
    for event in events:
        if isinstance(event, TextDelta) and joined and isinstance(joined[-1], TextDelta):
            joined[-1] = TextDelta(joined[-1].text + event.text)
        else:
            joined.append(event)
    return joined
