"""What a question asks for: its language, the words that must be found, the kind of thing that answers it. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ingestion.terms import base_language, fold, stop_words, terms

LANGUAGES = ("en", "es", "ca")


class Expects(StrEnum):
    """What kind of words an answer must hold."""

    NUMBER = "number"  # how many, how much, how long, what percentage
    TIME = "time"  # when, how often, at what time
    ANYTHING = "anything"


@dataclass(frozen=True, slots=True)
class Asked:
    """One word that the question turns on. `stems` are its stems in each language that was asked for."""

    form: str
    stems: dict[str, str]
    is_number: bool
    is_name: bool
    is_year: bool


@dataclass(frozen=True, slots=True)
class Question:
    """A question read once; `languages` are those that it may be written in (several when nothing tells)."""

    text: str
    languages: tuple[str, ...]
    asked: tuple[Asked, ...]
    expects: Expects


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Words that say how a question is put, not what it is about: they must never count as evidence.
_GENERIC = {
    "en": _listed(
        """
        what which who whom whose when where why how many much long often soon far big old fast quickly high large wide
        deep late early is are was were does did do done has have had be been can could may might must shall should will
        would need needs get gets got give gives given take takes taken make makes made go goes happen happens happened
        apply applies applied say says said state states stated tell mean means allow allows allowed permit permitted
        require requires required expect expected exist exists there any much please there's kind kinds sort name named
        called according possible necessary put use used using i my me we our you your someone somebody one ones it
        each every other others still ever
        """
    ),
    "es": _listed(
        """
        qué que cuál cuáles quién quiénes cuándo dónde cómo cuánto cuánta cuántos cuántas por porqué es son fue fueron era
        eran será hay había hubo tiene tienen tenía tuvo puede pueden podía puedo podemos debe deben debo debía hace hacer
        hacen hizo da dan dar dio pasa pasó ocurre ocurrió dice dicen existe existen aplica aplican sirve sirven llama
        llaman se me mi nos nuestro tipo clase nombre según posible necesario hasta cada cabe está están estar ser usar
        usa usan pone poner permite permitido exige obliga toca vale cuesta costó
        """
    ),
    "ca": _listed(
        """
        què que quin quina quins quines qui quan on com quant quanta quants quantes per és són fou va van vaig vam era
        eren serà hi ha havia haver té tenen tenia pot poden puc podem podia deu ha han he d'haver fa fan fer feia feta
        dona donen donar passa diu diuen existeix existeixen aplica apliquen serveix es em me mi ens nostre tipus classe
        nom segons possible cal fins cada està estan estar ser fa fem usar usa serveixen posa posar permet permès exigeix
        toca val costa deixar
        """
    ),
}
# Nouns that a figure answers: "what is the rent", "quin és el preu".
_QUANTITY = (
    r"amount|number|percentage|percent|share|proportion|rate|price|cost|fee|charge|salary|wage|rent|revenue|turnover|profit"
    r"|dividend|fine|discount|interest|budget|cap|limit|minimum|maximum|sum|size|length|width|height|weight|area|surface"
    r"|distance|age|allowance|deadline|period|duration|deficit|debt|leakage"
    r"|importe|cantidad|precio|coste|costo|sueldo|salario|renta|alquiler|tasa|cuota|multa|descuento|superficie|plazo"
    r"|porcentaje|n[uú]mero|m[aá]ximo|m[ií]nimo|presupuesto|cr[eé]dito|cifra|facturaci[oó]n|duraci[oó]n|potencia|edad"
    r"|recargo|fianza|deuda|peso|l[ií]mite"
    r"|import|quantitat|preu|cost|sou|lloguer|taxa|quota|descompte|superf[ií]cie|termini|percentatge|nombre|m[aà]xim"
    r"|m[ií]nim|pressupost|xifra|ingressos|despeses|durada|edat|rec[aà]rrec|garantia|deute|pes|l[ií]mit|disponibilitat"
)
_NUMBER_ASKED = re.compile(
    r"\bhow (?:many|much|long|old|far|big|large|high|wide|deep|fast|quickly|soon|late|early)\b|\bcu[aá]nt[oa]s?\b"
    rf"|\bquant(?:s|a|es)?\b|\b(?:what|which|qu[eé]|cu[aá]l(?:es)?|quin(?:a|s|es)?)\s(?:[\w'’]+\s){{0,4}}?(?:{_QUANTITY})\b",
    re.IGNORECASE,
)
_TIME_ASKED = re.compile(
    r"\bwhen\b|\bhow often\b|\b(?:what|which) (?:date|day|month|year|time|hour)\b|\bcu[aá]ndo\b"
    r"|\bqu[eé] (?:fecha|d[ií]a|mes|año|hora)\b|\bquan\b|\bquina? (?:data|dia|mes|any|hora)\b",
    re.IGNORECASE,
)
_ASKING = re.compile(
    r"\b(?:what|which|who|whom|whose|where|why|how|qu[eé]|qui[eé]n(?:es)?|cu[aá]l(?:es)?|d[oó]nde|c[oó]mo|què|qui"
    r"|quin(?:a|s|es)?)\b",
    re.IGNORECASE,
)
_YEAR = re.compile(r"(?:19|20)\d\d\Z")


def read(question: str, languages: Sequence[str] = LANGUAGES) -> Question:
    """Read a question. `languages` are those of the texts it will be held against."""
    spoken = spoken_languages(question)
    codes = tuple(dict.fromkeys(base_language(code) for code in (*languages, *spoken)))
    ignored = {(term.start, term.end) for code in spoken for term in terms(question, code) if _is_generic(term, code)}
    asked: dict[tuple[int, int], Asked] = {}
    per_code = {code: {(t.start, t.end): t for t in terms(question, code)} for code in codes}
    main = per_code[spoken[0]]
    for span, term in main.items():
        if span in ignored:
            continue
        stems = {code: found[span].stem for code, found in per_code.items() if span in found}
        year = term.is_number and _YEAR.match(term.form) is not None
        asked[span] = Asked(term.form, stems, term.is_number, term.is_name, year)
    # A question of nothing but generic words asks for them all: better a poor measure than none.
    return Question(question, spoken, tuple(asked.values()), _expects(question))


def spoken_languages(question: str) -> tuple[str, ...]:
    """The languages whose function words the question holds most; all of ours when it holds none."""
    counts = {
        code: sum(t.form in stop_words(code) or t.form in _GENERIC[code] for t in terms(question, code))
        for code in LANGUAGES
    }
    most = max(counts.values())
    return tuple(code for code in LANGUAGES if counts[code] == most)


def _is_generic(term: object, code: str) -> bool:
    form, stop, number = term.form, term.is_stop, term.is_number  # type: ignore[attr-defined]
    return not number and (stop or form in _GENERIC.get(code, frozenset()) or fold(form) in _FOLDED[code])


_FOLDED = {code: frozenset(fold(word) for word in words if fold(word) != word) for code, words in _GENERIC.items()}


def _expects(question: str) -> Expects:
    """By the first asking word: in "what happens when" the second one asks nothing."""
    first = {
        expected: found.start()
        for expected, pattern in (
            (Expects.TIME, _TIME_ASKED),
            (Expects.NUMBER, _NUMBER_ASKED),
            (Expects.ANYTHING, _ASKING),
        )
        if (found := pattern.search(question))
    }
    return min(first, key=lambda expected: first[expected], default=Expects.ANYTHING)
