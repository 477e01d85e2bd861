"""The labelled set of answerability: documents cut into passages, questions, and the stored scores of both legs."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from app.answering import evidence
from app.answering.citations import find_quote
from app.answering.evidence import Passage, Statistics, Thresholds
from ingestion.terms import terms

ROOT = Path(__file__).parents[1] / "data" / "answerability"
SCORES = ROOT / "scores.json"
SHORTEST_CHARS = 20
TARGET_CHARS = 1000
LONGEST_CHARS = 1400


@dataclass(frozen=True, slots=True)
class TestPassage:
    """A passage of a document: `text` is the document's text at `start:end`, `header` the document's title."""

    __test__ = False

    id: str
    document: str
    language: str
    start: int
    end: int
    text: str
    header: str


@dataclass(frozen=True, slots=True)
class Question:
    """A labelled question; `gold` are the exact words of the document that answer it."""

    id: str
    group: str
    language: str
    document_language: str
    question: str
    answerable: bool
    kind: str
    document: str
    gold: tuple[str, ...]
    split: str


def questions() -> list[Question]:
    """All questions in the order of the file."""
    lines = (ROOT / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    return [Question(**{**row, "gold": tuple(row["gold"])}) for row in map(json.loads, lines)]


def passages() -> list[TestPassage]:
    """All passages of all documents: paragraphs joined up to about TARGET_CHARS, cut only at paragraphs."""
    found: list[TestPassage] = []
    for path in sorted((ROOT / "documents").glob("*/*")):
        text = path.read_text(encoding="utf-8")
        header = text.lstrip("# ").split("\n", 1)[0][:120]
        for start, end in _cuts(text):
            if end - start < SHORTEST_CHARS:
                continue
            name = f"{path.stem}:{start}"
            found.append(TestPassage(name, path.stem, path.parent.name, start, end, text[start:end], header))
    return found


def _cuts(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(text):
        if len(text) - start <= LONGEST_CHARS:
            end = len(text)
        else:
            end = text.find("\n\n", start + TARGET_CHARS, start + LONGEST_CHARS)
            if end < 0:
                end = text.rfind("\n\n", start + 1, start + TARGET_CHARS)
            if end < 0:
                end = text.rfind(". ", start + 1, start + LONGEST_CHARS) + 1
        yield start, len(text[:end].rstrip())
        start = end + len(text[end:]) - len(text[end:].lstrip())


def statistics(found: Sequence[TestPassage]) -> Statistics:
    """Document frequencies of all stems over all passages, as the product counts them over chunks."""
    df: dict[str, int] = {}
    for passage in found:
        for stem in {term.stem for term in terms(f"{passage.header}\n{passage.text}", passage.language)}:
            df[stem] = df.get(stem, 0) + 1
    return Statistics(len(found), df)


def judged(found: Sequence[TestPassage], rows: Iterable[Sequence[Any]]) -> list[Passage]:
    """Rows of (passage index, dense, sparse, fused) as the passages that `judge` takes."""
    return [
        Passage(
            chunk_id=found[index].id,
            text=found[index].text,
            language=found[index].language,
            dense_score=dense,
            sparse_score=sparse,
            fused=fused,
            header=found[index].header,
            document_id=found[index].document,
            document=found[index].document,
        )
        for index, dense, sparse, fused in rows
    ]


@dataclass(frozen=True, slots=True)
class Case:
    """A question with what retrieval found for it and the cosines of its candidate sentences."""

    question: Question
    passages: list[Passage]
    statistics: Statistics
    sentence_scores: dict[tuple[str, int, int], float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was decided: `right` means that the gold sentence is among the first three that are shown."""

    answerable: bool
    answered: bool
    right: bool


@cache
def cases() -> list[Case]:
    """All questions with their stored scores."""
    found = passages()
    counted = statistics(found)
    stored = {row["id"]: row for row in json.loads(SCORES.read_text(encoding="utf-8"))}
    return [
        Case(
            question,
            judged(found, stored[question.id]["passages"]),
            counted,
            {(found[at].id, start, end): score / 1e4 for at, start, end, score in stored[question.id]["sentences"]},
        )
        for question in questions()
    ]


@cache
def _measured(case_id: str) -> list[evidence.Measured]:
    case = next(case for case in cases() if case.question.id == case_id)
    return evidence.measure(case.question.question, case.passages, case.statistics)


def measured(case: Case, *, scored: bool) -> list[evidence.Measured]:
    """The sentences of a case as measured; remembered, because thresholds do not change them."""
    plain = _measured(case.question.id)
    return evidence.with_margins(plain, case.sentence_scores) if scored else plain


def decide(case: Case, thresholds: Thresholds | None, *, scored: bool) -> Outcome:
    """Judge one case; `scored` says whether the sentence scores are given."""
    judgement = evidence.decide(measured(case, scored=scored), thresholds)
    texts = {p.chunk_id: p.text for p in case.passages if p.document == case.question.document}
    shown = [texts[s.chunk_id][s.start : s.end] for s in judgement.sentences[:3] if s.chunk_id in texts]
    right = any(
        find_quote(sentence, gold) or find_quote(gold, sentence) for sentence in shown for gold in case.question.gold
    )
    return Outcome(case.question.answerable, judgement.answerable, right)


def _share(hits: int, of: int) -> float | None:
    return hits / of if of else None


RATES: dict[str, Callable[[Sequence[Outcome]], float | None]] = {
    "false answers": lambda o: _share(
        sum(x.answered and not x.answerable for x in o), sum(not x.answerable for x in o)
    ),
    "false refusals": lambda o: _share(sum(not x.answered and x.answerable for x in o), sum(x.answerable for x in o)),
    "right evidence": lambda o: _share(
        sum(x.right for x in o if x.answered and x.answerable), sum(x.answered and x.answerable for x in o)
    ),
    "precision": lambda o: _share(sum(x.right for x in o), sum(x.answered for x in o)),
    "recall": lambda o: _share(sum(x.right for x in o), sum(x.answerable for x in o)),
}
