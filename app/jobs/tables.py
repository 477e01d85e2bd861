"""Rows of the job state machine."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.core.db import Base


class Job(Base):
    """A piece of work: the row is the truth, a message about it is a hint."""

    __tablename__ = "jobs"
    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    kind: Mapped[str]
    queue: Mapped[str]
    state: Mapped[str]
    subject_id: Mapped[UUID | None]
    collection_id: Mapped[UUID | None]
    created_by: Mapped[UUID | None]
    payload: Mapped[dict[str, Any]] = mapped_column(JSONB)
    progress: Mapped[dict[str, Any]] = mapped_column(JSONB)
    priority: Mapped[int]
    attempt: Mapped[int]
    setbacks: Mapped[int]
    fence: Mapped[int]
    holder: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    run_after: Mapped[datetime]
    hinted_at: Mapped[datetime | None]
    cancel_requested_at: Mapped[datetime | None]
    code: Mapped[str | None]
    message: Mapped[str | None]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class JobEvent(Base):
    """What happened to a job, append only."""

    __tablename__ = "job_events"
    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    job_id: Mapped[UUID]
    at: Mapped[datetime]
    event: Mapped[str]
    detail: Mapped[dict[str, Any]] = mapped_column(JSONB)


class Outbox(Base):
    """A hint that must reach the broker, written with the job."""

    __tablename__ = "outbox"
    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    job_id: Mapped[UUID]
    queue: Mapped[str]
    created_at: Mapped[datetime]
    sent_at: Mapped[datetime | None]


class WorkerBeat(Base):
    """The last sign of life of a worker and the queues it consumes."""

    __tablename__ = "worker_beats"
    name: Mapped[str] = mapped_column(primary_key=True)
    queues: Mapped[list[str]] = mapped_column(ARRAY(Text))
    at: Mapped[datetime]
