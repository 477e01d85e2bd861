"""Events: the steps of an answer, as a client sees them."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["status", "citation", "verdict", "delta", "answer", "error"]


@dataclass(frozen=True, slots=True)
class Event:
    """One step; `data` is what goes to the client as JSON."""

    kind: Kind
    data: dict[str, Any]


Events = AsyncGenerator[Event, None]


def status(phase: str, **facts: Any) -> Event:
    """What is being done now: searching, routed, reading, writing, merging, queued."""
    return Event("status", {"phase": phase, **facts})
