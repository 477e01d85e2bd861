"""The labelled set of answerability: documents cut into passages, questions, and the stored scores of both legs."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1] / "data" / "answerability"
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
