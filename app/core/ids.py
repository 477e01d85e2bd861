"""Identifiers: UUIDv7 for new rows (sortable by time), uuid5 for what is derived."""

from uuid import UUID, uuid5

import uuid_utils

_NAMESPACE = UUID("6f1d2a34-5b0c-5e57-9d0e-0f0ab1c2d3e4")


def new_id() -> UUID:
    """A fresh UUIDv7 (RFC 9562): time-ordered, so index pages stay warm."""
    return UUID(bytes=uuid_utils.uuid7().bytes)


def derived_id(*parts: object) -> UUID:
    """The same id for the same parts, for ever: used for chunks, points and engines."""
    return uuid5(_NAMESPACE, "\x1f".join(str(part) for part in parts))
