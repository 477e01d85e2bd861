"""Rows of engines and of the leases on their capacity."""

from datetime import datetime
from uuid import UUID

from sqlalchemy.orm import Mapped, mapped_column

from app.core.db import Base


class Engine(Base):
    """A model server and how many requests it serves at once."""

    __tablename__ = "engines"
    id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str]
    url: Mapped[str]
    model: Mapped[str]
    slots: Mapped[int]
    fence: Mapped[int]
    updated_at: Mapped[datetime]
