"""What a question asks for: its language, the words that must be found, the kind of thing that answers it. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ingestion.terms import Term, base_language, fold, stop_words, terms

LANGUAGES = ("en", "es", "ca")


class Expects(StrEnum):
    """What an answer must hold."""

    COUNT = "count"  # how many X: a number of X
    MONEY = "money"  # how much does it cost: an amount or a percentage
    DURATION = "duration"  # how long: a number with a unit of time
    NUMBER = "number"  # any other figure
    TIME = "time"  # when, how often
    ANYTHING = "anything"


@dataclass(frozen=True, slots=True)
class Asked:
    """One word that the question turns on. `stems` are its stems by language of the text it is held against.

    `is_focus`: it names the very thing that is asked for ("which court", "how many members").
    """

    form: str
    stems: dict[str, str]
    is_number: bool
    is_name: bool
    is_year: bool
    is_focus: bool


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
        what which who whom whose when where why how many much long often soon far big old fast quickly high
        large wide deep late early is are was were does did do done has have had be been can could may might
        must shall should will would need needs get gets got give gives given take takes taken make makes made
        go goes happen happens happened apply applies applied say says said state states stated tell mean means
        allow allows allowed permit permitted require requires required expect expected exist exists there any
        much please there's kind kinds sort name named called according possible necessary put use used using i
        my me we our you your someone somebody one ones it each every other others still ever after before
        between more most once than amount number percentage percent proportion share maximum minimum total
        """
    ),
    "es": _listed(
        """
        qué que cuál cuáles quién quiénes cuándo dónde cómo cuánto cuánta cuántos cuántas por porqué es son fue
        fueron era eran será hay había hubo tiene tienen tenía tuvo tener puede pueden podía puedo podemos debe
        deben debo debía hace hacer hacen hizo da dan dar dio pasa pasó ocurre ocurrió dice dicen existe existen
        aplica aplican sirve sirven llama llaman se me mi nos nuestro tipo clase nombre según posible necesario
        hasta cada cabe está están estar ser usar usa usan pone poner permite permitido exige obliga toca vale
        después antes entre más importe cantidad número porcentaje tiempo máximo máxima mínimo mínima total
        """
    ),
    "ca": _listed(
        """
        què que quin quina quins quines qui quan on com quant quanta quants quantes per és són fou va van vaig
        vam era eren serà hi ha havia haver té tenen tenia tenir pot poden puc podem podia deu ha han he fa fan
        fer feia feta dona donen donar passa diu diuen existeix existeixen aplica apliquen serveix servir es em
        me mi ens nostre tipus classe nom segons possible cal fins cada està estan estar ser fem usar usa
        serveixen posa posar permet permès exigeix toca val després abans entre més import quantitat nombre
        percentatge temps màxim màxima mínim mínima total
        """
    ),
}
# Verbs and nouns that only repeat that a price or a time is asked for; the check of the kind of answer covers them.
_OF_KIND = {
    Expects.MONEY: _listed(
        """
        cost costs costed pay pays paid charge charged charges earn earns earned cuesta cuestan costó costaron
        costar paga pagan pagar pago cobra cobran gana ganan costa costen pagar guanya guanyen money diners
        dinero
        """
    ),
    Expects.DURATION: _listed("last lasts lasted duration dura duran durar duración plazo duren durada termini"),
    Expects.TIME: _listed("date day time hour fecha día hora data dia"),
}
UNITS_OF_MONEY = _listed(
    """
    eur usd gbp chf euro euros dollar dollars pound pounds pence penny cent cents dólar dólares libra libras
    céntimos dòlar dòlars lliura lliures cèntims million millions mil millón millones milió milions
    """
)
_FOLDED = {code: frozenset(fold(word) for word in words if fold(word) != word) for code, words in _GENERIC.items()}

_W = r"(?:[\w'’·]+\s){0,3}?"
_ASKS = r"(?:what|which|qu[eé]|cu[aá]l(?:es)?|quin(?:a|s|es)?)"
_TIME = re.compile(
    r"\bwhen\b|\bhow often\b|\b(?:what|which) (?:date|day|month|year|time|hour)\b|\bcu[aá]ndo\b"
    r"|\bqu[eé] (?:fecha|d[ií]a|mes|año|hora)\b|\bquan\b|\bquina? (?:data|dia|mes|any|hora)\b"
    r"|\bcada cu[aá]nto\b|\bcada quant\b",
    re.IGNORECASE,
)
_DURATION = re.compile(
    rf"\bhow (?:long|soon|quickly|fast)\b|\bhow much (?:time|notice)\b|\b{_ASKS}\s{_W}(?:period|deadline|duration|plazo"
    r"|duraci[oó]n|termini|durada|antig[uü]edad)\b|\bcu[aá]nto (?:tiempo|dura|duran|durar[aá]|tarda)\b"
    r"|\bquant (?:de )?(?:temps|dura|duren|triga)\b",
    re.IGNORECASE,
)
_MONEY = re.compile(
    rf"\bhow much\b|\bcu[aá]nto (?:\w+ ){{0,2}}(?:cuesta|costaron?|cost[oó]|vale|pag\w+|cobr\w+|gan\w+|abon\w+)\b"
    rf"|\bquant (?:\w+ ){{0,2}}(?:costa|costen|val|pag\w+|cobr\w+|guany\w+)\b|\b{_ASKS}\s{_W}(?:price|cost"
    rf"|fee|charge|salary"
    r"|wage|rent|revenue|turnover|profit|dividend|fine|discount|interest|budget|allowance|deficit|debt"
    r"|royalty|precio|coste"
    r"|costo|sueldo|salario|renta|alquiler|tasa|cuota|multa|descuento|presupuesto|cr[eé]dito|facturaci[oó]n"
    r"|recargo|fianza"
    r"|deuda|preu|cost|sou|lloguer|taxa|quota|descompte|pressupost|ingressos|despeses|rec[aà]rrec|deute)\b",
    re.IGNORECASE,
)
_COUNT = re.compile(
    r"\bhow many\s+(?P<en>[\w'’·-]+)|\bcu[aá]nt[oa]s\s+(?P<es>[\w'’·-]+)|\bquant(?:s|es)\s+(?P<ca>[\w'’·-]+)",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    rf"\bhow (?:old|far|big|large|high|wide|deep|late|early)\b|\bcu[aá]nt[oa]\b|\bquanta?\b"
    rf"|\b{_ASKS}\s{_W}(?:amount|number"
    r"|percentage|percent|share|proportion|rate|cap|limit|minimum|maximum|sum|size|length|width|height|weight"
    r"|area|surface"
    r"|distance|age|importe|cantidad|superficie|porcentaje|n[uú]mero|m[aá]ximo|m[ií]nimo|cifra|potencia|edad"
    r"|peso|l[ií]mite"
    r"|import|quantitat|superf[ií]cie|percentatge|nombre|m[aà]xim|m[ií]nim|xifra|edat|pes|l[ií]mit|disponibilitat)\b",
    re.IGNORECASE,
)
_FOCUS = re.compile(
    r"\b(?:what|which|qu[eé]|quin(?:a|s|es)?)\s+(?P<noun>[\w'’·-]+)(?:\s+(?:of|de|d['’])?\s*(?P<next>[\w'’·-]+))?",
    re.IGNORECASE,
)
_ASKING = re.compile(
    r"\b(?:what|which|who|whom|whose|where|why|how|qu[eé]|qui[eé]n(?:es)?|cu[aá]l(?:es)?|d[oó]nde|c[oó]mo|què|qui"
    r"|quin(?:a|s|es)?)\b",
    re.IGNORECASE,
)
# In the order of what wins when two begin at the same word.
_EXPECTATIONS = (
    (Expects.TIME, _TIME),
    (Expects.DURATION, _DURATION),
    (Expects.COUNT, _COUNT),
    (Expects.MONEY, _MONEY),
    (Expects.NUMBER, _NUMBER),
    (Expects.ANYTHING, _ASKING),
)
_YEAR = re.compile(r"(?:19|20)\d\d\Z")


def read(question: str, languages: Sequence[str] = LANGUAGES) -> Question:
    """Read a question. `languages` are those of the texts it will be held against."""
    spoken = spoken_languages(question)
    codes = tuple(dict.fromkeys(base_language(code) for code in (*languages, *spoken)))
    per_code = {code: {(t.start, t.end): t for t in terms(question, code)} for code in codes}
    generic = {span for code in spoken for span, term in per_code[code].items() if _is_generic(term, code)}
    expects = _expects(question)
    focus = frozenset() if expects is Expects.TIME else _focus(question)
    kind = _OF_KIND.get(expects, frozenset())
    asked = tuple(
        Asked(
            form=term.form,
            stems={code: found[span].stem for code, found in per_code.items() if span in found},
            is_number=term.is_number,
            is_name=term.is_name,
            is_year=term.is_number and _YEAR.match(term.form) is not None,
            is_focus=span[0] in focus,
        )
        for span, term in per_code[spoken[0]].items()
        if span not in generic and (span[0] in focus or term.form not in kind)
    )
    return Question(question, spoken, asked, expects)


def spoken_languages(question: str) -> tuple[str, ...]:
    """The languages whose function words the question holds most; all of ours when it holds none."""
    counts = {
        code: sum(t.form in stop_words(code) or t.form in _GENERIC[code] for t in terms(question, code))
        for code in LANGUAGES
    }
    most = max(counts.values())
    return tuple(code for code in LANGUAGES if counts[code] == most)


def without_names(question: str) -> str:
    """The question without the names in it, for dense scores of sentences: a name draws every sentence that holds it,
    whatever the sentence says. The question itself when little else is in it.
    """
    names = [term for term in terms(question, spoken_languages(question)[0]) if term.is_name]
    kept = question
    for term in reversed(names):
        kept = kept[: term.start] + kept[term.end :]
    kept = re.sub(r"\s+([?!.,])", r"\1", " ".join(kept.split()))
    return kept if len(read(kept).asked) >= 1 else question


def _is_generic(term: Term, code: str) -> bool:
    generic = term.form in _GENERIC.get(code, frozenset()) or fold(term.form) in _FOLDED.get(code, frozenset())
    return not term.is_number and (term.is_stop or generic or term.form in UNITS_OF_MONEY)


def _focus(question: str) -> frozenset[int]:
    """Where the nouns begin that name what is asked for."""
    if counted := _COUNT.search(question):
        return frozenset({counted.start(counted.lastgroup or 0)})
    if asked := _FOCUS.search(question):
        return frozenset({asked.start("noun")})
    return frozenset()


def _expects(question: str) -> Expects:
    """By the first asking word: in "what happens when" the second one asks nothing."""
    first = [
        (found.start(), at) for at, (_, pattern) in enumerate(_EXPECTATIONS) if (found := pattern.search(question))
    ]
    return _EXPECTATIONS[min(first)[1]][0] if first else Expects.ANYTHING
