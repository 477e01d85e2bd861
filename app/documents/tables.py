"""Rows of collections, grants, documents, versions, pages and chunks."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, BigInteger, FetchedValue
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.core.db import Base


class Collection(Base):
    """A set of documents that is searched and asked together, with grants to users."""

    __tablename__ = "collections"
    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str]
    description: Mapped[str]
    revision: Mapped[int]
    created_by: Mapped[UUID]
    created_at: Mapped[datetime]
    renamed_at: Mapped[datetime] = mapped_column(server_default=FetchedValue(), server_onupdate=FetchedValue())
    deleted_at: Mapped[datetime | None]


class CollectionGrant(Base):
    """A user's role on one collection."""

    __tablename__ = "collection_grants"
    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    collection_id: Mapped[UUID] = mapped_column(primary_key=True)
    user_id: Mapped[UUID] = mapped_column(primary_key=True)
    role: Mapped[str]
    created_at: Mapped[datetime]


class Document(Base):
    """A named document of a collection; its bytes come as versions, one of which is active (searched)."""

    __tablename__ = "documents"
    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    collection_id: Mapped[UUID]
    name: Mapped[str]
    active_version_id: Mapped[UUID | None]
    latest_version_id: Mapped[UUID | None]
    created_by: Mapped[UUID]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    deleted_at: Mapped[datetime | None]


class DocumentVersion(Base):
    """One upload of a document's bytes and everything that was learned from them."""

    __tablename__ = "document_versions"
    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    document_id: Mapped[UUID]
    collection_id: Mapped[UUID]
    number: Mapped[int]
    sha256: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str]
    code: Mapped[str | None]
    message: Mapped[str | None]
    media_type: Mapped[str | None]
    language: Mapped[str | None]
    title: Mapped[str | None]
    facts: Mapped[dict[str, Any]] = mapped_column(JSONB)
    parser_fingerprint: Mapped[str | None]
    pages_total: Mapped[int]
    pages_parsed: Mapped[int]
    pages_indexed: Mapped[int]
    chunks_total: Mapped[int]
    chunks_indexed: Mapped[int]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime] = mapped_column(server_default=FetchedValue(), server_onupdate=FetchedValue())
    indexed_at: Mapped[datetime | None]


class Page(Base):
    """One page as parsed: its text, lines with boxes, elements, and where it stands in the canonical text."""

    __tablename__ = "pages"
    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    version_id: Mapped[UUID] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    parser_fingerprint: Mapped[str]
    label: Mapped[str | None]
    width: Mapped[float | None]
    height: Mapped[float | None]
    rotation: Mapped[int]
    state: Mapped[str]
    code: Mapped[str | None]
    message: Mapped[str | None]
    parser: Mapped[str]
    char_start: Mapped[int | None]
    char_end: Mapped[int | None]
    text: Mapped[str]
    lines: Mapped[list[Any]] = mapped_column(JSONB)
    elements: Mapped[list[Any]] = mapped_column(JSONB)


class Chunk(Base):
    """A span of the canonical text as it is searched. Invariant: canonical[char_start:char_end] == text."""

    __tablename__ = "chunks"
    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    version_id: Mapped[UUID]
    document_id: Mapped[UUID]
    collection_id: Mapped[UUID]
    ordinal: Mapped[int]
    char_start: Mapped[int]
    char_end: Mapped[int]
    page_from: Mapped[int]
    page_to: Mapped[int]
    header: Mapped[str]
    text: Mapped[str]
    language: Mapped[str]
    stems: Mapped[list[int]] = mapped_column(ARRAY(BigInteger))
