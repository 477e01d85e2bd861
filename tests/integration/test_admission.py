"""Engine admission on the real database: never over capacity, a share for people, leases that end by themselves."""

import threading
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from app.core.db import Database
from app.core.errors import UnavailableError
from app.engine import admission
from app.engine.admission import Seat
from tests.support.stack import Stack


@pytest.fixture(scope="module")
def database(stack: Stack) -> Iterator[Database]:
    made = stack.database()
    yield made
    made.dispose()


@pytest.fixture
def engine_id(database: Database) -> UUID:
    made = uuid4()
    admission.register(database, engine_id=made, name="test", url="http://x", model="m", slots=3)
    return made


def take(database: Database, engine_id: UUID, stack: Stack, lane: str = "interactive", blocks: int = 1) -> Seat | None:
    return admission.try_acquire(
        database, engine_id, tenant_id=stack.owner.tenant_id, lane=lane, holder="test", blocks=blocks
    )


def test_capacity_is_never_exceeded_by_a_race(stack: Stack, database: Database, engine_id: UUID) -> None:
    taken: list[Seat] = []
    barrier = threading.Barrier(10)

    def run() -> None:
        barrier.wait()
        seat = take(database, engine_id, stack)
        if seat is not None:
            taken.append(seat)

    threads = [threading.Thread(target=run) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 3
    assert len({seat.fence for seat in taken}) == 3
    assert admission.busy_blocks(database, engine_id) == 3


def test_batch_work_leaves_a_seat_for_people(stack: Stack, database: Database, engine_id: UUID) -> None:
    assert take(database, engine_id, stack, "batch") is not None
    assert take(database, engine_id, stack, "batch") is not None
    assert take(database, engine_id, stack, "batch") is None
    assert take(database, engine_id, stack, "interactive") is not None


@pytest.mark.parametrize(("slots", "reserved"), [(1, 0), (2, 1), (3, 1), (8, 1), (20, 3), (100, 15)])
def test_reserved_share(slots: int, reserved: int) -> None:
    assert admission.reserved_blocks(slots) == reserved


def test_a_dead_holders_lease_ends_by_itself(stack: Stack, database: Database, engine_id: UUID) -> None:
    seats = [take(database, engine_id, stack) for _ in range(3)]
    assert take(database, engine_id, stack) is None
    first = seats[0]
    assert first is not None
    with database.platform() as work:
        work.session.execute(
            text("update engine_leases set lease_until = now() - interval '1 s' where id = :id"), {"id": first.lease_id}
        )
    assert take(database, engine_id, stack) is not None
    assert admission.renew(database, first) is False, "the old holder hears that its lease is gone"


def test_a_seat_is_given_back_on_error_and_a_full_engine_is_a_typed_error(
    stack: Stack, database: Database, engine_id: UUID
) -> None:
    def held() -> None:
        with admission.seat(
            database, engine_id, tenant_id=stack.owner.tenant_id, lane="interactive", holder="t", wait_s=1, blocks=3
        ):
            with (
                pytest.raises(UnavailableError) as caught,
                admission.seat(
                    database, engine_id, tenant_id=stack.owner.tenant_id, lane="interactive", holder="u", wait_s=0.2
                ),
            ):
                pass
            assert caught.value.code == "engine_busy"
            raise RuntimeError("the work failed")

    with pytest.raises(RuntimeError):
        held()
    assert admission.busy_blocks(database, engine_id) == 0
