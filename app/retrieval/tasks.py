"""What a question asks to be done: find a fact, count or list documents, compare, summarise, go through all. Pure.

Rules over the cue words of `app.retrieval.cues`; a question without a cue asks for a local fact. Doubtful cases are
local, too: "who owns all rights?" asks about rights, not about all documents.
"""

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from app.retrieval.cues import LANGUAGES, Cues
from ingestion.terms import fold


class Task(StrEnum):
    """What has to be done to answer."""

    LOCAL = "local"
    COUNT = "count"  # how many documents have a property
    LIST = "list"  # which documents have it
    COMPARE = "compare"
    SUMMARISE = "summarise"
    ALL = "all"  # every document, or every place in them


@dataclass(frozen=True, slots=True)
class AskedTask:
    """The task of a question; `cue` is the words that decided, "" for a local one.

    Of a count or a list: `counted` is the noun ("supply agreements") and `about` the question about one document,
    the wording without counting words and generic verbs ("exclusivity clause"); "" when only documents are asked for.
    `negated`: asked for are the documents where `about` does not stand ("have no exclusivity clause").
    """

    task: Task
    about: str = ""
    counted: str = ""
    cue: str = ""
    negated: bool = False


@dataclass(frozen=True, slots=True)
class _Words:
    """A question as its words one space apart, with the place of each in the wording."""

    shown: str
    text: str
    places: tuple[tuple[int, int, int], ...]  # start in `text`, start and end in `shown`

    def wording(self, start: int, end: int) -> str:
        """The wording of `text[start:end]`."""
        spans = [(a, b) for at, a, b in self.places if start <= at < end]
        return self.shown[spans[0][0] : spans[-1][1]].strip(" ,") if spans else ""

    def sentence(self, at: int) -> tuple[int, int]:
        """Where the sentence around `text[at]` begins and ends in `text`."""
        here = next((start for place, start, _ in self.places if place >= at), len(self.shown))
        opened = max(self.shown.rfind(mark, 0, here) for mark in ("? ", "! ", ". "))
        closed = self.shown.find("?", here)
        inside = [place for place, start, _ in self.places if opened < start and (closed < 0 or start < closed)]
        after = [place for place, start, _ in self.places if 0 <= closed < start]
        return (inside[0] if inside else at), (after[0] - 1 if after else len(self.text))


# English n't belongs to its verb, a Catalan clitic does not; "all-inclusive" is one word.
_WORD = re.compile(r"\w+n't\b|[a-z]{1,2}'(?=\w)|\d[\d.,]*\d|\w+(?:[-·](?!(?:me|nos|ne|ns|ho)\b)\w+)*|,", re.IGNORECASE)
# Their accents tell them from `es` (itself), `mes` (month), `que` (that) and `son` (his).
_KEEPS_ACCENT = frozenset({"és", "més", "qué", "són"})
_FOR = frozenset({"for", "under", "with", "por", "para", "con", "per", "amb"})


@dataclass(frozen=True, slots=True)
class _Rules:
    cues: Cues
    counts: tuple[re.Pattern[str], ...]
    lists: tuple[re.Pattern[str], ...]
    every: re.Pattern[str]
    alone: tuple[tuple[Task, re.Pattern[str]], ...]
    leads: re.Pattern[str]
    absent: re.Pattern[str]
    trailing: re.Pattern[str]


def read(question: str) -> AskedTask:
    """The task of a question, by the first language whose rules find one."""
    words = _words(question)
    for rules in _all_rules():
        if (found := _of_documents(words, rules)) is not None:
            return found
    for task in (Task.COMPARE, Task.SUMMARISE, Task.ALL):
        for rules in _all_rules():
            if (cue := _cue(words, rules, task)) is not None:
                return AskedTask(task, cue=cue)
    return AskedTask(Task.LOCAL)


def _words(question: str) -> _Words:
    shown = unicodedata.normalize("NFC", " ".join(question.split())).replace("’", "'")
    parts: list[str] = []
    places: list[tuple[int, int, int]] = []
    length = 0
    for found in _WORD.finditer(shown):
        lower = found.group().lower()
        part = lower if lower in _KEEPS_ACCENT else fold(lower)
        places.append((length, found.start(), found.end()))
        parts.append(part)
        length += len(part) + 1
    return _Words(shown, " ".join(parts), tuple(places))


def _of_documents(words: _Words, rules: _Rules) -> AskedTask | None:
    """A count or a list of documents, or a comparison of all of them for the one that has the most of something."""
    for task, patterns in ((Task.COUNT, rules.counts), (Task.LIST, rules.lists)):
        for found in (match for pattern in patterns for match in pattern.finditer(words.text)):
            if _is_relative(found, words.text, rules.cues) or _is_local(found, words.text, rules.cues):
                continue
            cue = words.wording(*found.span())
            most = re.search(rf"\b(?:{rules.cues.superlative})", words.text[found.end() :])
            if task is Task.LIST and most is not None:
                start = found.end() + most.start()
                return AskedTask(Task.COMPARE, cue=f"{cue} … {words.wording(start, found.end() + most.end())}")
            return _asked(task, cue, found, words, rules)
    return None


def _is_relative(found: re.Match[str], text: str, cues: Cues) -> bool:
    """Whether it asks nothing: "the segments in which Acme reports" goes on about the word before."""
    before = text[: found.start()].strip()
    relative = re.match(rf"{cues.prepositions} {cues.which}\b", found.group())
    return relative is not None and re.search(rf"(?:\A|,|\b{cues.polite})\Z", before) is None


def _is_local(found: re.Match[str], text: str, cues: Cues) -> bool:
    """Whether the documents are only what a text speaks of: the law that governs, the papers that must be handed in."""
    noun, rest = found["noun"], text[found.end() :].strip()
    if re.search(rf"\b(?:{cues.laws.one}|{cues.laws.many})$", noun):
        return re.match(rf"(?:\S+ )?{cues.governs}", rest) is not None
    return _is_paper(noun, cues) and re.search(rf"\b(?:{cues.handed_over})", rest) is not None


def _is_paper(noun: str, cues: Cues) -> bool:
    papers = (cues.papers.one, cues.papers.many, cues.documents.one, cues.documents.many)
    return re.search(rf"\b(?:{'|'.join(papers)})\Z", noun) is not None


def _asked(task: Task, cue: str, found: re.Match[str], words: _Words, rules: _Rules) -> AskedTask:
    text, cues = words.text, rules.cues
    at = found.end()
    begin, end = words.sentence(found.start("noun"))
    counted_end = found.end("noun")
    # "contratos mercantiles tienen ...": what stands between the noun and a generic verb belongs to the noun.
    if between := re.match(
        rf"(?: (?!(?:{cues.lead}|{cues.prepositions}|no|not)\b)\w+){{1,2}}(?= (?:no )?{cues.holds}\b)", text[at:]
    ):
        at = counted_end = at + between.end()
    negated = False
    while True:
        rest = text[at:end]
        if absent := rules.absent.match(rest):
            negated, at = not negated, at + absent.end()
        elif lead := rules.leads.match(rest):
            at += lead.end()
        else:
            break
    while trailing := rules.trailing.search(text, at, end):
        end = trailing.start()
    about = words.wording(at, end)
    counted = words.wording(found.start("noun"), counted_end)
    scope = found.groupdict().get("scope") or ""
    before = words.wording(begin, found.start())
    polite = re.fullmatch(rf"(?:{cues.polite}|,| )*", text[begin : found.start()])
    around = [words.wording(*found.span("scope")) if scope else "", "" if polite else before]
    about = ", ".join(part for part in (about, *around) if part)
    if not about and not re.fullmatch(rf"{cues.documents.one}|{cues.documents.many}", fold(counted.lower())):
        about = counted
    return AskedTask(task, about, counted, cue, negated)


def _cue(words: _Words, rules: _Rules, task: Task) -> str | None:
    for kind, pattern in rules.alone:
        if kind is task and (found := pattern.search(words.text)):
            return _short(words.wording(*found.span()))
    if task is Task.ALL and (found := rules.every.search(words.text)) and _all_documents(found, words.text, rules.cues):
        return words.wording(*found.span())
    return None


def _short(cue: str) -> str:
    """Without what stands between "how do" and "differ"."""
    parts = cue.split()
    return cue if len(parts) <= 6 else f"{' '.join(parts[:2])} … {parts[-1]}"


def _all_documents(found: re.Match[str], text: str, cues: Cues) -> bool:
    """Whether all documents of the collection are meant, not all that somebody will ever write or hand over.

    They are after a preposition ("in each contract"), when they are definite and somebody asks about them ("who signed
    each of the agreements"), and as subject of a yes-no question ("do all contracts have").
    """
    before = text[: found.start()].strip()
    if re.search(rf"\b(?:{cues.handed_over})", text):
        return False
    if not before or found["definite"]:
        return True
    # A fee "for each document" is for each that will ever be written; the notice "for each contract" is not.
    if found["preposition"] and not (found["preposition"] in _FOR and _is_paper(found["noun"], cues)):
        return True
    return re.search(rf"\b{cues.asking}\b", before) is None


def _compile(cues: Cues) -> _Rules:
    one = "|".join((cues.documents.one, cues.papers.one, cues.records.one, cues.laws.one))
    many = "|".join((cues.documents.many, cues.papers.many, cues.records.many, cues.laws.many))
    plural = rf"(?:{cues.determiners} ){{0,3}}(?P<noun>{cues.modifiers}(?:{many}))\b"
    single = rf"(?:{cues.determiners} ){{0,3}}(?P<noun>{cues.modifiers}(?:{one}))\b{cues.after_single}"
    preposition = rf"(?:{cues.prepositions} )?"
    parted = rf"(?<![^,] )(?:{cues.prepositions}|{cues.determiners}) {plural}(?P<scope>(?: [^ ,]+){{0,8}}?) , "
    every = (
        rf"(?:(?P<preposition>{cues.before_all}) )?{cues.every} (?:(?P<definite>{cues.definite}) )?"
        rf"(?P<noun>{cues.modifiers}(?:{one}|{many}))\b"
    )
    about_what = cues.about_what.format(noun=rf"(?:{cues.determiners} ){{0,3}}{cues.modifiers}(?:{one}|{many})")

    def patterns(*texts: str) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(rf"\b{text}") for text in texts)

    return _Rules(
        cues=cues,
        counts=patterns(
            rf"{parted}{cues.how_many}\b", rf"{preposition}{cues.how_many} {plural}", rf"{cues.number_of} {plural}"
        ),
        lists=patterns(
            rf"{parted}{cues.which}\b",
            rf"{preposition}{cues.which} {plural}",
            rf"{preposition}{cues.which} {single}",
            rf"{cues.list_verbs} {plural}",
            rf"{cues.list_verbs} {cues.every} {single}",
        ),
        every=re.compile(rf"\b{every}"),
        alone=tuple(
            (task, re.compile(pattern))
            for task, pattern in (
                (Task.COMPARE, cues.compare),
                (Task.SUMMARISE, cues.summarise),
                (Task.SUMMARISE, rf"\b{about_what}\b"),
                (Task.ALL, rf"\b{cues.list_all}"),
                (Task.ALL, rf"\b{cues.whole}"),
            )
        ),
        leads=re.compile(rf" ?(?:{cues.holds}|{cues.lead}|{cues.trailing})(?= |$)"),
        absent=re.compile(rf" ?(?:{cues.absent})(?= |$)"),
        trailing=re.compile(rf" (?:{cues.trailing})$"),
    )


@lru_cache(maxsize=1)
def _all_rules() -> tuple[_Rules, ...]:
    """Compiled with the first question: 60 ms that no process needs at its start."""
    return tuple(_compile(cues) for cues in LANGUAGES)
