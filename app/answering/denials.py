"""Whether a sentence denies a property, by its negations and what they govern, in English, Spanish and Catalan. Pure.

A negation elsewhere in the sentence denies nothing ("shall not disclose the exclusivity clause"), nor do two that
cancel each other ("nothing shall limit"). In doubt a sentence does not deny.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from app.answering import denial_words as lists
from ingestion.terms import Term, base_language, fold, stem, stop_words, terms

_LANGUAGES = ("en", "es", "ca")
# How many words after a negation or a subject its predicate is looked for, and how far back a subject.
_REACH, _REACH_BACK = 12, 5
# Words between a negation and what it may deny that are neither grammar nor carriers of the property.
_MOST_UNKNOWN, _COMMA_COSTS = 4, 2
_DEFINITE_REACH = 3
_CLAUSE_MARK = re.compile(r"[;:()\[\]—–]|\.\s")
_HYPHENS = frozenset("-‐‑")
_TRANSPARENT = lists.LIGHT | lists.CARRIERS | lists.MODALS | lists.REFUSES | lists.REFUSED
_PLAIN = lists.MODALS | lists.PASSIVE_SIGNS


@dataclass(frozen=True, slots=True)
class _Property:
    """What a property turns on, as stems of each word in all our languages.

    `bans`: the words by which it is a ban; `is_limit`: it is a limit; `is_negated`: it holds a negation itself
    ("non-compete").
    """

    words: tuple[frozenset[str], ...]
    bans: tuple[frozenset[str], ...]
    is_limit: bool
    is_negated: bool

    @property
    def is_negative(self) -> bool:
        """Whether what forbids its words agrees with it."""
        return bool(self.bans) or self.is_limit or self.is_negated


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of the sentence. `asked` are the words of the property that it stands for; `breaks`: a clause begins."""

    form: str
    is_stop: bool
    is_negation: bool
    asked: frozenset[int]
    is_ban: bool
    breaks: bool
    after_comma: bool
    after_hyphen: bool

    @property
    def is_plain(self) -> bool:
        """Whether it is grammar only."""
        return self.is_stop or self.is_negation or self.form in _PLAIN

    @property
    def is_transparent(self) -> bool:
        """Whether a negation reaches through it whatever it is."""
        return self.is_plain or bool(self.asked) or self.is_ban or self.form in _TRANSPARENT


def denies(sentence: str, about: str, language: str) -> bool:
    """Whether the sentence says that `about` ("exclusivity clause") does not hold. `language` is the sentence's.

    Of a ban or limit ("non-compete", "cap on liability") the sentence must say that there is none; what it forbids is
    what was asked for. False when no word of the property, nor a cognate, stands in the sentence.
    """
    code = base_language(language)
    code = code if code in _LANGUAGES else "en"
    wanted = _property(about)
    words = _words(sentence, code, wanted)
    if any(word.is_ban and _lifted(words, at) for at, word in enumerate(words)):
        return True
    denied: dict[int, bool] = {}
    needed = 2 if wanted.is_negative else 1
    for at, word in enumerate(words):
        if word.asked and not word.is_ban:
            holds_not = _negations(words, at) == needed
            for which in word.asked:
                # A word that is also said without a negation is there: an exclusive and a non-exclusive licence.
                denied[which] = denied.get(which, True) and holds_not
    return any(denied.values()) and 2 * sum(denied.values()) >= len(denied)


@lru_cache(maxsize=256)
def _property(about: str) -> _Property:
    words: list[frozenset[str]] = []
    carriers: list[frozenset[str]] = []
    bans: list[frozenset[str]] = []
    is_limit = is_negated = False
    stops = frozenset().union(*(stop_words(code) for code in _LANGUAGES))
    negations = lists.NEGATIONS["en"] | lists.NEGATIONS["es"] | (lists.NEGATIONS["ca"] - {"cap"})
    for term in terms(about, "en"):
        form = fold(term.form)
        stems = frozenset(stem(term.form, code) for code in _LANGUAGES)
        if form in negations or form.endswith("n't"):
            is_negated = True
        elif form in lists.LIMITS:
            is_limit = True
        elif form in lists.BANS:
            bans.append(stems)
        elif form in lists.CARRIERS:
            carriers.append(stems)
        elif term.form not in stops:
            words.append(stems)
    return _Property(tuple(words or (() if bans or is_limit else carriers)), tuple(bans), is_limit, is_negated)


def _words(sentence: str, code: str, wanted: _Property) -> list[_Word]:
    found = terms(sentence, code)
    words: list[_Word] = []
    end = 0
    for term in found:
        gap = sentence[min(end, term.start) : term.start] if end else ""
        end = max(end, term.end)
        word = _word(term, gap, code, wanted)
        inner = word.form.removeprefix("non")
        if word.form.startswith("non") and (asked := _matches(stem(inner, code), inner, wanted.words)):
            words.append(_Word("non", False, True, frozenset(), False, word.breaks, word.after_comma, False))
            word = _Word(inner, False, False, asked, False, False, False, True)
        words.append(word)
    return words


def _word(term: Term, gap: str, code: str, wanted: _Property) -> _Word:
    form = fold(term.form)
    return _Word(
        form=form,
        is_stop=term.is_stop,
        is_negation=form in lists.NEGATIONS[code] or form.endswith("n't"),
        asked=_matches(term.stem, form, wanted.words),
        is_ban=bool(_matches(term.stem, "", wanted.bans))
        or (wanted.is_limit and form in lists.LIMITS | lists.UNLIMITED),
        breaks=form in lists.BREAKS[code] or _CLAUSE_MARK.search(gap) is not None,
        after_comma="," in gap,
        after_hyphen=gap in _HYPHENS,
    )


def _matches(stemmed: str, form: str, asked: Sequence[frozenset[str]]) -> frozenset[int]:
    """Which words it stands for; `excluded` is no relative of `exclusive`."""
    loose = form not in lists.REFUSED and form not in lists.REFUSES
    return frozenset(
        at
        for at, stems in enumerate(asked)
        if stemmed in stems or (loose and any(_related(stemmed, other) for other in stems))
    )


def _related(one: str, other: str) -> bool:
    """Whether two stems are likely of one family: they share most of the longer one."""
    alike = 0
    while alike < min(len(one), len(other)) and one[alike] == other[alike]:
        alike += 1
    return one.isalpha() and alike >= max(4, 0.6 * max(len(one), len(other)))


def _lifted(words: Sequence[_Word], at: int) -> bool:
    """Whether a ban or limit is denied.

    "Nothing limits" and "not construed to limit" speak of exceptions to a limit, "without limitation" and "not limited
    to" of none at all.
    """
    before, after = (words[n].form if 0 <= n < len(words) else "" for n in (at - 1, at + 1))
    limits = words[at].form in lists.LIMITS
    if limits and (before == "to" or (after == "to" and at > 0 and words[at - 1].is_negation)):
        return False
    governed = any(
        word.is_negation
        and word.form not in lists.NOTHING
        and not (limits and word.form in lists.STRICT)
        and _governs(words, place, at, refused=False)
        for place, word in enumerate(words)
    )
    return (words[at].form in lists.UNLIMITED) is not governed


def _negations(words: Sequence[_Word], at: int) -> int:
    """How many negations govern the word: one denies it, two cancel each other.

    "Neither ... nor" and "no ... ningún" are one; `non-` and a verb like "waive" count for themselves.
    """
    refused = _is_refused(words, at)
    governing = [
        place for place, word in enumerate(words) if word.is_negation and _governs(words, place, at, refused=refused)
    ]
    prefixes = [place for place in governing if words[place].form == "non"]
    return len(prefixes) + (len(governing) > len(prefixes)) + refused


def _is_refused(words: Sequence[_Word], at: int) -> bool:
    """Whether somebody waives, excludes or prohibits it."""
    for place in range(max(0, at - _REACH_BACK), at):
        refuses = words[place].form in lists.REFUSES or words[place].form in lists.REFUSED
        if refuses and not any(word.breaks or word.after_comma for word in words[place + 1 : at + 1]):
            return True
    for word in words[at + 1 : at + 2 + _REACH_BACK]:
        if word.breaks or word.after_comma:
            return False
        if word.form in lists.REFUSED:
            return True
    return False


def _governs(words: Sequence[_Word], place: int, at: int, *, refused: bool) -> bool:
    """Whether the negation at `place` governs the word at `at`."""
    if _sets_limit(words, place):
        return False
    if words[place].form == "non":
        return place == at - 1
    if place < at:
        return _governs_forward(words, place, at, refused=refused)
    return _governs_back(words, place, at, refused=refused)


def _sets_limit(words: Sequence[_Word], place: int) -> bool:
    """Whether it negates a comparison: "shall not exceed", "not later than", "not only"."""
    for at in range(place + 1, min(len(words), place + 1 + _REACH)):
        word = words[at]
        if word.breaks or word.after_comma or word.is_negation:
            return False
        after = words[at + 1].form if at + 1 < len(words) else ""
        compared = word.form in lists.COMPARATIVES and after in lists.THAN
        if word.form in lists.EXCEEDS or compared or (at == place + 1 and word.form in lists.ONLY):
            return True
    return False


def _governs_forward(words: Sequence[_Word], place: int, at: int, *, refused: bool) -> bool:
    """As in "no exclusivity", "shall not be exclusive", "does not contain any exclusivity obligation"."""
    negation, between = words[place], words[place + 1 : at]
    inside = words[place + 1 : at + 1]
    # "sin que exista": the negation goes on.
    clause_ends = any(word.breaks and not (n == 0 and word.form == "que") for n, word in enumerate(inside))
    if clause_ends:
        return False
    unknown = [word for word in between if not word.is_transparent]
    if any(word.form in lists.PRESUPPOSING for word in unknown):
        return False
    has_verb = any(word.form in lists.MODALS for word in between)
    if negation.form in lists.STRICT and has_verb:
        return False
    commas = sum(word.after_comma for word in inside)
    emphatic = at + 1 < len(words) and words[at + 1].form in lists.POSTPOSED
    definite = not emphatic and any(word.form in lists.DEFINITE for word in between[-_DEFINITE_REACH:])
    if definite and (unknown or commas) and not refused:
        return False  # "shall not sell ... the exclusive": what is definite is there
    if len(unknown) + _COMMA_COSTS * commas > _MOST_UNKNOWN:
        return False
    begins = place == 0 or negation.breaks or negation.after_comma or negation.form in lists.COORDINATED
    is_subject = negation.form in lists.DETERMINERS and begins and not has_verb
    return not is_subject or _is_realised(words, at)


def _is_realised(words: Sequence[_Word], at: int) -> bool:
    """Whether what is said of a subject is that it exists or is granted, or nothing is said.

    "No exclusivity is granted" denies it, "neither price nor exclusivity is affected" does not.
    """
    said = False
    for word in words[at + 1 : at + 1 + _REACH]:
        if word.breaks or word.after_comma:
            return True
        said = said or word.form in _PLAIN
        if said and not word.is_plain:
            return word.form in lists.REALISED or word.form in lists.REFUSED or bool(word.asked)
    return True


def _governs_back(words: Sequence[_Word], place: int, at: int, *, refused: bool) -> bool:
    """As in "exclusivity is not granted", "shall not apply"; not in "the deposit shall not bear interest"."""
    between = words[at + 1 : place + 1]
    if len(between) > _REACH_BACK + 1 or words[place].form in lists.STRICT:
        return False
    if any(word.breaks or word.after_comma or word.form in lists.COORDINATORS for word in between):
        return False
    for n in range(place + 1, len(words)):
        word = words[n]
        if word.breaks or word.asked:
            return False  # the end of the clause, or the other direction decides
        if word.is_plain:
            continue
        if word.form in lists.REFUSED:
            return refused
        after = words[n + 1].form if n + 1 < len(words) else ""
        applies = word.form.startswith(("appl", "aplic"))
        if applies and after in lists.THAN:
            return False  # an exception proves the rule
        passive = any(w.form in lists.PASSIVE_SIGNS for w in words[max(0, place - 2) : n])
        return word.form in lists.REALISED and (applies or passive or not after)
    return False
