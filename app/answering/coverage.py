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
    "budget": ("is over the budget of a full pass", "are over the budget of a full pass"),
    "not_selected": ("was not selected", "were not selected"),
}
_PAGES_SAY = {
    "needs_ocr": ("needs text recognition", "need text recognition"),
    "failed": ("failed", "failed"),
    "in_progress": ("is still being indexed", "are still being indexed"),
    "budget": ("is over the budget of a full pass", "are over the budget of a full pass"),
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
    version_id: str = ""
    version_number: int = 0
    sha256: str = ""

    @property
    def searchable(self) -> bool:
        """Whether its pages can be searched and read."""
        return self.state in _SEARCHED


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
    #: Prompts that the corpus was split over on a full pass; 0 for retrieval.
    sections: int = 0

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
    documents: Sequence[DocumentPages],
    read: Mapping[str, Collection[int]],
    *,
    passages_read: int,
    sections: int = 0,
    over_budget: Mapping[str, int] | None = None,
    selected: Collection[str] | None = None,
) -> Coverage:
    """Count what an answer rests on.

    `documents` is everything in scope, `read` the 1-based pages per document id that were given to the engine or
    judged as evidence, `passages_read` the passages on them. On a full pass `sections` is the number of prompts, and
    `over_budget` the pages per document id that one pass may not read any more. `selected`: the documents that the
    caller chose, None for all. Raises ValueError when a read page is not a searched page, or a page of a full pass is
    neither read nor skipped: then somebody counts wrongly and the answer must not go out.
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
        gone = _skips(document, (over_budget or {}).get(document.document_id, 0), selected)
        skipped.extend(gone)
        searchable = (document.pages_total or 0) - sum(entry.pages or 0 for entry in gone)
        if searchable < 0 or len(pages) > searchable or any(p < 1 or p > (document.pages_total or 0) for p in pages):
            raise ValueError("more pages were read or skipped than the document has")
        searched_pages += searchable
        searched_documents += not any(entry.whole_document for entry in gone)
        pages_read += len(pages)
    if sections and searched_pages != pages_read:
        raise ValueError("a full pass left pages unread without a reason")
    documents_read = sum(1 for pages in read.values() if pages)
    if sections:
        sentence = _full_sentence(pages_read, documents_read, sections, skipped)
    else:
        sentence = _sentence(passages_read, pages_read, documents_read, searched_documents, searched_pages, skipped)
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
        sentence=sentence,
        sections=sections,
    )


def not_found(found: Coverage) -> str:
    """The sentence of an answer without evidence; it names what was not searched, because the answer may be there."""
    where = f"{_count(found.documents_searched, 'document')}, {_count(found.pages_searched, 'page')}"
    verb = "read" if found.sections else "searched"
    if not found.documents_searched:
        return f"Nothing could be {verb}{_left_out(found.skipped, verb)}."
    return f"Not found in {where} {verb}{_left_out(found.skipped, verb)}."


def _skips(document: DocumentPages, over_budget: int, selected: Collection[str] | None) -> list[Skipped]:
    if selected is not None and document.document_id not in selected:
        return [Skipped(document.document_id, document.name, document.pages_total, "not_selected", whole_document=True)]
    if document.state not in _SEARCHED:
        reason = "in_progress" if document.state in _IN_PROGRESS else document.state
        return [Skipped(document.document_id, document.name, document.pages_total, reason, whole_document=True)]
    gaps = [
        Skipped(document.document_id, document.name, pages, reason, whole_document=False)
        for reason, pages in sorted((document.gaps or {}).items())
        if pages
    ]
    if over_budget:
        nothing_read = over_budget == (document.pages_total or 0)
        gaps.append(Skipped(document.document_id, document.name, over_budget, "budget", whole_document=nothing_read))
    return gaps


def _sentence(
    passages: int, pages: int, documents: int, searched: int, searched_pages: int, skipped: Sequence[Skipped]
) -> str:
    read = f"Read {_count(passages, 'passage')} on {_count(pages, 'page')} of {_count(documents, 'document')}"
    if not passages:
        read = "Read no passage"
    found = f"searched {_count(searched, 'document')}, {_count(searched_pages, 'page')}"
    return f"{read}; {found}{_left_out(skipped, 'searched')}."


def _full_sentence(pages: int, documents: int, sections: int, skipped: Sequence[Skipped]) -> str:
    where = "at once" if sections == 1 else f"in {_count(sections, 'section')}"
    return f"Read {_count(pages, 'page')} of {_count(documents, 'document')} {where}{_left_out(skipped, 'read')}."


def _left_out(skipped: Sequence[Skipped], verb: str) -> str:
    """`; 2 documents were not searched: 1 needs a password, 1 failed; 3 pages were not searched: 3 failed`."""
    parts = ""
    whole = Counter(entry.reason for entry in skipped if entry.whole_document)
    if whole:
        total = whole.total()
        reasons = ", ".join(f"{n} {_say(_DOCUMENTS_SAY, reason, n)}" for reason, n in sorted(whole.items()))
        parts += f"; {_count(total, 'document')} {'was' if total == 1 else 'were'} not {verb}: {reasons}"
    partial: Counter[str] = Counter()
    for entry in skipped:
        if not entry.whole_document:
            partial[entry.reason] += entry.pages or 0
    if partial:
        total = partial.total()
        inside = len({entry.document_id for entry in skipped if not entry.whole_document})
        reasons = ", ".join(f"{n} {_say(_PAGES_SAY, reason, n)}" for reason, n in sorted(partial.items()))
        were = "was" if total == 1 else "were"
        parts += f"; {_count(total, 'page')} of {_count(inside, 'document')} {were} not {verb}: {reasons}"
    return parts


def _say(words: Mapping[str, tuple[str, str]], reason: str, number: int) -> str:
    one, several = words.get(reason, (reason.replace("_", " "),) * 2)
    return one if number == 1 else several


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
