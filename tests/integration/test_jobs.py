"""The job state machine on the real database: claims, fences, leases, set-backs, the sweeper, fairness."""

import threading
import time
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from app.core.db import Database
from app.core.errors import FenceLostError, FullreadError, UnavailableError
from app.jobs import claims, rows, sweep
from app.jobs.claims import Claim, JobCancelledError, Lease
from app.jobs.tables import Job
from tests.support.stack import Account, Stack

QUEUE = "test-queue"  # no worker of the stack consumes it: these tests are the workers


@pytest.fixture(scope="module")
def database(stack: Stack) -> Iterator[Database]:
    made = stack.database()
    yield made
    made.dispose()


@pytest.fixture(autouse=True)
def leader(database: Database) -> Iterator[None]:
    """These tests sweep themselves: while they hold the leader's lock, the stack's sweeper stands still."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with sweep.leadership(database) as held:
            if held:
                yield
                return
        time.sleep(0.02)
    pytest.fail("never became the leader")


def enqueue(database: Database, tenant_id: UUID, queue: str = QUEUE) -> UUID:
    with database.tenant(tenant_id) as uow:
        return rows.enqueue(uow, kind="test", queue=queue).id


def state_of(database: Database, tenant_id: UUID, job_id: UUID) -> Job:
    with database.tenant(tenant_id) as uow:
        found = rows.find(uow, job_id)
    assert found is not None
    return found


def take(database: Database, job_id: UUID, lease_s: float = 30) -> Claim:
    claim = claims.claim(database, job_id, holder="test", lease_s=lease_s)
    assert claim is not None
    return claim


def expire(database: Database, job_id: UUID) -> None:
    with database.platform() as work:
        work.session.execute(
            text("update jobs set lease_until = now() - interval '1 second' where id = :id"), {"id": job_id}
        )


def test_of_many_claimers_one_wins(stack: Stack, database: Database) -> None:
    job_id = enqueue(database, stack.owner.tenant_id)
    won: list[Claim] = []
    barrier = threading.Barrier(8)

    def run() -> None:
        barrier.wait()
        claim = claims.claim(database, job_id, holder="racer", lease_s=30)
        if claim is not None:
            won.append(claim)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert won[0].fence == 1


def test_a_holder_that_lost_its_lease_loses_its_writes(stack: Stack, database: Database) -> None:
    job_id = enqueue(database, stack.owner.tenant_id)
    old = take(database, job_id)
    expire(database, job_id)
    assert sweep.take_back_expired(database, max_attempts=5) == []
    new = take(database, job_id)
    assert new.fence > old.fence
    stale = Lease(database, old, 30)
    with pytest.raises(FenceLostError), stale.unit():
        pass
    with pytest.raises(FenceLostError), database.tenant(stack.owner.tenant_id) as uow:
        claims.finish(uow, old, "succeeded")
    with database.tenant(stack.owner.tenant_id) as uow:
        claims.finish(uow, new, "succeeded")
    assert state_of(database, stack.owner.tenant_id, job_id).state == "succeeded"


def test_nobody_reclaims_while_a_unit_commits(stack: Stack, database: Database) -> None:
    job_id = enqueue(database, stack.owner.tenant_id)
    claim = take(database, job_id)
    lease = Lease(database, claim, 30)
    taken_back = threading.Event()

    def sweeper() -> None:
        with database.platform() as work:
            work.session.execute(text("update jobs set fence = fence + 1 where id = :id"), {"id": job_id})
        taken_back.set()

    with lease.unit() as uow:
        thread = threading.Thread(target=sweeper)
        thread.start()
        assert not taken_back.wait(0.5), "the row was changed under an open unit of work"
        rows.record(uow, job_id, "worked")
    thread.join(timeout=10)
    assert taken_back.is_set()
    with pytest.raises(FenceLostError), lease.unit():
        pass


def test_the_lease_is_kept_alive_and_hears_of_a_cancel(stack: Stack, database: Database) -> None:
    job_id = enqueue(database, stack.owner.tenant_id)
    claim = take(database, job_id, lease_s=2)
    with Lease(database, claim, 2) as lease:
        time.sleep(3.5)
        lease.check()  # longer than the lease: it was renewed
        with database.tenant(stack.owner.tenant_id) as uow:
            job = rows.find(uow, job_id)
            assert job is not None
            assert rows.request_cancel(uow, job) is False
        time.sleep(2.5)
        with pytest.raises(JobCancelledError):
            lease.check()


def test_cancelling_a_queued_job_ends_it(stack: Stack, database: Database) -> None:
    job_id = enqueue(database, stack.owner.tenant_id)
    with database.tenant(stack.owner.tenant_id) as uow:
        job = rows.find(uow, job_id)
        assert job is not None
        assert rows.request_cancel(uow, job) is True
    assert claims.claim(database, job_id, holder="late", lease_s=5) is None
    assert state_of(database, stack.owner.tenant_id, job_id).state == "cancelled"


def test_a_service_that_is_away_uses_up_no_attempt(stack: Stack, database: Database) -> None:
    job_id = enqueue(database, stack.owner.tenant_id)
    claim = take(database, job_id)
    away = UnavailableError("engine_busy", "busy")
    assert claims.set_back(database, claim, away, counts_as_attempt=False)
    job = state_of(database, stack.owner.tenant_id, job_id)
    assert (job.state, job.attempt, job.setbacks, job.code) == ("queued", 0, 1, "engine_busy")
    assert claims.claim(database, job_id, holder="early", lease_s=5) is None, "it is not due yet"
    time.sleep(0.7)
    again = take(database, job_id)
    assert claims.set_back(database, again, FullreadError("internal", "x"), counts_as_attempt=True)
    assert state_of(database, stack.owner.tenant_id, job_id).attempt == 1


def test_out_of_attempts_is_a_failure_with_a_code(stack: Stack, database: Database) -> None:
    job_id = enqueue(database, stack.owner.tenant_id)
    for turn in range(3):
        take(database, job_id)
        expire(database, job_id)
        dead = sweep.take_back_expired(database, max_attempts=3)
        assert [d.job_id for d in dead] == ([job_id] if turn == 2 else [])
    job = state_of(database, stack.owner.tenant_id, job_id)
    assert (job.state, job.code) == ("failed", "worker_lost")


def test_lost_hints_are_repeated_by_outbox_and_sweeper(stack: Stack, database: Database) -> None:
    queue = f"lost-{uuid4()}"
    job_id = enqueue(database, stack.owner.tenant_id, queue)
    sent: list[tuple[str, UUID | None]] = []

    def send(name: str, hinted: UUID | None) -> bool:
        sent.append((name, hinted))
        return True

    sweep.relay(database, send)
    sweep.repeat_hints(database, send)
    assert (queue, job_id) not in sent, "a fresh job's first hint may still be on its way"
    age(database, job_id, "outbox", "created_at", "job_id")
    sweep.relay(database, send)
    assert sent.count((queue, job_id)) == 1
    sweep.relay(database, send)
    assert sent.count((queue, job_id)) == 1, "the outbox sends once"
    age(database, job_id, "jobs", "created_at", "id")
    sweep.repeat_hints(database, send)
    assert sent.count((queue, job_id)) == 2, "the broker lost it: the sweeper says it again"


def age(database: Database, job_id: UUID, table: str, column: str, key: str) -> None:
    engine = database.platform_engine
    with engine.begin() as connection:
        connection.execute(
            text(f"update {table} set {column} = now() - interval '10 seconds' where {key} = :id"), {"id": job_id}
        )


def test_a_failed_send_keeps_the_outbox_row(stack: Stack, database: Database) -> None:
    job_id = enqueue(database, stack.owner.tenant_id, f"down-{uuid4()}")
    age(database, job_id, "outbox", "created_at", "job_id")
    assert sweep.relay(database, lambda _queue, _job: False) == 0
    with database.platform() as work:
        unsent = text("select count(*) from outbox where job_id = :id and sent_at is null")
        assert work.session.execute(unsent, {"id": job_id}).scalar_one() == 1


def test_one_tenants_many_jobs_do_not_stand_before_anothers_single_one(
    stack: Stack, database: Database, stranger: Account
) -> None:
    queue = f"fair-{uuid4()}"
    for _ in range(20):
        enqueue(database, stack.owner.tenant_id, queue)
    first = claims.claim_next(database, queue, holder="a", lease_s=30)
    assert first is not None
    assert first.tenant_id == stack.owner.tenant_id
    single = enqueue(database, stranger.tenant_id, queue)
    second = claims.claim_next(database, queue, holder="b", lease_s=30)
    assert second is not None
    assert second.job_id == single


def test_only_one_leader_sweeps(database: Database) -> None:
    with sweep.leadership(database) as other:
        assert other is False
