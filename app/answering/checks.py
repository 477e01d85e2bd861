"""The exact checks of evidence: the names, numbers and years asked for, and the kind of thing that answers. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.answering.numerals import TIME_UNITS, number_words, times
from app.answering.questions import UNITS_OF_MONEY, Expects, Question
from ingestion.terms import Term, fold, terms

_MONEY_SIGN = re.compile(r"[€$£%]|\bper ?cent\b|\bpor ciento\b", re.IGNORECASE)
_YEAR = re.compile(r"(?:19|20)\d\d\Z")
_TIME_UNITS = frozenset(fold(unit) for unit in TIME_UNITS)
_AND = frozenset({"and", "y", "i", "e"})


@dataclass(frozen=True, slots=True)
class SentenceTerms:
    """The terms of a piece of text, with its stems and its forms without accents for looking up."""

    terms: tuple[Term, ...]
    stems: frozenset[str]
    folded: frozenset[str]
    numbers: frozenset[str]


@dataclass(frozen=True, slots=True)
class Context:
    """What stands around a sentence: its heading, title and document name, its neighbours, the numbers of its passage,
    and the names of the question that its document is known to hold.
    """

    heading: SentenceTerms
    title: SentenceTerms
    beside: tuple[SentenceTerms, ...]
    passage_numbers: frozenset[str]
    names: frozenset[str]


def sentence_terms(text: str, language: str) -> SentenceTerms:
    """Read a piece of text once."""
    found = tuple(terms(text, language))
    return SentenceTerms(
        terms=found,
        stems=frozenset(term.stem for term in found),
        folded=frozenset(fold(term.form) for term in found),
        numbers=frozenset(term.form for term in found if term.is_number),
    )


def failed_check(asked: Question, text: str, held: SentenceTerms, context: Context, language: str) -> str | None:
    """The code of the first check that the sentence fails (`name_absent`, `year_absent`, `number_absent`,
    `wrong_kind`), None when it passes all.
    """
    for word in asked.asked:
        if word.is_name and word.form not in context.names:
            return "name_absent"
        if word.is_year and not _right_year(word.form, held, context):
            return "year_absent"
        if word.is_number and not word.is_year:
            near = (held, context.heading, *context.beside)
            if not any(word.form in piece.numbers for piece in near):
                return "number_absent"
    return None if _right_kind(asked, text, held, language) else "wrong_kind"


def _right_year(year: str, held: SentenceTerms, context: Context) -> bool:
    """The year of the sentence; where it names none, of its heading or document; where they name none, of the passage.

    A report of 2023 says "in 2022" when it means 2022 and nothing when it means 2023.
    """
    own = _years(held)
    around = _years(context.heading) | _years(context.title)
    if year in own or (year in around and not own):
        return True
    if own or around:
        return year in around
    return year in context.passage_numbers


def _years(held: SentenceTerms) -> frozenset[str]:
    return frozenset(form for form in held.numbers if _YEAR.match(form))


def _right_kind(asked: Question, text: str, held: SentenceTerms, language: str) -> bool:
    expects = asked.expects
    if expects is Expects.ANYTHING:
        return True
    given = {word.form for word in asked.asked if word.is_number}
    words = number_words(language)
    figures = [at for at, t in enumerate(held.terms) if (t.is_number and t.form not in given) or t.form in words]
    if expects is Expects.TIME:
        return bool(figures) or any(term.form in times(language) for term in held.terms)
    if not figures:
        return False
    if expects is Expects.MONEY:
        return _MONEY_SIGN.search(text) is not None or any(term.form in UNITS_OF_MONEY for term in held.terms)
    if expects is Expects.DURATION:
        return any(fold(term.form) in _TIME_UNITS for term in held.terms)
    if expects is Expects.COUNT:
        counted = next((word for word in asked.asked if word.is_focus), None)
        return counted is None or _counts(held.terms, figures, counted.stems.get(language, ""), fold(counted.form))
    return True


def _counts(found: Sequence[Term], figures: Sequence[int], counted: str, form: str) -> bool:
    """Whether a number of the sentence can be a number of what is counted.

    In "books published in the last five years" five belongs to the years. Where the counted word itself is missing (its
    synonym may stand there), any number will do that is no amount and no time.
    """
    places = [at for at, term in enumerate(found) if term.stem == counted]
    for at in figures:
        after = at + 1
        while after < len(found) and (after in figures or (found[after].form in _AND and after + 1 in figures)):
            after += 1
        bare = after >= len(found) or found[after].is_stop
        if not places:
            unit = not bare and (fold(found[after].form) in _TIME_UNITS or found[after].form in UNITS_OF_MONEY)
            if not unit or form in _TIME_UNITS:
                return True
        elif bare or any(after <= place < after + 3 for place in places):
            return True
    return False
