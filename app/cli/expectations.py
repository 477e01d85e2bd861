"""What the demo asks about the sample files and what must come of it: quotes, coverage, verdicts; never wording. Pure.

Why these are the right answers stands in docs/demo.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

Json = dict[str, Any]

_SIBANNAC: Final = "contracts/strategic-alliance-bravatek-sibannac.pdf"
_EZJR: Final = "contracts/software-maintenance-leader-ezjr.pdf"
_SABCO: Final = "contracts/sponsorship-sabco-prolong.pdf"
_DRAFT: Final = "contracts/map-licence-draft.docx"
_INTENT: Final = "contracts/letter-of-intent.md"
_CONSTITUTION: Final = "laws/constitucion-espanola-titulo-preliminar.md"
_LEASES: Final = "laws/llei-arrendaments-finques-urbanes.md"

#: Pages of every sample file.
PAGES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "contracts/confidentiality-squaretwo-whitworth.pdf": 2,
        "contracts/distribution-amendment-ingram-netgear.pdf": 1,
        _INTENT: 1,
        "contracts/manufacturing-amendment-heritage-premier.pdf": 1,
        _DRAFT: 1,
        _EZJR: 6,
        _SABCO: 4,
        _SIBANNAC: 5,
        "delivery-notice.eml": 1,
        _CONSTITUTION: 1,
        _LEASES: 1,
        "price-list.xlsx": 2,
        "signed-addendum.pdf": 1,
    }
)
#: The scanned page: nothing reads it yet, and every answer must say so.
SCAN: Final = "signed-addendum.pdf"
SCAN_REASON: Final = "needs_ocr"
#: Of the prompt tokens of a repeated full pass, the share that the engine must have had in its cache.
CACHED_SHARE: Final = 0.75


@dataclass(frozen=True, slots=True)
class Quote:
    """Words that a verified quote must hold, and where it must stand."""

    document: str
    page: int
    words: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its ground truth. `found` False: no page that can be read answers it.

    `yes` and `no` are the documents that must say so when documents are counted; all others must be silent.
    """

    kind: str
    language: str
    text: str
    route: str
    expected_route: str
    quotes: tuple[Quote, ...] = ()
    found: bool = True
    yes: tuple[str, ...] = ()
    no: tuple[str, ...] = ()


QUESTIONS: Final = (
    Question(
        kind="local fact",
        language="Spanish",
        text="¿Cuál es la capital del Estado?",
        route="auto",
        expected_route="retrieval",
        quotes=(Quote(_CONSTITUTION, 1, "la villa de Madrid"),),
    ),
    Question(
        kind="comparison",
        language="English",
        text="Compare the contracts: may a party assign the agreement without the consent of the other party?",
        route="full",
        expected_route="full",
        quotes=(
            Quote(_SIBANNAC, 4, "shall not be assignable by either party without the prior written consent"),
            Quote(_SABCO, 3, "may not be assigned by either party"),
            Quote(_DRAFT, 1, "Neither party may assign this Agreement"),
        ),
    ),
    Question(
        kind="count",
        language="English",
        text="How many contracts are governed by the laws of a state?",
        route="auto",
        expected_route="full",
        quotes=(Quote(_EZJR, 3, "Nevada"), Quote(_DRAFT, 1, "State of Oregon"), Quote(_INTENT, 1, "not governed")),
        yes=(_DRAFT, _EZJR, _SABCO, _SIBANNAC),
        no=(_INTENT,),
    ),
    Question(
        kind="not there",
        language="English",
        text="How many copies of the tidal atlas may the Licensee print?",
        route="full",
        expected_route="full",
        found=False,
    ),
    Question(
        kind="local fact",
        language="Catalan",
        text="Quantes mensualitats de renda pot tenir la fiança?",
        route="auto",
        expected_route="retrieval",
        quotes=(Quote(_LEASES, 1, "tres mensualitats de renda"),),
    ),
)
#: Asked once more at the end, to show what the engine's prompt cache is worth.
REPEATED: Final = next(question for question in QUESTIONS if question.kind == "comparison")


def shortfalls(question: Question, answer: Json) -> list[str]:
    """What is not as expected, as a person reads it; empty when the expectation is met."""
    return [
        *_outcome(question, answer),
        *(_missing(quote) for quote in question.quotes if not _is_there(quote, answer)),
        *_of_coverage(question, answer.get("coverage") or {}),
        *(_of_verdicts(question, answer) if question.yes else ()),
    ]


def repeat_shortfalls(again: Json) -> list[str]:
    """What is not as expected of a full pass that was asked a second time, beside its `shortfalls`."""
    found = []
    share = cached_share(again)
    if share is None:
        found.append("the engine does not say what it had in its cache")
    elif share < CACHED_SHARE:
        found.append(f"{share:.1%} of the prompt came from the engine's cache, expected {CACHED_SHARE:.0%}")
    if again.get("changes"):
        found.append(f"its run differs from the first: {', '.join(str(c['what']) for c in again['changes'])}")
    return found


def cached_share(answer: Json) -> float | None:
    """Share of the prompt tokens that came from the engine's cache; None when the engine does not say."""
    tokens = answer.get("tokens") or {}
    sent, cached = tokens.get("engine"), tokens.get("cached")
    return None if not sent or cached is None else cached / sent


def verified(answer: Json) -> int:
    """Quotes that were found where they are said to stand."""
    return sum(bool(citation["verified"]) for citation in answer.get("citations") or ())


def coverage_line(answer: Json) -> str:
    """The coverage in a few words, for a table."""
    coverage = answer.get("coverage") or {}
    if not coverage:
        return "-"
    searched = coverage["pages_searched_only"]
    parts = [f"{coverage['pages_read']} of {coverage['pages_total']} pages read"]
    if searched:
        parts.append(f"{searched} searched")
    if coverage.get("sections"):
        parts[0] += f" in {coverage['sections']} sections"
    parts.extend(f"{entry['document']} not ({entry['reason']})" for entry in coverage["skipped"])
    return ", ".join(parts)


def _outcome(question: Question, answer: Json) -> Iterable[str]:
    state = "succeeded" if question.found else "not_found"
    if answer["state"] != state:
        yield f"state {answer['state']}, expected {state}"
    if answer["route"] != question.expected_route:
        yield f"route {answer['route']}, expected {question.expected_route}"
    if not question.found and answer["citations"]:
        yield f"{len(answer['citations'])} quotes, expected none"


def _is_there(quote: Quote, answer: Json) -> bool:
    return any(
        citation["verified"]
        and citation["document"] == quote.document
        and citation["page"] == quote.page
        and quote.words in " ".join(citation["quote"].split())
        for citation in answer["citations"]
    )


def _missing(quote: Quote) -> str:
    return f'no verified quote with "{quote.words}" on page {quote.page} of {quote.document}'


def _of_coverage(question: Question, coverage: Json) -> Iterable[str]:
    if not coverage:
        yield "no coverage"
        return
    held = (coverage["documents_total"], coverage["pages_total"])
    samples = (len(PAGES), sum(PAGES.values()))
    if held != samples:
        yield f"documents and pages in the coverage: {held[0]}, {held[1]}; of the samples: {samples[0]}, {samples[1]}"
    skipped = [(entry["document"], entry["pages"], entry["reason"]) for entry in coverage["skipped"]]
    if skipped != [(SCAN, PAGES[SCAN], SCAN_REASON)]:
        named = ", ".join(f"{document} ({reason})" for document, _, reason in skipped) or "nothing"
        yield f"named as not read: {named}; expected {SCAN} ({SCAN_REASON})"
    unread = sum(entry["pages"] or 0 for entry in coverage["skipped"])
    if coverage["pages_read"] + coverage["pages_searched_only"] + unread != coverage["pages_total"]:
        yield "the pages of the coverage do not add up"
    readable = sum(PAGES.values()) - PAGES[SCAN]
    if question.expected_route == "full" and (coverage["pages_read"] != readable or not coverage["sections"]):
        yield f"{coverage['pages_read']} pages read in a full pass, expected {readable}"


def _of_verdicts(question: Question, answer: Json) -> Iterable[str]:
    verdicts = answer.get("verdicts") or []
    expected = {name: "silent" for name in PAGES if name != SCAN}
    expected |= dict.fromkeys(question.yes, "yes") | dict.fromkeys(question.no, "no")
    said = {verdict["document"]: str(verdict["verdict"]) for verdict in verdicts}
    for name in sorted(expected.keys() | said.keys()):
        if said.get(name) != expected.get(name):
            yield f"{name}: {said.get(name, 'no verdict')}, expected {expected.get(name, 'none')}"
    proofs = {c["ordinal"] for c in answer["citations"] if c["verified"]}
    for verdict in verdicts:
        proved = verdict["proved"] and any(ordinal in proofs for ordinal in verdict["ordinals"])
        if verdict["verdict"] != "silent" and not proved:
            yield f"{verdict['document']}: no verified quote proves its {verdict['verdict']}"
    tally = answer.get("tally") or {}
    counted = (tally.get("yes"), tally.get("no"), tally.get("silent"), tally.get("unproved"))
    words = list(expected.values())
    if counted != (words.count("yes"), words.count("no"), words.count("silent"), 0):
        yield f"counted {tally.get('yes')} yes, {tally.get('no')} no, {tally.get('silent')} silent"
