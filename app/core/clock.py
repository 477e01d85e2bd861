"""Aware UTC now: the one place that reads the wall clock for rows."""

from datetime import UTC, datetime


def now() -> datetime:
    """The current time, aware, in UTC."""
    return datetime.now(UTC)
