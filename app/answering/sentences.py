"""Sentences of a stored text as exact offsets, for English, Spanish and Catalan. Pure; changes no character.

Text of a PDF wraps inside sentences, so a single line break ends nothing unless the layout says so.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

MAX_CHARS = 600


class Kind(StrEnum):
    """What a piece of text is: running text, one entry of a list, or a heading."""

    SENTENCE = "sentence"
    ITEM = "item"
    HEADING = "heading"


@dataclass(frozen=True, slots=True)
class Sentence:
    """`text[start:end]`, without white space at its ends; `block` numbers the paragraph it stands in."""

    start: int
    end: int
    kind: Kind
    block: int


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Followed by a name or a word: never the end of a sentence.
_TITLES = _listed(
    """
    mr mrs ms dr dra prof sr sra sres srs srta d dña dª st sta hon capt mme arts artt nros núm num núms nums nº pág pag
    págs pags pp secs § fig figs cls vol vols caps apt apts apdo refs vid cf eg ie e.g i.e ej p.ej p.ex vs aprox approx
    avda av ctra pl tel tfno tlf eds paras pars sched schd exh reg rd cit ibíd ibid dpto depto dept admón admó excmo
    excma excm ilmo ilma il·lm hble ee rr cc ff dd
    """
)
# Also words or letters of a list: only a number after them proves the abbreviation.
_BEFORE_NUMBER = _listed(
    """
    no nos nr n p c cl cap ap art sec ref ex ed ch para par ann lit let disp dir lo op jan feb mar apr jun jul aug sept
    sep oct nov dec ene abr ago dic gen febr set des col gral
    """
)
# May close a sentence too: only a common opening word after them proves it.
_SUFFIXES = _listed(
    """
    inc ltd corp co llc llp plc s.a s.l s.a.u s.l.u s.l.p s.l.l s.c s.c.p s.coop sa sl gmbh bv n.v b.v etc a.m p.m u.s
    u.k u.s.a e.u ee.uu uu jr bros assn mín máx min max h hrs kg km cm mm ha
    """
)
_OPENERS = _listed(
    """
    the this these those it its in if for each any all no such upon where when unless except however a an as at by on
    under subject neither either both notwithstanding he she they we you el la los las lo un una unos unas en si para
    cada todo toda todos todas este esta estos estas dicho dicha cuando salvo por con sin asimismo además ni su sus se
    al els les l' per tot tota tots totes aquest aquesta aquests aquestes quan llevat amb sense més i seu seva es s' d'
    """
)
_BREAK = re.compile(r"[ \t\r\xa0]*(?:\f|\n[ \t\r\xa0]*(?:\n|\f))\s*")
_BULLET = re.compile(
    r"(?:[-*•▪◦‣·–—●○■□➢✓]|\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,5})\)|\d{1,3}[.)º]|[a-z]\.)[ \t\xa0]+(?=\S)"
)
_NUMBERED = re.compile(
    r"(?:#{1,6}[ \t]|(?:\d{1,3}(?:\.\d{1,3})*[.)]?|[IVXLC]{1,7}\.)[ \t]+\S"
    r"|(?:article|artículo|art\.|section|sección|secció|clause|cláusula|clàusula|chapter|capítulo|capítol"
    r"|annex|anexo|anejo|schedule|exhibit|appendix|apéndice|apèndix|title|título|títol|part|disposición|disposició)\b)",
    re.IGNORECASE,
)
_END = re.compile(r"[.!?…]+[)\]\"'»”’]*(?=\s)|[.!?…]+[)\]\"'»”’]*\Z")
_CLAUSE = re.compile(r"[;:](?=\s)|,(?=\s)|\s[–—](?=\s)")
_WORD_BEFORE = re.compile(r"[^\s(\[\"'«“‘¿¡,;:]+\Z")
_OPENING = re.compile(r"[\s(\[\"'«“‘¿¡]*")


def sentences(text: str, max_chars: int = MAX_CHARS) -> list[tuple[int, int]]:
    """Offsets of the sentences, list entries and headings of `text`, in order, never overlapping.

    Together they hold every letter and digit of the text; none is longer than `max_chars`.
    """
    return [(piece.start, piece.end) for piece in split(text, max_chars)]


def split(text: str, max_chars: int = MAX_CHARS) -> list[Sentence]:
    """As `sentences`, with the kind of each piece and its paragraph."""
    pieces: list[Sentence] = []
    for number, (start, end, kind) in enumerate(_blocks(text)):
        spans = [(start, end)] if kind is Kind.HEADING else list(_ends(text, start, end))
        for sentence_start, sentence_end in spans:
            for a, b in _bounded(text, sentence_start, sentence_end, max_chars):
                run_in = sentence_end < end and sentence_start == start and _run_in(text[a:b])
                pieces.append(Sentence(a, b, kind=Kind.HEADING if run_in else kind, block=number))
    return pieces


def _blocks(text: str) -> Iterator[tuple[int, int, Kind]]:
    """Paragraphs, list entries and headings: what a line break can only end together with the layout."""
    at = 0
    for gap in _BREAK.finditer(text):
        if gap.end() > gap.start():
            yield from _lines(text, at, gap.start())
            at = gap.end()
    yield from _lines(text, at, len(text))


def _lines(text: str, start: int, end: int) -> Iterator[tuple[int, int, Kind]]:
    """Split one paragraph where a line is a heading, a table row or the beginning of a list entry."""
    lines = [(m.start(), m.end()) for m in re.compile(r"[^\n]+").finditer(text, start, end)]
    if not lines:
        return
    # One very long unwrapped line says nothing about where the others would have wrapped.
    width = max(len(text[a:b].rstrip()) for a, b in lines)
    begin, kind = lines[0][0], _opening_kind(text, *lines[0])
    for here, following in pairwise(lines):
        line, coming = text[here[0] : here[1]].strip(), text[following[0] : following[1]].strip()
        alone = begin == here[0]
        if _is_heading(line, coming, width, alone=alone):
            yield begin, here[1], Kind.HEADING
        elif not (_row(line) or _row(coming) or _BULLET.match(coming) or _short(line, coming, width)):
            continue
        else:
            yield begin, here[1], kind
        begin, kind = following[0], _opening_kind(text, *following)
    last = text[begin:end].strip()
    titled = _titled(last) and (_capitals(last) or (len(lines) == 1 and _NUMBERED.match(last) is not None))
    yield begin, end, Kind.HEADING if "\n" not in last and (titled or last.startswith("#")) else kind


def _opening_kind(text: str, start: int, end: int) -> Kind:
    return Kind.ITEM if _BULLET.match(text[start:end].lstrip()) else Kind.SENTENCE


def _run_in(sentence: str) -> bool:
    """`2.1 Notice.` before the text of its clause: a heading that shares the paragraph."""
    return len(sentence) <= 90 and _NUMBERED.match(sentence) is not None


def _titled(line: str) -> bool:
    return len(line) <= 120 and line[-1:] not in ".;,:!?…" and any(c.isalpha() for c in line)


def _capitals(line: str) -> bool:
    letters = [c for c in line if c.isalpha()]
    return len(letters) >= 3 and all(not c.islower() for c in letters)


def _is_heading(line: str, coming: str, width: int, *, alone: bool) -> bool:
    if line.startswith("#"):
        return True
    if not alone or not _starts_upper(coming):
        return False
    if _capitals(line) and len(line) <= 120 and not _capitals(coming):
        return True
    return _titled(line) and len(line) <= 0.6 * width + 12 and (_NUMBERED.match(line) is not None or len(line) <= 60)


def _short(line: str, coming: str, width: int) -> bool:
    """A line that stops well before the right margin did not wrap: its break is meant."""
    if line.endswith((":", ";")):
        return len(line) <= 0.75 * width or coming[:1].isdigit()
    return width <= 200 and len(line) <= 0.55 * width and _starts_upper(coming) and line[-1:] not in ",-"


def _starts_upper(line: str) -> bool:
    stripped = _OPENING.sub("", line, count=1)
    return bool(stripped) and (stripped[0].isupper() or stripped[0].isdigit())


def _row(line: str) -> bool:
    return line.startswith("|") or "\t" in line


def _ends(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Sentences of one block."""
    begin = start
    marker = _BULLET.match(text, start + len(text[start:end]) - len(text[start:end].lstrip()), end)
    for stop in _END.finditer(text, marker.end() if marker else start, end):
        if stop.end() >= end:
            break
        if _closes(text, begin, stop, end):
            yield begin, stop.end()
            begin = stop.end()
    yield begin, end


def _closes(text: str, begin: int, stop: re.Match[str], end: int) -> bool:
    opening = _OPENING.match(text, stop.end(), end)
    after = opening.end() if opening else stop.end()
    following = text[after : after + 1]
    if following.islower():
        return False
    if not stop.group().startswith(".") or stop.group().startswith(".."):
        return True
    word = _WORD_BEFORE.search(text, begin, stop.start())
    if word is None:
        return True
    token = word.group().strip(".").casefold()
    if word.start() == begin and re.fullmatch(r"\d{1,3}(\.\d{1,3})*", token):
        return False  # the number of a clause, not a sentence
    if token in _TITLES or (token in _BEFORE_NUMBER and following.isdigit()):
        return False
    letters = word.group().replace(".", "")
    dotted = len(letters) <= 4 and letters.isalpha() and "." in word.group()
    initial = len(letters) == 1 and letters.isupper()
    if token in _SUFFIXES or dotted or initial:
        return _word_at(text, after, end) in _OPENERS
    return True


def _word_at(text: str, at: int, end: int) -> str:
    found = re.compile(r"\w+['’]?").match(text, at, end)
    return found.group().casefold().replace("’", "'") if found else ""


def _bounded(text: str, start: int, end: int, max_chars: int) -> Iterator[tuple[int, int]]:
    """Cut what is too long at the last clause mark, else at the last white space, else hard."""
    trimmed = _trimmed(text, start, end)
    if trimmed is None:
        return
    start, end = trimmed
    while end - start > max_chars:
        limit = start + max_chars
        cut = 0
        for mark in _CLAUSE.finditer(text, start + max_chars // 3, limit):
            cut = mark.end()
        if not cut:
            space = max(text.rfind(c, start + 1, limit) for c in " \n\t")
            cut = space if space > start else limit
        first, rest = _trimmed(text, start, cut), _trimmed(text, cut, end)
        if first is not None:
            yield first
        if rest is None:
            return
        start, end = rest
    yield start, end


def _trimmed(text: str, start: int, end: int) -> tuple[int, int] | None:
    """The span without white space at its ends; None when no letter or digit is in it."""
    piece = text[start:end]
    if not any(c.isalnum() for c in piece):
        return None
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
