"""Stored text behind an answer: what lies in the collection, and the pages that quotes are checked against."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import aliased

from app.answering.citations import Levelled, PageText
from app.answering.coverage import DocumentPages
from app.core.db import UnitOfWork
from app.documents.tables import Document, DocumentVersion, Page
from ingestion.canonical import PAGE_SEPARATOR, lines_from_json


@dataclass(frozen=True, slots=True)
class StoredText:
    """Consecutive pages of a version: `text` begins at `offset` of the canonical text."""

    version_id: UUID
    offset: int
    text: str
    pages: tuple[PageText, ...]

    def levelled(self) -> Levelled:
        """The text prepared for finding quotes."""
        return Levelled(self.text)


def in_scope(uow: UnitOfWork, collection_id: UUID) -> list[DocumentPages]:
    """Every document of the collection with the version that is searched (else the latest), and its unread pages."""
    active, latest = aliased(DocumentVersion), aliased(DocumentVersion)
    rows: Sequence[tuple[Document, DocumentVersion | None, DocumentVersion | None]] = uow.session.execute(
        select(Document, active, latest)
        .join(active, active.id == Document.active_version_id, isouter=True)
        .join(latest, latest.id == Document.latest_version_id, isouter=True)
        .where(Document.collection_id == collection_id, Document.deleted_at.is_(None))
        .order_by(active.id, Document.id)
    ).all()
    partial = [searched.id for _, searched, _ in rows if searched is not None and searched.state == "partial"]
    gaps: dict[UUID, dict[str, int]] = defaultdict(dict)
    if partial:
        for version_id, state, count in uow.session.execute(
            select(Page.version_id, Page.state, func.count())
            .where(Page.version_id.in_(partial), Page.state.in_(("needs_ocr", "failed")))
            .group_by(Page.version_id, Page.state)
        ):
            gaps[version_id][state] = count
    found = []
    for document, searched, last in rows:
        version = searched if searched is not None else last
        if version is None:
            continue
        found.append(
            DocumentPages(
                document_id=str(document.id),
                name=document.name,
                state=version.state,
                pages_total=version.pages_total or None,
                code=version.code,
                gaps=gaps.get(version.id),
                version_id=str(version.id),
                version_number=version.number,
                sha256=version.sha256,
            )
        )
    return found


def stored_texts(uow: UnitOfWork, wanted: Mapping[UUID, Iterable[tuple[int, int]]]) -> dict[UUID, StoredText]:
    """Per version the stored pages that cover the wanted page ranges (1-based, inclusive), from first to last.

    Pages in between are loaded too, so that the text is contiguous and offsets stay canonical.
    """
    texts = {}
    for version_id, page_ranges in wanted.items():
        listed = list(page_ranges)
        first, last = min(a for a, _ in listed), max(b for _, b in listed)
        rows = uow.session.scalars(
            select(Page)
            .where(Page.version_id == version_id, Page.number >= first, Page.number <= last)
            .order_by(Page.number)
        ).all()
        pages = [row for row in rows if row.char_start is not None and row.char_end is not None]
        if not pages:
            continue
        offset = pages[0].char_start or 0
        texts[version_id] = StoredText(
            version_id=version_id,
            offset=offset,
            text=PAGE_SEPARATOR.join(page.text for page in pages),
            pages=tuple(
                PageText(
                    number=page.number,
                    start=page.char_start or 0,
                    end=page.char_end or 0,
                    lines=lines_from_json(page.lines),
                    label=page.label,
                )
                for page in pages
            ),
        )
    return texts
