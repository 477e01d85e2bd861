"""What an answer is based on: pages read, searched and skipped, with reasons; the sums are checked. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

# Reasons as a person reads them: one document, several documents.
_DOCUMENTS_SAY = {
    "needs_password": ("needs a password", "need a password"),
    "needs_ocr": ("needs text recognition", "need text recognition"),
    "failed": ("failed", "failed"),
    "cancelled": ("was cancelled", "were cancelled"),
    "in_progress": ("is still being indexed", "are still being indexed"),
    "deleting": ("is being deleted", "are being deleted"),
}
_PAGES_SAY = {
    "needs_ocr": ("needs text recognition", "need text recognition"),
    "failed": ("failed", "failed"),
    "in_progress": ("is still being indexed", "are still being indexed"),
    "budget": ("did not fit into the prompt", "did not fit into the prompt"),
}
_IN_PROGRESS = frozenset({"received", "parsing", "indexing"})
_SEARCHED = frozenset({"indexed", "partial"})


@dataclass(frozen=True, slots=True)
class DocumentPages:
    """One document in scope. `pages_total` is None when it could not be counted (a password, a broken file).

    `gaps` are its pages that the index does not hold, as reason -> count: blank pages are indexed, not gaps.
    """

    document_id: str
    name: str
    state: str
    pages_total: int | None
    code: str | None = None
    gaps: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """Pages that were neither read nor searched. `pages` is None when nobody knows how many there are."""

    document_id: str
    document: str
    pages: int | None
    reason: str
    whole_document: bool


@dataclass(frozen=True, slots=True)
class Coverage:
    """`pages_total` = `pages_read` + `pages_searched_only` + the known pages of `skipped`; the same for documents:
    `documents_total` = `documents_searched` + the whole documents in `skipped`. Read pages were searched, too.
    """

    documents_total: int
    documents_searched: int
    documents_read: int
    pages_total: int
    pages_searched: int
    pages_searched_only: int
    pages_read: int
    passages_read: int
    skipped: tuple[Skipped, ...]
    sentence: str

    def __post_init__(self) -> None:
        pages_skipped = sum(entry.pages or 0 for entry in self.skipped)
        whole = sum(entry.whole_document for entry in self.skipped)
        if self.pages_total != self.pages_read + self.pages_searched_only + pages_skipped:
            raise ValueError("pages read, searched and skipped do not add up to all pages")
        if self.pages_searched != self.pages_read + self.pages_searched_only:
            raise ValueError("pages read and only searched do not add up to the pages searched")
        if self.documents_total != self.documents_searched + whole:
            raise ValueError("documents searched and skipped do not add up to all documents")


def coverage(
    documents: Sequence[DocumentPages], read: Mapping[str, Collection[int]], *, passages_read: int
) -> Coverage:
    """Count what a retrieval answer rests on.

    `documents` is everything in scope, `read` the 1-based pages per document id that were given to the engine or
    judged as evidence, `passages_read` the passages on them. Raises ValueError when a read page is not a searched
    page: then somebody counts wrongly and the answer must not go out.
    """
    by_id = {document.document_id: document for document in documents}
    if len(by_id) != len(documents):
        raise ValueError("a document is listed twice")
    if unknown := read.keys() - by_id.keys():
        raise ValueError(f"pages were read in {len(unknown)} documents that are not in scope")
    skipped: list[Skipped] = []
    searched_pages = 0
    searched_documents = 0
    pages_read = 0
    for document in documents:
        pages = frozenset(read.get(document.document_id, ()))
        gone = _skips(document)
        skipped.extend(gone)
        searchable = (document.pages_total or 0) - sum(entry.pages or 0 for entry in gone)
        if searchable < 0 or len(pages) > searchable or any(p < 1 or p > (document.pages_total or 0) for p in pages):
            raise ValueError("more pages were read or skipped than the document has")
        searched_pages += searchable
        searched_documents += not any(entry.whole_document for entry in gone)
        pages_read += len(pages)
    documents_read = sum(1 for pages in read.values() if pages)
    return Coverage(
        documents_total=len(documents),
        documents_searched=searched_documents,
        documents_read=documents_read,
        pages_total=sum(document.pages_total or 0 for document in documents),
        pages_searched=searched_pages,
        pages_searched_only=searched_pages - pages_read,
        pages_read=pages_read,
        passages_read=passages_read,
        skipped=tuple(skipped),
        sentence=_sentence(passages_read, pages_read, documents_read, searched_documents, searched_pages, skipped),
    )


def not_found(found: Coverage) -> str:
    """The sentence of an answer without evidence; it names what was not searched, because the answer may be there."""
    where = f"{_count(found.documents_searched, 'document')}, {_count(found.pages_searched, 'page')}"
    if not found.documents_searched:
        return f"Nothing could be searched{_not_searched(found.skipped)}."
    return f"Not found in {where} searched{_not_searched(found.skipped)}."


def _skips(document: DocumentPages) -> list[Skipped]:
    if document.state not in _SEARCHED:
        reason = "in_progress" if document.state in _IN_PROGRESS else document.state
        return [Skipped(document.document_id, document.name, document.pages_total, reason, whole_document=True)]
    return [
        Skipped(document.document_id, document.name, pages, reason, whole_document=False)
        for reason, pages in sorted((document.gaps or {}).items())
        if pages
    ]


def _sentence(
    passages: int, pages: int, documents: int, searched: int, searched_pages: int, skipped: Sequence[Skipped]
) -> str:
    read = f"Read {_count(passages, 'passage')} on {_count(pages, 'page')} of {_count(documents, 'document')}"
    if not passages:
        read = "Read no passage"
    return f"{read}; searched {_count(searched, 'document')}, {_count(searched_pages, 'page')}{_not_searched(skipped)}."


def _not_searched(skipped: Sequence[Skipped]) -> str:
    """`; 2 documents were not searched: 1 needs a password, 1 failed; 3 pages were not searched: 3 failed`."""
    parts = ""
    whole = Counter(entry.reason for entry in skipped if entry.whole_document)
    if whole:
        total = whole.total()
        reasons = ", ".join(f"{n} {_say(_DOCUMENTS_SAY, reason, n)}" for reason, n in sorted(whole.items()))
        parts += f"; {_count(total, 'document')} {'was' if total == 1 else 'were'} not searched: {reasons}"
    partial: Counter[str] = Counter()
    for entry in skipped:
        if not entry.whole_document:
            partial[entry.reason] += entry.pages or 0
    if partial:
        total = partial.total()
        inside = len({entry.document_id for entry in skipped if not entry.whole_document})
        reasons = ", ".join(f"{n} {_say(_PAGES_SAY, reason, n)}" for reason, n in sorted(partial.items()))
        verb = "was" if total == 1 else "were"
        parts += f"; {_count(total, 'page')} of {_count(inside, 'document')} {verb} not searched: {reasons}"
    return parts


def _say(words: Mapping[str, tuple[str, str]], reason: str, number: int) -> str:
    one, several = words.get(reason, (reason.replace("_", " "),) * 2)
    return one if number == 1 else several


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
