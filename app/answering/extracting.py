"""Verified sentences as an answer: the stored words, and a model's own sentence only where they support it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from app.answering import sources
from app.answering.citations import Span, VerifiedQuote, place, verify
from app.answering.evidence import EvidenceSentence
from app.answering.record import Citation
from app.answering.sentences import Kind, split
from app.answering.sources import StoredText
from app.core.db import UnitOfWork
from app.retrieval.search import FoundChunk

_FULL_SENTENCE_CHARS = 40


def cite(ordinal: int, hit: FoundChunk, quote: VerifiedQuote) -> Citation:
    """A citation of a passage from the outcome of its check."""
    return Citation(
        ordinal=ordinal,
        document=hit.document_name,
        document_id=hit.document_id,
        version_id=hit.version_id,
        page=quote.page,
        page_label=quote.page_label,
        quote=quote.text,
        verified=quote.verified,
        boxes=quote.boxes,
        char_start=quote.char_start,
        char_end=quote.char_end,
    )


def quoted(
    sentences: Iterable[EvidenceSentence],
    hits: Mapping[str, FoundChunk],
    texts: Mapping[UUID, StoredText],
    *,
    most: int,
    first_ordinal: int = 1,
) -> list[Citation]:
    """Sentences of evidence as verified citations, in order; what can not be proved is left out."""
    levelled = {version_id: stored.levelled() for version_id, stored in texts.items()}
    seen: set[tuple[UUID, int]] = set()
    found: list[Citation] = []
    for sentence in sentences:
        if len(found) == most:
            break
        hit = hits[sentence.chunk_id]
        start, end = hit.char_start + sentence.start, hit.char_start + sentence.end
        if (hit.version_id, start) in seen or hit.version_id not in texts:
            continue
        seen.add((hit.version_id, start))
        stored = texts[hit.version_id]
        wording = hit.text[sentence.start : sentence.end]
        # By its span, and found again by its words: the page may have changed under us.
        quote = place(stored.text, stored.pages, start, end, offset=stored.offset)
        if not quote.verified or quote.text != wording:
            near = Span(hit.char_start, hit.char_end)
            quote = verify(wording, levelled[hit.version_id], stored.pages, near=near, offset=stored.offset)
        if quote.verified:
            found.append(cite(first_ordinal + len(found), hit, quote))
    return found


def openings(hits: Iterable[FoundChunk], each: int = 2) -> list[EvidenceSentence]:
    """The first full sentences of passages: what a document opens with."""
    found: list[EvidenceSentence] = []
    for hit in hits:
        whole = [s for s in split(hit.text) if s.kind is Kind.SENTENCE and s.end - s.start >= _FULL_SENTENCE_CHARS]
        found.extend(EvidenceSentence(str(hit.chunk_id), s.start, s.end, 0.0, ()) for s in whole[:each])
    return found


def page_ranges(hits: Iterable[FoundChunk]) -> dict[UUID, list[tuple[int, int]]]:
    """The pages of passages by version, as `sources.stored_texts` wants them."""
    wanted: dict[UUID, list[tuple[int, int]]] = defaultdict(list)
    for hit in hits:
        wanted[hit.version_id].append((hit.page_from, hit.page_to))
    return wanted


def stored(uow: UnitOfWork, hits: Iterable[FoundChunk]) -> dict[UUID, StoredText]:
    """The stored pages of passages."""
    return sources.stored_texts(uow, page_ranges(hits))


def as_text(citations: Sequence[Citation], own_words: Sequence[str] = ()) -> str:
    """The text of an extractive answer: sentences of the model that the quotes support, then the quotes."""
    quotes = "\n".join(f"“{' '.join(c.quote.split())}” [{c.ordinal}]" for c in citations)
    return f"{' '.join(own_words)}\n\n{quotes}" if own_words else quotes
