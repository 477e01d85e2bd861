"""Admission: every request to a model server first takes a lease on its capacity, in Postgres.

Capacity is counted in blocks (one block = one slot for engines that publish no KV blocks). A share is kept free
for interactive answers, so that batch work never takes the last seat. Redis holds no capacity.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import text

from app.core.db import Database
from app.core.errors import UnavailableError
from app.core.ids import new_id

LEASE_S = 30.0
_POLL_S = (0.02, 0.05, 0.1, 0.25)


@dataclass(frozen=True, slots=True)
class Seat:
    """A live lease on an engine."""

    engine_id: UUID
    lease_id: UUID
    fence: int
    blocks: int


def reserved_blocks(slots: int) -> int:
    """Blocks that only interactive requests may take: one slot or 15 %, never all (none when there is one slot)."""
    return 0 if slots <= 1 else min(slots - 1, max(1, round(slots * 0.15)))


def register(database: Database, *, engine_id: UUID, name: str, url: str, model: str, slots: int) -> None:
    """Insert or update an engine's row (idempotent)."""
    with database.platform() as work:
        work.session.execute(
            text(
                "insert into engines (id, name, url, model, slots) values (:id, :name, :url, :model, :slots)"
                " on conflict (id) do update set name = excluded.name, url = excluded.url, model = excluded.model,"
                " slots = excluded.slots, updated_at = now()"
            ),
            {"id": engine_id, "name": name, "url": url, "model": model, "slots": slots},
        )


def try_acquire(
    database: Database, engine_id: UUID, *, tenant_id: UUID, lane: str, holder: str, blocks: int = 1
) -> Seat | None:
    """Take a lease now, or None when the engine is full for this lane (`interactive` or `batch`)."""
    with database.platform() as work:
        engine = work.session.execute(
            text("update engines set fence = fence + 1 where id = :id returning slots, fence"), {"id": engine_id}
        ).first()
        if engine is None:
            raise UnavailableError("engine_unknown", "This engine is not registered.")
        slots, fence = engine
        # Expired leases belong to processes that are gone; the row lock above makes the count exact.
        work.session.execute(
            text("delete from engine_leases where engine_id = :id and lease_until < clock_timestamp()"),
            {"id": engine_id},
        )
        taken = work.session.execute(
            text("select coalesce(sum(blocks), 0) from engine_leases where engine_id = :id"), {"id": engine_id}
        ).scalar_one()
        limit = slots if lane == "interactive" else slots - reserved_blocks(slots)
        if taken + blocks > limit:
            return None
        lease_id = new_id()
        work.session.execute(
            text(
                "insert into engine_leases (engine_id, id, tenant_id, holder, lane, blocks, fence, lease_until) values"
                " (:engine, :id, :tenant, :holder, :lane, :blocks, :fence,"
                " clock_timestamp() + make_interval(secs => :lease_s))"
            ),
            {
                "engine": engine_id,
                "id": lease_id,
                "tenant": tenant_id,
                "holder": holder,
                "lane": lane,
                "blocks": blocks,
                "fence": fence,
                "lease_s": LEASE_S,
            },
        )
        return Seat(engine_id, lease_id, fence, blocks)


def renew(database: Database, seat: Seat) -> bool:
    """Extend a lease; False when it ran out and was given away."""
    with database.platform() as work:
        row = work.session.execute(
            text(
                "update engine_leases set lease_until = clock_timestamp() + make_interval(secs => :lease_s)"
                " where engine_id = :engine and id = :id and fence = :fence returning id"
            ),
            {"engine": seat.engine_id, "id": seat.lease_id, "fence": seat.fence, "lease_s": LEASE_S},
        ).first()
    return row is not None


def release(database: Database, seat: Seat) -> None:
    """Give the blocks back at once (no error when the lease is gone already)."""
    with database.platform() as work:
        work.session.execute(
            text("delete from engine_leases where engine_id = :engine and id = :id and fence = :fence"),
            {"engine": seat.engine_id, "id": seat.lease_id, "fence": seat.fence},
        )


def busy_blocks(database: Database, engine_id: UUID) -> int:
    """Blocks under live leases."""
    with database.platform() as work:
        return int(
            work.session.execute(
                text(
                    "select coalesce(sum(blocks), 0) from engine_leases"
                    " where engine_id = :id and lease_until >= clock_timestamp()"
                ),
                {"id": engine_id},
            ).scalar_one()
        )


@contextmanager
def seat(
    database: Database, engine_id: UUID, *, tenant_id: UUID, lane: str, holder: str, wait_s: float, blocks: int = 1
) -> Iterator[Seat]:
    """A lease for the length of a `with` block (for calls shorter than the lease of 30 s).

    Waits up to `wait_s`, then raises UnavailableError("engine_busy").
    """
    deadline = time.monotonic() + wait_s
    turn = 0
    while (
        taken := try_acquire(database, engine_id, tenant_id=tenant_id, lane=lane, holder=holder, blocks=blocks)
    ) is None:
        if time.monotonic() >= deadline:
            raise busy(wait_s)
        time.sleep(_POLL_S[min(turn, len(_POLL_S) - 1)])
        turn += 1
    try:
        yield taken
    finally:
        release(database, taken)


def busy(wait_s: float) -> UnavailableError:
    """The error of a request that got no seat in time."""
    return UnavailableError(
        "engine_busy", "All seats of the model server are taken. Try again shortly.", retry_after_s=5, waited_s=wait_s
    )
