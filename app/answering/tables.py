"""Rows of answers and citations."""

from datetime import datetime
from typing import Any
from uuid import UUID

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
    route: Mapped[str]
    route_reasons: Mapped[list[str]] = mapped_column(JSONB)
    form: Mapped[str]
    text: Mapped[str]
    model: Mapped[str]
    coverage: Mapped[dict[str, Any]] = mapped_column(JSONB)
    tokens: Mapped[dict[str, Any]] = mapped_column(JSONB)
    timings: Mapped[dict[str, Any]] = mapped_column(JSONB)
    seconds: Mapped[float | None]
    code: Mapped[str | None]
    message: Mapped[str | None]
    created_at: Mapped[datetime]
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
