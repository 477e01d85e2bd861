"""Which route a question takes and why, as a person reads it: the first rule, until a measured one comes. Pure."""

from dataclasses import dataclass
from math import ceil
from typing import Literal

from app.retrieval.tasks import AskedTask, Task

Route = Literal["auto", "retrieval", "full"]

_WANTS = {
    Task.COUNT: "asks for a number of documents",
    Task.LIST: "asks which documents",
    Task.COMPARE: "asks for a comparison",
    Task.SUMMARISE: "asks for a summary",
    Task.ALL: "asks about all of them",
}
_TO_SEARCH = "Ask with route 'retrieval' to search only the best passages: sooner, but it may miss some."
_TO_READ = "Ask with route 'full' to read every page."
_MINUTE_S, _HOUR_S = 60, 3600


@dataclass(frozen=True, slots=True)
class CorpusSize:
    """What can be read: documents, pages, and their tokens as an estimate."""

    documents: int
    pages: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What the engine takes and how fast it reads, in tokens and tokens per second.

    `context_tokens` is the prompt budget of a retrieval answer, `full_pass_tokens` the most that one full pass reads.
    """

    context_tokens: int
    window_tokens: int
    section_tokens: int
    full_pass_tokens: int
    prefill_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Decision:
    """The route with its reasons; `by_document`: each document is asked for itself and the code counts.

    The reasons end with what would change the decision.
    """

    route: Literal["retrieval", "full"]
    by_document: bool
    reasons: tuple[str, ...]


def decide(asked: Route, task: AskedTask, corpus: CorpusSize, limits: Limits) -> Decision:
    """The caller's choice wins. Else a corpus that fits the prompt of a retrieval is read whole, and so is one within
    the budget when the question is about several documents; else retrieval.

    A count that asks for no property ("how many documents are there") has nothing to ask each document for.
    """
    by_document = task.task in {Task.COUNT, Task.LIST} and bool(task.about)
    costs = _costs(corpus, limits, by_document=by_document)
    over = corpus.tokens > limits.full_pass_tokens
    if asked == "full":
        partly = (_partly(limits),) if over else ()
        return Decision("full", by_document, ("You asked for a full pass.", *partly, costs, _TO_SEARCH))
    if asked == "retrieval":
        partly = ("What the search does not find is not counted or compared.",) if task.task is not Task.LOCAL else ()
        return Decision("retrieval", False, ("You asked for retrieval.", *partly, costs, _TO_READ))
    if corpus.documents <= 0 or corpus.tokens <= 0:
        nothing = f"There is no text to read in {_counted(max(0, corpus.documents), 'document')}."
        return Decision("retrieval", False, (nothing, costs, "Upload documents, or wait until they are indexed."))
    if corpus.tokens <= limits.context_tokens and not over:
        fits = (
            f"All {_counted(corpus.pages, 'page')} (about {_counted(corpus.tokens, 'token')}) fit into the"
            f" {limits.context_tokens:,} tokens of a retrieval prompt, so everything is read."
        )
        return Decision("full", by_document, (fits, costs, _TO_SEARCH))
    if task.task is Task.LOCAL:
        local = "The question asks for single facts, not about all documents, so the best passages are searched."
        return Decision("retrieval", False, (local, costs, _TO_READ))
    wants = f'"{task.cue}" {_WANTS[task.task]}'
    if over:
        too_much = (
            f"{wants}, but the documents hold about {_counted(corpus.tokens, 'token')}, more than the"
            f" {limits.full_pass_tokens:,} that one full pass may read, so only the best passages are searched."
        )
        first = (
            f"Ask with route 'full' to read the first {limits.full_pass_tokens:,} tokens anyhow, the rest listed as not"
            " read, or select fewer documents."
        )
        return Decision("retrieval", False, (too_much, costs, first))
    asks = f"{wants}, so all {_counted(corpus.pages, 'page')} of {_counted(corpus.documents, 'document')} are read."
    if by_document:
        asks += " Each document is asked for itself, and the answers are counted, not estimated."
    return Decision("full", by_document, (asks, costs, _TO_SEARCH))


def _partly(limits: Limits) -> str:
    return (
        f"Only the first {limits.full_pass_tokens:,} tokens are read: more is over the budget of a full pass. The pages"
        " after them are listed as not read."
    )


def _costs(corpus: CorpusSize, limits: Limits, *, by_document: bool) -> str:
    """Tokens, sections and seconds of both routes; a second pass over the same text is faster."""
    full = max(0, min(corpus.tokens, limits.full_pass_tokens))
    passages = max(0, min(corpus.tokens, limits.context_tokens))
    size = max(1, min(limits.section_tokens, limits.window_tokens))
    sections = max(ceil(full / size), corpus.documents if by_document and full else 0)
    return (
        f"A full pass reads about {_counted(full, 'token')} in {_counted(sections, 'section')}"
        f"{_seconds(full, limits)} the first time; retrieval reads at most"
        f" {_counted(passages, 'token')}{_seconds(passages, limits)}."
    )


def _seconds(tokens: int, limits: Limits) -> str:
    """An estimate of the reading alone; a speed that nobody knows gives none."""
    if not limits.prefill_tokens_per_s > 0:
        return " (time unknown)"
    seconds = tokens / limits.prefill_tokens_per_s
    if seconds < 2 * _MINUTE_S:
        return f" (about {ceil(seconds):,} s)"
    if seconds < 2 * _HOUR_S:
        return f" (about {ceil(seconds / _MINUTE_S):,} min)"
    return f" (about {ceil(seconds / _HOUR_S):,} h)"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
