"""Which hits fit into the prompt, as sources in document order. Pure; the caller says how tokens are counted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

# Number, name and delimiters of a source in the prompt, in tokens; counted with the whole prompt by the engine later.
SOURCE_OVERHEAD_TOKENS = 40


@dataclass(frozen=True, slots=True)
class Hit:
    """A hit that Postgres confirmed: `text` stands at `start:end` of the version's canonical text."""

    chunk_id: str
    document_id: str
    version_id: str
    start: int
    end: int
    text: str
    score: float


@dataclass(frozen=True, slots=True)
class Source:
    """A numbered source of the prompt: one chunk, or neighbouring chunks of one version joined without a gap."""

    number: int
    document_id: str
    version_id: str
    start: int
    end: int
    text: str
    chunk_ids: tuple[str, ...]
    score: float


class LeftOutReason(StrEnum):
    """Why a hit is not among the sources."""

    BUDGET = "budget"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A hit that is not in the prompt."""

    chunk_id: str
    reason: LeftOutReason


@dataclass(frozen=True, slots=True)
class Packed:
    """Sources in document order (the document with the best hit first), what was left out, tokens as counted."""

    sources: tuple[Source, ...]
    left_out: tuple[LeftOut, ...]
    tokens: int


def pack(
    hits: Sequence[Hit],
    budget_tokens: int,
    count: Callable[[str], int],
    *,
    overhead_tokens: int = SOURCE_OVERHEAD_TOKENS,
) -> Packed:
    """Take hits best first while they fit, then order them as they stand in their documents.

    A hit that does not fit is left out and smaller ones after it may still be taken: the budget is never exceeded.
    Document order within the retrieved set: Yu et al., "In defense of RAG in the era of long-context LMs", 2024.
    """
    ranked = sorted(hits, key=lambda hit: (-hit.score, hit.document_id, hit.start, hit.chunk_id))
    taken: list[Hit] = []
    left_out: list[LeftOut] = []
    tokens = 0
    for hit in ranked:
        if any(_covers(other, hit) for other in taken):
            left_out.append(LeftOut(hit.chunk_id, LeftOutReason.DUPLICATE))
            continue
        cost = count(hit.text) + overhead_tokens
        if tokens + cost > budget_tokens:
            left_out.append(LeftOut(hit.chunk_id, LeftOutReason.BUDGET))
            continue
        taken.append(hit)
        tokens += cost
    rank: dict[tuple[str, str], int] = {}
    for hit in taken:
        rank.setdefault((hit.document_id, hit.version_id), len(rank))
    ordered = sorted(taken, key=lambda hit: (rank[hit.document_id, hit.version_id], hit.start, hit.end))
    return Packed(tuple(_sources(ordered)), tuple(left_out), tokens)


def _covers(other: Hit, hit: Hit) -> bool:
    return other.version_id == hit.version_id and other.start <= hit.start and hit.end <= other.end


def _sources(ordered: Sequence[Hit]) -> list[Source]:
    sources: list[Source] = []
    for hit in ordered:
        last = sources[-1] if sources else None
        # Overlapping or touching chunks become one source, so that nothing is read or numbered twice.
        if last and last.version_id == hit.version_id and last.start <= hit.start <= last.end:
            fresh = hit.text[last.end - hit.start :] if hit.end > last.end else ""
            sources[-1] = Source(
                number=last.number,
                document_id=last.document_id,
                version_id=last.version_id,
                start=last.start,
                end=max(last.end, hit.end),
                text=last.text + fresh,
                chunk_ids=(*last.chunk_ids, hit.chunk_id),
                score=max(last.score, hit.score),
            )
            continue
        sources.append(
            Source(
                number=len(sources) + 1,
                document_id=hit.document_id,
                version_id=hit.version_id,
                start=hit.start,
                end=hit.end,
                text=hit.text,
                chunk_ids=(hit.chunk_id,),
                score=hit.score,
            )
        )
    return sources
