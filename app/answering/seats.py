"""A seat at the model server for an async request: taken, kept alive, and always given back.

The database work runs in threads; cancellation never loses a lease, because a thread's result is always collected.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import anyio
from anyio import to_thread

from app.core.db import Database
from app.engine import admission
from app.engine.admission import Seat

RENEW_S = 10.0
_POLL_S = (0.02, 0.05, 0.1, 0.25)


@asynccontextmanager
async def seated(
    database: Database, engine_id: UUID, *, tenant_id: UUID, lane: str, holder: str, wait_s: float, blocks: int = 1
) -> AsyncIterator[Seat]:
    """Wait for a seat up to `wait_s`, then hold it. Raises UnavailableError("engine_busy").

    Call `renew` of admission for requests that may outlive the lease of 30 s.
    """
    deadline = time.monotonic() + wait_s
    turn = 0
    seat: Seat | None = None
    try:
        while True:
            seat = await to_thread.run_sync(
                lambda: admission.try_acquire(
                    database, engine_id, tenant_id=tenant_id, lane=lane, holder=holder, blocks=blocks
                )
            )
            if seat is not None:
                break
            if time.monotonic() >= deadline:
                raise admission.busy(wait_s)
            await anyio.sleep(_POLL_S[min(turn, len(_POLL_S) - 1)])
            turn += 1
        yield seat
    finally:
        if seat is not None:
            taken = seat
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(lambda: admission.release(database, taken))
