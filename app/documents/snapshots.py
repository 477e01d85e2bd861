"""Snapshots: immutable, content-addressed lists of document versions with their pages in one canonical order.

The order is that of the versions' ids, which follow time: a new document or version only extends what was there, so
that an engine that holds the old prompt in its cache reads only the new end. Holds ids and hashes, never text.
"""

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, func, select
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.orm import Mapped, mapped_column

from app.core.clock import now
from app.core.db import Base, UnitOfWork
from app.core.errors import ConflictError
from app.core.ids import derived_id
from app.documents.markers import defuse, marker, plain_name
from app.documents.tables import Document, DocumentVersion, Page

#: Raise with every change of what a snapshot renders to: then nothing that was counted before is used again.
FORMAT = 1
#: States of a version whose pages are read.
READABLE_STATES = ("indexed", "partial")
_READ_PAGES = ("ok", "blank")
_FIRST_LINK = hashlib.sha256(f"fullread snapshot {FORMAT}".encode()).hexdigest()


class SnapshotRow(Base):
    """A snapshot that was taken; `documents` lists document, version and chain hash in order."""

    __tablename__ = "snapshots"
    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    collection_id: Mapped[UUID]
    digest: Mapped[str]
    format: Mapped[int]
    documents: Mapped[list[Any]] = mapped_column(JSONB)
    documents_total: Mapped[int]
    pages_total: Mapped[int]
    chars_total: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime]


@dataclass(frozen=True, slots=True)
class SnapshotPage:
    """A page that is read. `source` is its running number over the snapshot (from 1), `start`/`end` its place in the
    version's canonical text; a blank page has an empty span.
    """

    source: int
    number: int
    label: str | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SnapshotDocument:
    """A version of a document with the pages that can be read; `chain` hashes it with all before it."""

    ordinal: int
    document_id: UUID
    version_id: UUID
    version_number: int
    name: str
    sha256: str
    pages_total: int
    pages: tuple[SnapshotPage, ...]
    chain: str

    def page(self, source: int) -> SnapshotPage:
        """The page with this running number."""
        return self.pages[source - self.pages[0].source]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a full pass reads. Equal digests mean equal prompts, whatever was uploaded or deleted meanwhile."""

    id: UUID
    digest: str
    collection_id: UUID
    documents: tuple[SnapshotDocument, ...]

    @property
    def pages(self) -> int:
        """Pages that are read."""
        return sum(len(document.pages) for document in self.documents)

    @property
    def chars(self) -> int:
        """Characters of their text."""
        return sum(page.end - page.start for document in self.documents for page in document.pages)


@dataclass(frozen=True, slots=True)
class Piece:
    """A page, or a part of a long one, as it goes into a prompt: `start`/`end` are offsets in the page's text."""

    document: int
    source: int
    version_id: UUID
    number: int
    start: int
    end: int

    @property
    def whole_from_start(self) -> bool:
        """Whether the piece begins its page."""
        return self.start == 0


def extent(uow: UnitOfWork, version_ids: Collection[UUID]) -> tuple[int, int]:
    """Pages of versions that can be read, and the characters on them."""
    pages, chars = uow.session.execute(
        select(func.count(), func.sum(Page.char_end - Page.char_start)).where(
            Page.version_id.in_(version_ids), Page.state.in_(_READ_PAGES)
        )
    ).one()
    return int(pages), int(chars or 0)


def take(uow: UnitOfWork, collection_id: UUID, document_ids: Collection[UUID] | None = None) -> Snapshot:
    """The snapshot of what can be read now in a collection (or of some of its documents), stored if it is new.

    The caller has checked the rights on the collection.
    """
    query = (
        select(Document.id, Document.name, DocumentVersion)
        .join(DocumentVersion, DocumentVersion.id == Document.active_version_id)
        .where(
            Document.collection_id == collection_id,
            Document.deleted_at.is_(None),
            DocumentVersion.state.in_(READABLE_STATES),
        )
        .order_by(DocumentVersion.id)
    )
    if document_ids is not None:
        query = query.where(Document.id.in_(document_ids))
    rows = uow.session.execute(query).all()
    pages: dict[UUID, list[tuple[int, str | None, int, int]]] = {version.id: [] for _, _, version in rows}
    for version_id, number, label, start, end in uow.session.execute(
        select(Page.version_id, Page.number, Page.label, Page.char_start, Page.char_end)
        .where(Page.version_id.in_(pages), Page.state.in_(_READ_PAGES))
        .order_by(Page.version_id, Page.number)
    ):
        pages[version_id].append((number, label, start or 0, end or start or 0))
    documents: list[SnapshotDocument] = []
    chain, source = _FIRST_LINK, 0
    for document_id, name, version in rows:
        own = []
        for number, label, start, end in pages[version.id]:
            source += 1
            own.append(SnapshotPage(source, number, label, start, end))
        chain = _link(chain, name, version, own)
        documents.append(
            SnapshotDocument(
                ordinal=len(documents) + 1,
                document_id=document_id,
                version_id=version.id,
                version_number=version.number,
                name=name,
                sha256=version.sha256,
                pages_total=version.pages_total,
                pages=tuple(own),
                chain=chain,
            )
        )
    taken = Snapshot(
        derived_id("snapshot", uow.tenant_id, collection_id, chain), chain, collection_id, tuple(documents)
    )
    _store(uow, taken)
    return taken


def _link(chain: str, name: str, version: DocumentVersion, pages: Sequence[SnapshotPage]) -> str:
    """Hash of everything that the document's part of the prompt is made from, and of all before it.

    The bytes of the file and the parser decide the text, so the text itself need not be loaded.
    """
    facts = [
        chain,
        name,
        version.sha256,
        version.parser_fingerprint,
        [[p.number, p.label, p.end - p.start] for p in pages],
    ]
    return hashlib.sha256(json.dumps(facts, ensure_ascii=True).encode()).hexdigest()


def _store(uow: UnitOfWork, taken: Snapshot) -> None:
    row = {
        "tenant_id": uow.tenant_id,
        "id": taken.id,
        "collection_id": taken.collection_id,
        "digest": taken.digest,
        "format": FORMAT,
        "documents": [[str(d.document_id), str(d.version_id), d.chain] for d in taken.documents],
        "documents_total": len(taken.documents),
        "pages_total": taken.pages,
        "chars_total": taken.chars,
        "created_at": now(),
    }
    uow.session.execute(insert(SnapshotRow).values(row).on_conflict_do_nothing())


def page_texts(uow: UnitOfWork, wanted: Collection[tuple[UUID, int]]) -> dict[tuple[UUID, int], str]:
    """Stored texts of pages by (version, number). Raises ConflictError when one is gone: it was replaced meanwhile."""
    found: dict[tuple[UUID, int], str] = {}
    by_version: dict[UUID, set[int]] = {}
    for version_id, number in wanted:
        by_version.setdefault(version_id, set()).add(number)
    for version_id, numbers in by_version.items():
        for number, text in uow.session.execute(
            select(Page.number, Page.text).where(Page.version_id == version_id, Page.number.in_(numbers))
        ):
            found[version_id, number] = text
    if len(found) != sum(map(len, by_version.values())):
        raise changed()
    return found


def changed() -> ConflictError:
    """The error of a full pass whose documents were replaced or deleted while it read them."""
    return ConflictError("snapshot_changed", "The documents changed while they were read. Ask again.")


def render(snapshot: Snapshot, pieces: Sequence[Piece], texts: dict[tuple[UUID, int], str], seal: str) -> str:
    """Pieces as corpus text: a marker line for each document and each page, the page's text as data.

    Deterministic: the same pieces give the same characters, which is what a prefix cache needs.
    """
    lines: list[str] = []
    current = 0
    for piece in pieces:
        document = snapshot.documents[piece.document - 1]
        if piece.document != current:
            current = piece.document
            lines.append(f"{marker(f'DOCUMENT {current}', seal)} {plain_name(document.name)}")
        page = document.page(piece.source)
        label = f" (printed {plain_name(page.label)})" if page.label and page.label != str(page.number) else ""
        more = "" if piece.whole_from_start else ", continued"
        lines.append(f"{marker(f'PAGE {piece.source}', seal)} page {page.number}{label}{more}")
        lines.append(defuse(texts[piece.version_id, piece.number][piece.start : piece.end]) or "(blank page)")
    return "\n".join(lines)
