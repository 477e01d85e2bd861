"""Rows of answers and citations."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, FetchedValue
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.core.db import Base


class Answer(Base):
    """A question and what came of it, with coverage and cost."""

    __tablename__ = "answers"
    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    collection_id: Mapped[UUID]
    user_id: Mapped[UUID]
    question: Mapped[str]
    state: Mapped[str]
    asked_route: Mapped[str]
    route: Mapped[str]
    route_reasons: Mapped[list[str]] = mapped_column(JSONB)
    form: Mapped[str]
    text: Mapped[str]
    model: Mapped[str]
    selection: Mapped[dict[str, Any]] = mapped_column(JSONB)
    coverage: Mapped[dict[str, Any]] = mapped_column(JSONB)
    verdicts: Mapped[list[Any]] = mapped_column(JSONB)
    run: Mapped[dict[str, Any]] = mapped_column(JSONB)
    tokens: Mapped[dict[str, Any]] = mapped_column(JSONB)
    timings: Mapped[dict[str, Any]] = mapped_column(JSONB)
    seconds: Mapped[float | None]
    code: Mapped[str | None]
    message: Mapped[str | None]
    again_of: Mapped[UUID | None]
    job_id: Mapped[UUID | None]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime] = mapped_column(server_default=FetchedValue(), server_onupdate=FetchedValue())
    finished_at: Mapped[datetime | None]


class CitationRow(Base):
    """A quote of an answer, where it stands, and whether it was found there."""

    __tablename__ = "citations"
    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    answer_id: Mapped[UUID]
    ordinal: Mapped[int]
    document_id: Mapped[UUID | None]
    version_id: Mapped[UUID | None]
    document_name: Mapped[str]
    page: Mapped[int | None]
    page_label: Mapped[str | None]
    quote: Mapped[str]
    claim: Mapped[str]
    verified: Mapped[bool]
    boxes: Mapped[list[Any]] = mapped_column(JSONB)
    char_start: Mapped[int | None]
    char_end: Mapped[int | None]
    updated_at: Mapped[datetime] = mapped_column(server_default=FetchedValue(), server_onupdate=FetchedValue())


class SnapshotPlan(Base):
    """How a snapshot is read in sections by one tokenizer: page spans, tokens and the hash of each section."""

    __tablename__ = "snapshot_plans"
    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    snapshot_id: Mapped[UUID] = mapped_column(primary_key=True)
    tokenizer: Mapped[str] = mapped_column(primary_key=True)
    section_tokens: Mapped[int] = mapped_column(primary_key=True)
    shape: Mapped[str] = mapped_column(primary_key=True)
    collection_id: Mapped[UUID]
    additive: Mapped[bool]
    tokens: Mapped[int] = mapped_column(BigInteger)
    sections: Mapped[list[Any]] = mapped_column(JSONB)
    created_at: Mapped[datetime]
