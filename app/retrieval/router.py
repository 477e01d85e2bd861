"""Which route a question takes and why, as a person reads it: the first rule, until a measured router replaces it. Pure."""

from dataclasses import dataclass
from math import ceil
from typing import Literal

from app.retrieval.tasks import AskedTask, Task

Route = Literal["auto", "retrieval", "full"]

_BY_DOCUMENT = frozenset({Task.COUNT, Task.LIST})


@dataclass(frozen=True, slots=True)
class CorpusSize:
    """What can be read: documents, pages, and their tokens as an estimate."""

    documents: int
    pages: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What the engine takes and how fast it reads, in tokens and tokens per second."""

    context_tokens: int
    window_tokens: int
    section_tokens: int
    full_pass_tokens: int
    prefill_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Decision:
    """The route with its reasons; `by_document`: each document is asked for itself and the code counts."""

    route: Literal["retrieval", "full"]
    by_document: bool
    reasons: tuple[str, ...]


def decide(asked: Route, task: AskedTask, corpus: CorpusSize, limits: Limits) -> Decision:
    """The caller's choice wins; else a corpus that fits the prompt of a retrieval is read whole, as is every corpus for
    a question about all of it; else retrieval.
    """
    by_document = task.task in _BY_DOCUMENT
    costs = _costs(corpus, limits)
    if asked == "full":
        return Decision("full", by_document, ("You asked for a full pass.", costs))
    if asked == "retrieval":
        return Decision("retrieval", False, ("You asked for retrieval.", costs))
    if not corpus.pages:
        return Decision("retrieval", False, ("There is nothing to read yet.",))
    if corpus.tokens <= limits.context_tokens:
        why = f"All {corpus.pages:,} pages (about {corpus.tokens:,} tokens) fit into one prompt of a retrieval, so all are read."
        return Decision("full", by_document, (why, "Ask with route 'retrieval' to search only."))
    if task.task is Task.LOCAL:
        why = "Nothing in the question asks for all documents, so the best passages are searched."
        return Decision("retrieval", False, (why, costs, "Ask with route 'full' to read every page."))
    if corpus.tokens > limits.full_pass_tokens:
        why = (
            f'"{task.cue}" asks for a full pass, but the text (about {corpus.tokens:,} tokens) is over its budget of'
            f" {limits.full_pass_tokens:,}."
        )
        return Decision(
            "retrieval",
            False,
            (why, costs, "Ask with route 'full' to read as much as the budget holds, or select documents."),
        )
    why = f'"{task.cue}" asks about all documents, so every page is read.'
    return Decision("full", by_document, (why, costs, "Ask with route 'retrieval' for a quick, partial answer."))


def _costs(corpus: CorpusSize, limits: Limits) -> str:
    full = min(corpus.tokens, limits.full_pass_tokens)
    found = min(limits.context_tokens, corpus.tokens)
    sections = max(1, ceil(full / limits.section_tokens))
    return (
        f"A full pass reads about {full:,} tokens in {sections:,} section{'' if sections == 1 else 's'}"
        f" (about {_seconds(full, limits)} the first time); retrieval reads at most {found:,}"
        f" (about {_seconds(found, limits)})."
    )


def _seconds(tokens: int, limits: Limits) -> str:
    seconds = ceil(tokens / limits.prefill_tokens_per_s)
    return f"{seconds} s" if seconds < 120 else f"{ceil(seconds / 60):,} min"
