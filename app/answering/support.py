"""Whether a sentence that a model wrote may be shown: nothing in it may be more than its sources say. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.answering.numerals import months, number_words
from ingestion.terms import Term, base_language, terms

# Shown only when at least this share of its content words stands in the sources: a sentence without numbers and names
# would otherwise pass whatever it says.
CONTENT_SHARE = 0.6

_UNITS = {
    "$": "usd", "us$": "usd", "usd": "usd", "dollar": "usd", "dollars": "usd", "dólar": "usd", "dólares": "usd",
    "dòlar": "usd", "dòlars": "usd", "€": "eur", "eur": "eur", "euro": "eur", "euros": "eur", "£": "gbp", "gbp": "gbp",
    "pounds": "gbp", "libras": "gbp", "lliures": "gbp", "%": "percent", "percent": "percent", "per cent": "percent",
    "por ciento": "percent",
}  # fmt: skip
_UNIT = r"us\$|[$€£%]|(?:usd|eur|gbp|euros?|dollars?|d[óò]lare?s?|pounds|libras|lliures|percent|per cent|por ciento)\b"
_NUMBER = r"\d+(?:[.,'’]\d+)*"
_AMOUNT = re.compile(
    rf"(?P<before>{_UNIT})\s?(?P<a>{_NUMBER})|(?P<b>{_NUMBER})\s?(?:d['’]|de\s)?(?P<after>{_UNIT})", re.IGNORECASE
)


_NEGATIONS = {
    "en": frozenset({"not", "no", "never", "nor", "neither", "without", "cannot"}),
    "es": frozenset({"no", "nunca", "tampoco", "jamás", "sin", "ningún", "ninguna", "ninguno", "ni"}),
    "ca": frozenset({"no", "mai", "tampoc", "sense", "cap", "pas", "ni"}),
}
_ANY_NEGATION = frozenset({"not", "no", "never", "without", "nunca", "mai"})


@dataclass(frozen=True, slots=True)
class Support:
    """Whether the sentence may be shown, and what of it stands in no source."""

    ok: bool
    missing: tuple[str, ...]


def supported(sentence: str, sources: Sequence[str], language: str | None = None) -> Support:
    """Every number, amount, name, month and negation of the sentence stands in the cited sources' text.

    Numbers compare as written (`5,120` is not `5.120`), names without case. An empty sentence is not supported.
    """
    said = terms(sentence, language)
    known: list[Term] = [term for source in sources for term in terms(source, language)]
    forms, stems = {term.form for term in known}, {term.stem for term in known}
    amounts = {amount for source in sources for amount in _amounts(source)}
    code = base_language(language)
    exact_words, negations = number_words(code) | months(code), _NEGATIONS.get(code, _ANY_NEGATION)
    missing: list[str] = []
    content = held = 0
    for at, term in enumerate(said):
        exact = term.is_number or term.is_name or term.form in exact_words
        absent = (exact or term.form in negations) and term.form not in forms
        # The first word of a sentence has a capital anyway, so it may be a name that nothing shows to be one.
        if absent or (at == 0 and not term.is_stop and term.stem not in stems):
            missing.append(sentence[term.start : term.end])
        if not term.is_stop:
            content += 1
            held += term.stem in stems
    missing.extend(f"{number} {unit}" for unit, number in _amounts(sentence) if (unit, number) not in amounts)
    return Support(ok=not missing and content > 0 and held >= CONTENT_SHARE * content, missing=tuple(missing))


def _amounts(text: str) -> Iterator[tuple[str, str]]:
    """(unit, number) of each amount, so that 5 % does not support 5 euros."""
    for match in _AMOUNT.finditer(text):
        unit = match.group("before") or match.group("after")
        yield _UNITS[unit.casefold()], match.group("a") or match.group("b")
