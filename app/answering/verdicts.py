"""Typed verdicts of one document about a property, proved by a quote, and their tally. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from app.answering.denials import denies as denies
from ingestion.terms import fold

MAX_QUOTE_CHARS = 1000
# Where an object may begin: more braces than these are no reply, and each costs a parse.
_MOST_TRIES = 50
_PLAIN_NOUNS = frozenset(
    [
        "document",
        "documents",
        "file",
        "files",
        "doc",
        "docs",
        "documento",
        "documentos",
        "archivo",
        "archivos",
        "fichero",
        "ficheros",
        "arxiu",
        "arxius",
        "fitxer",
        "fitxers",
    ]
)


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
    """Documents by verdict; a yes or no without a verified quote is unproved and counted nowhere else."""

    yes: int = 0
    no: int = 0
    silent: int = 0
    unproved: int = 0

    @property
    def documents(self) -> int:
        """All of them."""
        return self.yes + self.no + self.silent + self.unproved


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
    """The verdict and quote of a model's reply, whatever stands around the object (a code fence, a sentence).

    None when it holds no such object, two that differ, or a quote that is too long or cannot be stored: an unreadable
    reply proves nothing.
    """
    found = {reply for value in _objects(text) if (reply := _reply(value)) is not None}
    return found.pop() if len(found) == 1 else None


def _objects(text: str) -> list[Any]:
    """The outermost JSON objects of a text; repeated keys make one unreadable."""
    decoder = json.JSONDecoder(object_pairs_hook=_unique)
    values: list[Any] = []
    at = text.find("{")
    for _ in range(_MOST_TRIES):
        if at < 0:
            break
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            values.append(value)
        at = text.find("{", end)
    return values


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any] | None:
    value = dict(pairs)
    return value if len(value) == len(pairs) else None


def _reply(value: Any) -> tuple[Verdict, str] | None:
    if not isinstance(value, dict) or value.keys() != {"verdict", "quote"}:
        return None
    said, quote = value["verdict"], value["quote"]
    if not isinstance(said, str) or not isinstance(quote, str) or len(quote) > MAX_QUOTE_CHARS:
        return None
    # Postgres stores neither a NUL nor half a character.
    if "\x00" in quote or any("\ud800" <= c <= "\udfff" for c in quote):
        return None
    try:
        return Verdict(said.strip().lower()), quote
    except ValueError:
        return None


def tally(verdicts: Sequence[DocumentVerdict]) -> Tally:
    """Count the documents; silence needs no proof."""
    counted = [v.verdict for v in verdicts if v.proved or v.verdict is Verdict.SILENT]
    return Tally(
        yes=counted.count(Verdict.YES),
        no=counted.count(Verdict.NO),
        silent=counted.count(Verdict.SILENT),
        unproved=len(verdicts) - len(counted),
    )


def sentence(counted: Tally, noun: str = "", *, negated: bool = False) -> str:
    """The count in words; it always adds up to the number of documents.

    `noun` is what the question counted ("supply agreements"): every document was asked, whatever it is. `negated`: the
    question asked for the documents without the property, so those that deny it or are silent are the answer.
    """
    total = f"{counted.documents:,} {'document' if counted.documents == 1 else 'documents'}"
    without = counted.no + counted.silent
    split = f"({counted.no:,} {_says(counted.no)} the opposite, {counted.silent:,} {_says(counted.silent)} nothing)"
    if negated:
        text = f"{without:,} of {total} without it {split}. With it: {counted.yes:,}, each with a quote."
    else:
        text = f"{counted.yes:,} of {total}: yes, with a quote. No: {without:,} {split}."
    if counted.unproved:
        text += f" Not proved, so not counted: {counted.unproved:,}."
    kind = noun.strip()
    if kind and counted.documents and fold(kind.lower()) not in _PLAIN_NOUNS:
        text += f' Every document was asked, not only "{kind}".'
    return text


def _says(number: int) -> str:
    return "says" if number == 1 else "say"


def combine(parts: Sequence[tuple[Verdict, bool]]) -> Verdict:
    """One verdict of a document that was read in sections, from each section's verdict and whether it is proved.

    A proved yes wins: a document has what one of its sections has, whatever another denies of its own matter. Then a
    proved no, before any claim without proof; an unproved yes before an unproved no, so that a possible hit is looked
    at. Silence of a section says nothing about the others.
    """
    for wanted in ((Verdict.YES, True), (Verdict.NO, True), (Verdict.YES, False), (Verdict.NO, False)):
        if wanted in parts:
            return wanted[0]
    return Verdict.SILENT
