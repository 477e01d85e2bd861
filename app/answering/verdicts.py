"""Typed verdicts of one document about a property, proved by a quote, and their tally. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

MAX_QUOTE_CHARS = 1000


class Verdict(StrEnum):
    """What a document says: that it holds, that it does not, or nothing."""

    YES = "yes"
    NO = "no"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class DocumentVerdict:
    """The verdict of one document; `ordinals` are the citations that prove it."""

    document_id: str
    document: str
    version_id: str
    verdict: Verdict
    proved: bool
    ordinals: tuple[int, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Tally:
    """Documents by verdict; a yes or no without proof is counted as unproved only."""

    yes: int = 0
    no: int = 0
    silent: int = 0
    unproved: int = 0


RESPONSE_FORMAT: Final[Mapping[str, Any]] = {
    "type": "json_schema",
    "json_schema": {
        "name": "verdict",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {
                "verdict": {"type": "string", "enum": [v.value for v in Verdict]},
                "quote": {"type": "string"},
            },
            "required": ["verdict", "quote"],
            "additionalProperties": False,
        },
    },
}


def parse_reply(text: str) -> tuple[Verdict, str] | None:
    """The verdict and quote of a model's reply; None when it holds no such object."""
    found = re.search(r"\{.*\}", text, re.DOTALL)
    if found is None:
        return None
    try:
        value = json.loads(found.group())
        verdict, quote = Verdict(value["verdict"]), value["quote"]
    except (ValueError, KeyError, TypeError):
        return None
    if not isinstance(quote, str) or len(quote) > MAX_QUOTE_CHARS:
        return None
    return verdict, quote


def denies(sentence: str, about: str, language: str) -> bool:
    """Whether a sentence denies the property."""
    return re.search(r"\b(?:not|no|never|neither|nor|without|non)\b", sentence, re.IGNORECASE) is not None


def tally(verdicts: Sequence[DocumentVerdict]) -> Tally:
    """Count the documents."""
    proved = [v for v in verdicts if v.verdict is Verdict.SILENT or v.proved]
    count = {verdict: sum(v.verdict is verdict for v in proved) for verdict in Verdict}
    return Tally(count[Verdict.YES], count[Verdict.NO], count[Verdict.SILENT], len(verdicts) - len(proved))


def sentence(counted: Tally, noun: str) -> str:
    """The count in words; it adds up to the number of documents."""
    total = counted.yes + counted.no + counted.silent + counted.unproved
    return (
        f"{counted.yes} of {total} {noun or 'documents'}: yes, with a quote. No: {counted.no + counted.silent}"
        f" ({counted.no} say the opposite, {counted.silent} say nothing about it). Not proved: {counted.unproved}."
    )


def combine(parts: Sequence[tuple[Verdict, bool]]) -> Verdict:
    """One verdict of a document that was read in parts: what is proved wins, yes before no before silence."""
    for wanted in ((Verdict.YES, True), (Verdict.NO, True), (Verdict.YES, False), (Verdict.NO, False)):
        if wanted in parts:
            return wanted[0]
    return Verdict.SILENT
