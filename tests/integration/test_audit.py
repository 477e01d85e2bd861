"""The audit trail: one unbroken chain per tenant, written with what it reports, for every route that writes."""

import threading
from collections.abc import Callable, Iterator
from uuid import UUID

import psycopg
import pytest
from psycopg import errors

from app.audit import events
from app.core.db import Database
from app.core.ids import new_id
from app.identity.permissions import Role
from tests.support.doors import checksums, door, rows, value
from tests.support.foreign import Clients, add_person
from tests.support.planted import Planted, plant
from tests.support.routes import BODIES, Call, Operation, operations
from tests.support.stack import Stack


@pytest.fixture(scope="module")
def database(stack: Stack) -> Iterator[Database]:
    """The product's own database scopes."""
    made = stack.database()
    yield made
    made.dispose()


def _tenant(stack: Stack) -> UUID:
    """A bare tenant with an empty chain."""
    tenant = new_id()
    with door(stack, "fullread_owner") as connection:
        connection.execute("insert into tenants (id, name) values (%s, 'audited')", (tenant,))
        connection.commit()
    return tenant


def _append(database: Database, tenant: UUID, times: int) -> list[int]:
    numbers = []
    for turn in range(times):
        with database.tenant(tenant) as uow:
            numbers.append(events.append(uow, "user:test", "thing.done", "thing", new_id(), turn=turn, word="ça va"))
    return numbers


def _first_broken(database: Database, tenant: UUID) -> int | None:
    with database.tenant(tenant) as uow:
        return events.first_broken(uow)


def test_events_are_numbered_and_chained_per_tenant(stack: Stack, database: Database) -> None:
    one, two = _tenant(stack), _tenant(stack)
    assert _append(database, one, 3) == [1, 2, 3]
    assert _append(database, two, 2) == [1, 2]
    assert _append(database, one, 1) == [4]
    assert _first_broken(database, one) is None
    assert _first_broken(database, two) is None
    with database.tenant(one) as uow:
        newest = events.recent(uow, before_seq=None, limit=2)
        assert [event.seq for event in newest] == [4, 3]
        assert newest[0].detail == {"turn": 0, "word": "ça va"}
        assert [event.seq for event in events.recent(uow, before_seq=3, limit=9)] == [2, 1]


def test_what_is_rolled_back_leaves_no_event_and_no_gap(stack: Stack, database: Database) -> None:
    tenant = _tenant(stack)
    _append(database, tenant, 1)

    def fail() -> None:
        with database.tenant(tenant) as uow:
            assert events.append(uow, "user:test", "thing.done", "thing", new_id()) == 2
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert _append(database, tenant, 1) == [2]
    assert _first_broken(database, tenant) is None


def test_events_at_the_same_moment_do_not_fork_the_chain(stack: Stack, database: Database) -> None:
    tenant = _tenant(stack)
    numbers: list[int] = []
    gate = threading.Barrier(4)

    def work() -> None:
        gate.wait()
        numbers.extend(_append(database, tenant, 8))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 33))
    assert _first_broken(database, tenant) is None


def test_an_event_without_a_tenant_is_refused(stack: Stack) -> None:
    with door(stack, "fullread_app") as connection, pytest.raises(errors.RaiseException, match="no tenant is set"):
        connection.execute("select append_audit_event('a', 'b', 'c', 'd', 'e', 'f', '{}')")


def test_a_temporary_table_takes_no_place_in_the_chain(stack: Stack, database: Database) -> None:
    """As the owner, who may make temporary tables: the function must still write to the real one."""
    tenant = _tenant(stack)
    with door(stack, "fullread_owner", tenant=tenant) as connection:
        connection.execute("create temporary table audit_events (like public.audit_events)")
        assert value(connection, "select append_audit_event('a', 'b', 'c', 'd', 'e', 'f', '{}')") == 1
        assert value(connection, "select count(*) from pg_temp.audit_events") == 0
        assert value(connection, "select count(*) from public.audit_events where tenant_id = %s", tenant) == 1


_REHASH = (
    "update audit_events set hash = sha256(prev_hash || convert_to(json_build_array(tenant_id, seq,"
    " extract(epoch from at)::text, actor, action, object_type, object_id, outcome, request_id, detail)::text, 'UTF8'))"
    " where tenant_id = %s and seq = 3"
)


def _change(column: str, expression: str) -> Callable[[psycopg.Connection, UUID], None]:
    def tamper(connection: psycopg.Connection, tenant: UUID) -> None:
        statement = f"update audit_events set {column} = {expression} where tenant_id = %s and seq = 3"
        assert connection.execute(statement.encode(), (tenant,)).rowcount == 1

    return tamper


def _change_and_hash_again(connection: psycopg.Connection, tenant: UUID) -> None:
    _change("detail", "'{}'")(connection, tenant)
    connection.execute(_REHASH, (tenant,))


def _cut(number: int) -> Callable[[psycopg.Connection, UUID], None]:
    def tamper(connection: psycopg.Connection, tenant: UUID) -> None:
        connection.execute("delete from audit_events where tenant_id = %s and seq = %s", (tenant, number))

    return tamper


def _cut_and_close_the_gap(connection: psycopg.Connection, tenant: UUID) -> None:
    _cut(3)(connection, tenant)
    for number in (4, 5):
        connection.execute("update audit_events set seq = seq - 1 where tenant_id = %s and seq = %s", (tenant, number))


def _swap(connection: psycopg.Connection, tenant: UUID) -> None:
    for before, after in ((3, 99), (4, 3), (99, 4)):
        connection.execute(
            "update audit_events set seq = %s where tenant_id = %s and seq = %s", (after, tenant, before)
        )


def _forge(connection: psycopg.Connection, tenant: UUID) -> None:
    connection.execute(
        "insert into audit_events select tenant_id, 6, at, actor, action, object_type, object_id, outcome, request_id,"
        " detail, prev_hash, hash from audit_events where tenant_id = %s and seq = 5",
        (tenant,),
    )


@pytest.mark.parametrize(
    ("tamper", "first"),
    [
        pytest.param(_change("detail", "'{\"forged\": true}'"), 3, id="detail"),
        pytest.param(_change("actor", "'user:somebody-else'"), 3, id="actor"),
        pytest.param(_change("action", "'thing.undone'"), 3, id="action"),
        pytest.param(_change("object_id", "'another'"), 3, id="object"),
        pytest.param(_change("outcome", "'refused'"), 3, id="outcome"),
        pytest.param(_change("request_id", "'another'"), 3, id="request"),
        pytest.param(_change("at", "at - interval '1 microsecond'"), 3, id="time"),
        pytest.param(_change("hash", "sha256('x')"), 3, id="hash"),
        pytest.param(_change("prev_hash", "sha256('x')"), 3, id="link"),
        pytest.param(_change_and_hash_again, 4, id="with a fitting hash"),
        pytest.param(_cut(3), 4, id="cut out"),
        pytest.param(_cut(1), 2, id="cut at the start"),
        pytest.param(_cut_and_close_the_gap, 3, id="cut out and renumbered"),
        pytest.param(_swap, 3, id="order"),
        pytest.param(_forge, 6, id="forged"),
    ],
)
def test_what_the_owner_changes_is_found(
    stack: Stack, database: Database, tamper: Callable[[psycopg.Connection, UUID], None], first: int
) -> None:
    tenant = _tenant(stack)
    _append(database, tenant, 5)
    assert _first_broken(database, tenant) is None
    with door(stack, "fullread_owner") as connection:
        tamper(connection, tenant)
        connection.commit()
    assert _first_broken(database, tenant) == first


# --- every route that writes ----------------------------------------------------------------------------------------


@pytest.fixture
def planted(stack: Stack) -> Planted:
    """A fresh tenant with one object of each kind."""
    with door(stack, "fullread_owner") as connection:
        made = plant(connection, "audited")
        connection.commit()
    return made


@pytest.fixture(scope="module")
def clients(stack: Stack) -> Iterator[Clients]:
    """Open connections by key."""
    made = Clients(stack)
    yield made
    made.close()


def _writers(stack: Stack) -> list[Operation]:
    """Operations that write, in an order in which each succeeds: what deletes comes last, the collection at the end."""
    found = [o for o in operations(stack.settings) if o.writes]
    order = {"DELETE /api/v1/collections/{collection_id}": 2, "POST /api/v1/logout": 0}
    return sorted(found, key=lambda o: order.get(str(o), 1 if o.method == "DELETE" else 0))


def _ready(stack: Stack, planted: Planted, operation: Operation) -> None:
    """Bring document and job into a state in which the operation is allowed."""
    state = "failed" if operation.path.endswith("/retry") else "received"
    with door(stack, "fullread_owner") as connection:
        connection.execute("update document_versions set state = %s where id = %s", (state, planted.version))
        connection.execute(
            "update jobs set state = 'queued', finished_at = null, cancel_requested_at = null where id = %s",
            (planted.job,),
        )
        connection.execute("update api_keys set revoked_at = null where id = %s", (planted.key,))
        connection.commit()


def _values(planted: Planted) -> dict[str, str]:
    return {
        "answer_id": str(planted.answer),
        "collection_id": str(planted.collection),
        "document_id": str(planted.document),
        "job_id": str(planted.job),
        "key_id": str(planted.key),
        "user_id": str(planted.user),
    }


def _send(
    stack: Stack, clients: Clients, planted: Planted, operation: Operation, key: str, email: str, password: str
) -> tuple[int, str]:
    """Make the request that succeeds. Returns the status and the request's id."""
    _ready(stack, planted, operation)
    values = _values(planted)
    body = BODIES.get(str(operation))
    if str(operation) == "POST /api/v1/login":
        key, body = "", {"email": email, "password": password}
    if str(operation) == "POST /api/v1/logout":
        signed_in = clients.of("").post("/api/v1/login", json={"email": email, "password": password})
        key = signed_in.json().get("token", key)
    call = Call(operation, {name: values[name] for name in operation.path_ids}, body=body)
    answer = call.send(clients.of(key))
    return answer.status_code, answer.headers["x-request-id"]


def _person_with_password(stack: Stack, tenant: UUID) -> tuple[str, str, str]:
    """An owner's key, e-mail address and password."""
    key = add_person(stack, tenant, Role.OWNER).key
    email, password = f"{new_id()}@audit.example", f"password {new_id()}"
    with stack.client(key) as client:
        made = client.post("/api/v1/users", json={"email": email, "password": password, "role": "editor"})
        assert made.status_code == 201, made.text
    return key, email, password


def test_every_route_that_writes_is_audited(stack: Stack, clients: Clients, planted: Planted) -> None:
    key, email, password = _person_with_password(stack, planted.tenant)
    silent = {}
    for operation in _writers(stack):
        status, request_id = _send(stack, clients, planted, operation, key, email, password)
        with door(stack, "fullread_owner") as connection:
            found = rows(
                connection,
                "select action, actor from audit_events where tenant_id = %s and request_id = %s",
                planted.tenant,
                request_id,
            )
        if status not in (200, 201, 202, 204) or not found or not found[0][1].startswith(("key:", "user:")):
            silent[str(operation)] = (status, found)
    assert silent == {}


def test_what_can_not_be_audited_does_not_happen(stack: Stack, clients: Clients, planted: Planted) -> None:
    """With the audit function out of reach every writing route fails, says nothing of why, and changes no row."""
    key, email, password = _person_with_password(stack, planted.tenant)
    signature = "append_audit_event(text, text, text, text, text, text, text)"
    wrong = {}
    with stack.client("") as client:
        session = client.post("/api/v1/login", json={"email": email, "password": password}).json()["token"]
    with door(stack, "fullread_owner") as connection:
        connection.execute(f"revoke execute on function {signature} from fullread_app".encode())
        connection.commit()
    try:
        for operation in _writers(stack):
            _ready(stack, planted, operation)
            before = checksums(stack, planted.tenant)
            used = session if operation.path.endswith("/logout") else key
            status, _ = _send(stack, clients, planted, operation, used, email, password)
            changed = [table for table, digest in checksums(stack, planted.tenant).items() if before[table] != digest]
            if status != 500 or changed:
                wrong[str(operation)] = (status, changed)
    finally:
        with door(stack, "fullread_owner") as connection:
            connection.execute(f"grant execute on function {signature} to fullread_app".encode())
            connection.commit()
    assert wrong == {}


def test_events_hold_ids_and_no_texts(stack: Stack, planted: Planted) -> None:
    """Names, addresses and questions stay out of the chain, so that erasing a person does not break it."""
    key, email, password = _person_with_password(stack, planted.tenant)
    with stack.client(key) as client:
        collection = f"/api/v1/collections/{planted.collection}"
        client.post(f"{collection}/answers", json={"question": f"Where is {planted.word}?"})
        client.patch(collection, json={"name": f"new {planted.word}"})
        client.post(f"{collection}/documents", files={"file": (f"{planted.word}.txt", planted.word.encode())})
        client.post("/api/v1/login", json={"email": email, "password": password})
        trail = client.get("/api/v1/audit", params={"limit": 200}).text
    assert "answer.record" in trail
    assert "document.upload" in trail
    for text in (planted.word, email, password, key):
        assert text not in trail
