"""Words of a text as search terms: stem, exact offsets, and what kind of word each is.

Owns tokenisation, normalisation and stemming for the sparse leg and for evidence. Knows no index and no weights.
"""

import re
import threading
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import Stemmer

from ingestion.stopwords import BY_LANGUAGE

# ISO 639-1 code -> Snowball algorithm.
_ALGORITHMS = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek", "en": "english",
    "eo": "esperanto", "es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian", "fi": "finnish",
    "fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian",
    "it": "italian", "lt": "lithuanian", "nb": "norwegian", "ne": "nepali", "nl": "dutch", "nn": "norwegian",
    "no": "norwegian", "pl": "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian",
    "sv": "swedish", "ta": "tamil", "tr": "turkish", "yi": "yiddish",
}  # fmt: skip
STEMMED_LANGUAGES = frozenset(
    code for code, algorithm in _ALGORITHMS.items() if algorithm in frozenset(Stemmer.algorithms())
)
_MAX_STEM_CHARS = 64
# Articles and prepositions that Catalan, French and Italian write onto the next word (l'article, d'aquest, dell'atto).
_ELIDED_PREFIXES = "l d m n s t c j qu jusqu lorsqu puisqu quoiqu quelqu presqu dell all nell sull dall coll quest un"
_ELIDED = frozenset(_ELIDED_PREFIXES.split())
_CLITICS = frozenset({"s", "m", "n", "l", "t", "d", "ll", "re", "ve", "ls", "ns"})
# English pronouns that are names when written in capitals between ordinary words (US, IT, WHO).
_ACRONYM_STOP_WORDS = frozenset({"us", "it", "who"})

# Scripts written without spaces (and Hangul, whose words carry their particles): character bigrams.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
# Footnote marks, ordinals and fractions are letters to Python but must not grow onto a number (30¹ is not 301).
_NOT_LETTERS = "\u00aa\u00b2\u00b3\u00b9\u00ba\u00bc-\u00be\u2070-\u209f\u2150-\u215f\u2189"
_LETTER = rf"[^\W\d_{_NOT_LETTERS}{_UNSPACED}]"
_APOSTROPHES = "'’ʼ＇"  # also written inside number patterns as a thousands mark
_INVISIBLE = "\u00ad\u200b-\u200d\u2060\ufeff"
_MIDDLE_DOTS = "·•‧∙⋅"


def _marks() -> str:
    """Return a character class of the combining marks outside the unspaced scripts (Python's `re` has no \\p{M})."""
    unspaced = re.compile(f"[{_UNSPACED}]")
    return "".join(
        chr(code)
        for code in range(0x300, 0xFFFF)
        if unicodedata.category(chr(code)).startswith("M") and not unspaced.match(chr(code))
    )


_INNER = rf"(?:{_LETTER}|[\d{_marks()}{_INVISIBLE}]|[{_APOSTROPHES}](?={_LETTER})|(?<=[lL])[{_MIDDLE_DOTS}](?=[lL]))"
_LINE_HYPHEN = rf"[-‐][ \t]*\r?\n[ \t]*(?={_LETTER})"
_TOKEN = re.compile(
    rf"(?P<unspaced>[{_UNSPACED}]+)"
    r"|(?P<date>\d{4}-\d{2}-\d{2}(?!\d))"
    # 5,120  5.120,00  12/2023  10:30  12.3(b)  6(1)(f)  30th  100k
    rf"|(?P<number>\d+(?:[.,:/٫٬．，：／{_APOSTROPHES}]\d+)*(?:\((?:[ivxlc]{{1,5}}|[A-Za-z]|\d{{1,2}})\)|{_LETTER}+)*)"
    rf"|(?P<acronym>(?:[^\W\d_]\.){{2,}}[^\W\d_]?(?!\w))"
    rf"|(?P<word>{_LETTER}{_INNER}*(?:{_LINE_HYPHEN}{_LETTER}{_INNER}*)*)"
)
_HYPHEN_AT_LINE_END = re.compile(r"[-‐][ \t]*\r?\n[ \t]*")
_STRIPPED = re.compile(rf"[{_INVISIBLE}{_MIDDLE_DOTS}]")
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th|er|ere|è|é|ème|ère)")
_ORDINAL_CATALAN = re.compile(r"(\d+)(?:r|n|t|a)")
_NUMBER_PREFIX = re.compile(r"\([^()]+\)$")
_SENTENCE_END = frozenset(".!?…:;¡¿")
_OPENERS = frozenset(" \t\r\"'“‘«([{*#>-–—•")
_SHOUT_RUN = 4


@dataclass(frozen=True, slots=True)
class Term:
    """One word of a text; `text[start:end]` is its surface.

    `stem` is what is indexed and compared; `form` is the word before stemming (NFKC, case folded, accents kept), for
    comparing names exactly. A word cut by a hyphen at a line end comes as the joined word and as its two parts.
    """

    stem: str
    start: int
    end: int
    is_stop: bool
    is_number: bool
    is_name: bool
    form: str = ""


class _StemmerLike(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802  (PyStemmer's own name)


class _Stemmers(threading.local):
    """Stemmers of one thread: PyStemmer objects keep a buffer and must not be shared."""

    def __init__(self) -> None:
        self._by_algorithm: dict[str, _StemmerLike] = {}

    def get(self, algorithm: str) -> _StemmerLike:
        stemmer = self._by_algorithm.get(algorithm)
        if stemmer is None:
            stemmer = self._by_algorithm[algorithm] = Stemmer.Stemmer(algorithm, 0)  # the cache is ours, below
        return stemmer


_stemmers = _Stemmers()


def base_language(language: str | None) -> str:
    """Return the ISO 639-1 part of a language tag, lower case (`en-GB` -> `en`); "" when there is none."""
    return re.split(r"[-_]", (language or "").strip().lower(), maxsplit=1)[0]


def stop_words(language: str | None) -> frozenset[str]:
    """Return the stop words of a language as forms (accents kept); empty for languages without a list."""
    return BY_LANGUAGE.get(base_language(language), frozenset())


@lru_cache(maxsize=65536)
def normalise(surface: str) -> str:
    """NFKC, case fold, plain apostrophes and digits, no invisible characters: the form of a word."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", surface).casefold())
    folded = _STRIPPED.sub("", folded)
    for apostrophe in _APOSTROPHES[1:]:
        folded = folded.replace(apostrophe, "'")
    if not folded.isascii():
        folded = "".join(str(unicodedata.decimal(char)) if char.isdecimal() else char for char in folded)
    return folded


def fold(text: str) -> str:
    """Take accents off (combining marks U+0300-U+036F only: vowel signs of other scripts stay)."""
    if text.isascii():
        return text
    stripped = (char for char in unicodedata.normalize("NFD", text) if not "\u0300" <= char <= "\u036f")
    return unicodedata.normalize("NFC", "".join(stripped))


@lru_cache(maxsize=131072)
def stem(form: str, language: str) -> str:
    """Stem a form by the language's Snowball stemmer, then fold accents; anything with a digit stays as it is.

    `language` is a base ISO 639-1 code; without a stemmer for it the form is only folded.
    """
    if any(char.isdigit() for char in form):
        return form[:_MAX_STEM_CHARS]
    stemmed = _stemmers.get(_ALGORITHMS[language]).stemWord(form) if language in STEMMED_LANGUAGES else form
    return fold(stemmed or form)[:_MAX_STEM_CHARS]


@lru_cache(maxsize=131072)
def unaccented_stem(form: str, language: str) -> str | None:
    """Return the stem of the form typed without its accents when it differs from its own stem, else None."""
    if form.isascii():
        return None
    plain = stem(fold(form), language)
    return plain if plain != stem(form, language) else None


def number_prefixes(form: str) -> list[str]:
    """Return the wider references of a clause number: `6(1)(f)` -> `["6(1)", "6"]`."""
    found: list[str] = []
    while (shorter := _NUMBER_PREFIX.sub("", form)) != form:
        form = shorter
        found.append(form)
    return found


def terms(text: str, language: str | None) -> list[Term]:
    """Return the terms of a text in order of their start; `language` is an ISO 639-1 code or None (no stemming)."""
    code = base_language(language)
    words = list(_words(text, code))
    names = _names(text, words, code)
    stops = stop_words(code)
    found: list[Term] = []
    for word, is_name in zip(words, names, strict=True):
        is_stop = word.elided or (
            not (word.numeric or word.raw) and word.form in stops and not (is_name and _is_acronym(text, word))
        )
        found.append(
            Term(
                stem=word.form if word.raw else stem(word.form, code),
                start=word.start,
                end=word.end,
                is_stop=is_stop,
                is_number=word.numeric,
                is_name=is_name and not is_stop,
                form=word.form,
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class _Word:
    form: str
    start: int
    end: int
    numeric: bool = False
    elided: bool = False
    raw: bool = False  # the form is the stem: bigrams of unspaced scripts, acronyms


def _words(text: str, code: str) -> Iterator[_Word]:
    for match in _TOKEN.finditer(text):
        start, end = match.span()
        surface = match.group()
        match match.lastgroup:
            case "unspaced":
                yield from _bigrams(text, start, end)
            case "date":
                yield _Word(normalise(surface), start, end, numeric=True)
            case "number":
                yield _Word(_number_form(surface, code), start, end, numeric=True)
            case "acronym":
                yield _Word(normalise(surface).replace(".", ""), start, end, raw=True)
            case _:
                yield from _parts(surface, start)


def _bigrams(text: str, start: int, end: int) -> Iterator[_Word]:
    if end - start == 1:
        yield _Word(normalise(text[start:end]), start, end, raw=True)
    for at in range(start, end - 1):
        yield _Word(normalise(text[at : at + 2]), at, at + 2, raw=True)


def _number_form(surface: str, code: str) -> str:
    form = normalise(surface).replace("٫", ".").replace("٬", ",")
    for pattern in (_ORDINAL, _ORDINAL_CATALAN) if code == "ca" else (_ORDINAL,):
        if found := pattern.fullmatch(form):
            return found.group(1)
    return form


def _parts(surface: str, start: int) -> Iterator[_Word]:
    """Split a word at line-end hyphens and take elided articles and clitics off."""
    cuts = list(_HYPHEN_AT_LINE_END.finditer(surface))
    if not cuts:
        yield from _elision(surface, start)
        return
    if all(surface[cut.end()].islower() for cut in cuts):
        yield from _elision(surface, start, form_of=_HYPHEN_AT_LINE_END.sub("", surface))
    edges = [0, *(edge for cut in cuts for edge in cut.span()), len(surface)]
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        yield from _elision(surface[first:last], start + first)


def _elision(surface: str, start: int, form_of: str | None = None) -> Iterator[_Word]:
    end = start + len(surface)
    form = normalise(form_of or surface)
    numeric = any(char.isdigit() for char in form)
    if "'" not in form:
        yield _Word(form, start, end, numeric=numeric)
        return
    head, _, tail = form.partition("'")
    if head in _ELIDED and tail:
        cut = 1 + next(at for at, char in enumerate(surface) if char in _APOSTROPHES)
        yield _Word(head, start, start + cut - 1, elided=True)
        start, form = start + cut, tail
    base, _, clitic = form.rpartition("'")
    if base and clitic in _CLITICS and form not in BY_LANGUAGE["en"]:
        form = base
    yield _Word(form, start, end, numeric=numeric)


def _is_acronym(text: str, word: _Word) -> bool:
    return word.form in _ACRONYM_STOP_WORDS and text[word.start : word.end].isupper()


def _names(text: str, words: list[_Word], code: str) -> list[bool]:
    """Say for each word whether it is written as a name: a capital inside a sentence, capitals, or mixed case."""
    surfaces = [text[word.start : word.end] for word in words]
    capitals = [
        len(surface) > 1 and surface.isupper() and not word.numeric
        for surface, word in zip(surfaces, words, strict=True)
    ]
    shouted = _shouted(capitals)
    stops = stop_words(code)
    found: list[bool] = []
    for at, (word, surface) in enumerate(zip(words, surfaces, strict=True)):
        if word.numeric or not surface[0].isupper():
            # iPhone, eBay: a capital after small letters
            found.append(
                not word.numeric and len(surface) > 1 and surface[0].islower() and any(c.isupper() for c in surface[1:])
            )
        elif shouted[at]:
            found.append(False)
        elif capitals[at]:
            found.append(word.form not in stops or _is_acronym(text, word))
        elif word.form in stops or len(surface) == 1:
            found.append(False)
        elif any(char.isupper() for char in surface[1:]):
            found.append(True)
        elif code == "de":
            found.append(False)  # every German noun has a capital
        else:
            follows = (
                at + 1 < len(words) and surfaces[at + 1][0].isupper() and text[word.end : words[at + 1].start] == " "
            )
            found.append(follows or not _starts_sentence(text, word.start))
    return found


def _shouted(capitals: list[bool]) -> list[bool]:
    """Mark runs of at least four words in capitals: headings, not names."""
    marked = [False] * len(capitals)
    run_start = 0
    for at in range(len(capitals) + 1):
        if at < len(capitals) and capitals[at]:
            continue
        if at - run_start >= _SHOUT_RUN:
            marked[run_start:at] = [True] * (at - run_start)
        run_start = at + 1
    return marked


def _starts_sentence(text: str, start: int) -> bool:
    at = start - 1
    breaks = 0
    while at >= 0 and (text[at] in _OPENERS or text[at] in "\n\f"):
        breaks += text[at] in "\n\f"
        at -= 1
    if at < 0 or breaks > 1:
        return True
    if text[at] not in _SENTENCE_END:
        return False
    if text[at] != ".":
        return True
    # "Mr. Smith", "Sra. Puig", "J. Costa": a short capitalised abbreviation does not end a sentence
    before = at
    while before > 0 and text[before - 1].isalpha():
        before -= 1
    return not (0 < at - before <= 3 and text[before].isupper())
