"""What each role, grant and scope of a key may do, generated from the route table; and rights that end at once."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import httpx
import pytest

from app.identity.permissions import Role, Scope
from tests.support import stack as stacks
from tests.support.doors import checksums, door
from tests.support.foreign import Clients, Person, add_person, grant
from tests.support.planted import Planted, plant
from tests.support.routes import OPEN_ROUTES, Call, Operation, operations
from tests.support.stack import Stack

#: What a caller needs for each operation; a new operation must say so here. "self": every signed-in caller.
NEEDS = {
    "POST /api/v1/logout": "self",
    "GET /api/v1/me": "self",
    "GET /api/v1/users": "admin",
    "POST /api/v1/users": "admin",
    "PATCH /api/v1/users/{user_id}": "admin",
    "GET /api/v1/api-keys": "keys",
    "POST /api/v1/api-keys": "keys",
    "DELETE /api/v1/api-keys/{key_id}": "keys",
    "GET /api/v1/collections": "read",
    "POST /api/v1/collections": "write",
    "GET /api/v1/collections/{collection_id}": "read",
    "PATCH /api/v1/collections/{collection_id}": "write",
    "DELETE /api/v1/collections/{collection_id}": "write",
    "GET /api/v1/collections/{collection_id}/status": "read",
    "GET /api/v1/collections/{collection_id}/grants": "grants",
    "PUT /api/v1/collections/{collection_id}/grants/{user_id}": "grants",
    "DELETE /api/v1/collections/{collection_id}/grants/{user_id}": "grants",
    "POST /api/v1/collections/{collection_id}/search": "read",
    "POST /api/v1/collections/{collection_id}/answers": "read",
    "GET /api/v1/collections/{collection_id}/documents": "read",
    "POST /api/v1/collections/{collection_id}/documents": "write",
    "GET /api/v1/documents/{document_id}": "read",
    "DELETE /api/v1/documents/{document_id}": "write",
    "POST /api/v1/documents/{document_id}/retry": "write",
    "POST /api/v1/documents/{document_id}/cancel": "write",
    "GET /api/v1/documents/{document_id}/versions": "read",
    "GET /api/v1/documents/{document_id}/pages": "read",
    "GET /api/v1/documents/{document_id}/pages/{number}": "read",
    "GET /api/v1/documents/{document_id}/original": "read",
    "GET /api/v1/jobs": "read",
    "GET /api/v1/jobs/{job_id}": "read",
    "POST /api/v1/jobs/{job_id}/cancel": "write",
    "GET /api/v1/jobs/{job_id}/events": "read",
    "GET /api/v1/answers": "read",
    "GET /api/v1/answers/{answer_id}": "read",
    "POST /api/v1/answers/{answer_id}/again": "read",
    "GET /api/v1/bi/documents": "read",
    "GET /api/v1/bi/answers": "read",
    "GET /api/v1/bi/citations": "read",
    "GET /api/v1/bi/usage": "read",
    "GET /api/v1/engines": "read",
    "GET /api/v1/audit": "admin",
}
#: Which needs a caller covers, by role with a grant (of the second role) on the collection.
COVERED = {
    ("owner", None): {"self", "read", "write", "grants", "keys", "admin"},
    ("admin", None): {"self", "read", "write", "grants", "keys", "admin"},
    ("editor", "editor"): {"self", "read", "write", "grants", "keys"},
    ("editor", "viewer"): {"self", "read", "keys"},
    ("reviewer", "editor"): {"self", "read", "keys"},
    ("viewer", "editor"): {"self", "read", "keys"},
    ("viewer", "viewer"): {"self", "read", "keys"},
}
#: The same by the only scope of an owner's key.
SCOPED = {"read": {"self", "read"}, "write": {"self", "write"}, "admin": {"self", "grants", "keys", "admin"}}
#: A tenant-wide editor makes collections, whatever its grant on one of them is.
BEYOND_GRANTS = {("editor", "viewer"): {"POST /api/v1/collections"}}


@dataclass(frozen=True, slots=True)
class Ground:
    """A tenant with one object of each kind, and its owner."""

    planted: Planted
    owner: Person
    clients: Clients

    @property
    def collection(self) -> str:
        """Address of the collection."""
        return f"/api/v1/collections/{self.planted.collection}"

    def person(self, stack: Stack, role: Role, granted: Role | None) -> httpx.Client:
        """A new person's client."""
        person = add_person(stack, self.planted.tenant, role)
        if granted is not None:
            grant(self.clients.of(self.owner.key), str(self.planted.collection), person.user_id, granted)
        return self.clients.of(person.key)


@pytest.fixture(scope="module")
def ground(stack: Stack) -> Iterator[Ground]:
    """The tenant of this module."""
    with door(stack, "fullread_owner") as connection:
        planted = plant(connection, "roles")
        connection.commit()
    clients = Clients(stack)
    yield Ground(planted, add_person(stack, planted.tenant, Role.OWNER), clients)
    clients.close()


def _call(operation: Operation, planted: Planted) -> Call:
    values = {
        "collection_id": planted.collection,
        "document_id": planted.document,
        "job_id": planted.job,
        "answer_id": planted.answer,
        "key_id": planted.key,
        "user_id": planted.user,
    }
    return Call(operation, {name: str(values[name]) for name in operation.path_ids})


def test_every_operation_says_what_it_needs(stack: Stack) -> None:
    assert {str(o) for o in operations(stack.settings)} - OPEN_ROUTES == set(NEEDS)


@pytest.mark.parametrize(("role", "granted"), [k for k in COVERED if k[1] is not None])
def test_what_a_role_does_not_cover_is_refused(stack: Stack, ground: Ground, role: str, granted: str) -> None:
    client = ground.person(stack, Role(role), Role(granted))
    covered = COVERED[role, granted]
    before = checksums(stack, ground.planted.tenant)
    wrong = {}
    for operation in operations(stack.settings):
        need = NEEDS.get(str(operation), "")
        beyond = str(operation) in BEYOND_GRANTS.get((role, granted), ())
        if not need or need in covered or beyond:
            continue
        answer = _call(operation, ground.planted).send(client)
        if answer.status_code != 403 or answer.json()["code"] != "role_forbids":
            wrong[str(operation)] = answer.status_code
    assert wrong == {}
    assert checksums(stack, ground.planted.tenant) == before


@pytest.mark.parametrize(("role", "granted"), list(COVERED))
def test_what_a_role_covers_is_allowed_to_read(stack: Stack, ground: Ground, role: str, granted: str | None) -> None:
    client = ground.person(stack, Role(role), Role(granted) if granted else None)
    wrong = {}
    for operation in operations(stack.settings):
        need = NEEDS.get(str(operation), "")
        # Somebody else's answer and a file that was never stored are not found for reasons of their own.
        if operation.method != "GET" or need not in COVERED[role, granted] or "{answer_id}" in operation.path:
            continue
        expected = 404 if operation.path.endswith("/original") else 200
        answer = _call(operation, ground.planted).send(client)
        if answer.status_code != expected:
            wrong[str(operation)] = (answer.status_code, answer.text)
    assert wrong == {}


@pytest.mark.parametrize("scope", list(Scope))
def test_a_key_does_no_more_than_its_scopes(stack: Stack, ground: Ground, scope: Scope) -> None:
    person = add_person(stack, ground.planted.tenant, Role.OWNER, scopes=frozenset({scope}))
    client = ground.clients.of(person.key)
    before = checksums(stack, ground.planted.tenant)
    wrong = {}
    for operation in operations(stack.settings):
        need = NEEDS.get(str(operation), "")
        if not need or need in SCOPED[scope]:
            continue
        answer = _call(operation, ground.planted).send(client)
        if answer.status_code != 403 or answer.json()["code"] != "scope_forbids":
            wrong[str(operation)] = answer.status_code
    assert wrong == {}
    assert checksums(stack, ground.planted.tenant) == before
    assert client.get("/api/v1/me").json()["scopes"] == [scope.value]


def test_a_key_makes_no_wider_key(stack: Stack, ground: Ground) -> None:
    person = add_person(stack, ground.planted.tenant, Role.OWNER, scopes=frozenset({Scope.ADMIN}))
    client = ground.clients.of(person.key)
    for scopes in (["read"], ["admin", "write"]):
        answer = client.post("/api/v1/api-keys", json={"name": "wider", "scopes": scopes})
        assert answer.json()["code"] == "scopes_wider", scopes


def test_an_editor_writes_where_it_is_granted_and_nowhere_else(stack: Stack, ground: Ground) -> None:
    owner, editor = ground.clients.of(ground.owner.key), ground.person(stack, Role.EDITOR, Role.EDITOR)
    other = stacks.new_collection(owner, f"other {uuid4()}")
    content = {"file": ("written.txt", f"written {uuid4()}".encode())}
    assert editor.post(f"{ground.collection}/documents", files=content).status_code == 202
    assert editor.patch(ground.collection, json={"description": "edited"}).status_code == 200
    assert editor.post(f"/api/v1/collections/{other}/documents", files=content).status_code == 404
    made = editor.post("/api/v1/collections", json={"name": f"own {uuid4()}"})
    assert made.json()["role"] == "editor"
    assert editor.delete(f"/api/v1/collections/{made.json()['id']}").status_code == 202
    seen = {item["id"] for item in editor.get("/api/v1/collections").json()["items"]}
    assert seen == {str(ground.planted.collection)}


def test_a_grant_ends_with_the_next_request(stack: Stack, ground: Ground) -> None:
    owner = ground.clients.of(ground.owner.key)
    person = add_person(stack, ground.planted.tenant, Role.EDITOR)
    client = ground.clients.of(person.key)
    address = f"{ground.collection}/grants/{person.user_id}"
    assert client.get(ground.collection).status_code == 404
    assert owner.put(address, json={"role": "editor"}).status_code == 204
    assert client.patch(ground.collection, json={"description": "mine"}).status_code == 200
    assert owner.put(address, json={"role": "viewer"}).status_code == 204
    assert client.patch(ground.collection, json={"description": "mine"}).status_code == 403
    assert client.get(f"/api/v1/documents/{ground.planted.document}").status_code == 200
    assert owner.delete(address).status_code == 204
    for path in (ground.collection, f"/api/v1/documents/{ground.planted.document}", f"{ground.collection}/status"):
        assert client.get(path).status_code == 404, path
    assert client.post(f"{ground.collection}/search", json={"query": "notice"}).status_code == 404
    assert client.get("/api/v1/jobs").json()["items"] == []
    assert owner.delete(address).status_code == 404


def test_an_answer_belongs_to_who_asked(stack: Stack, ground: Ground) -> None:
    """A grant on the collection shows its documents, not what others asked about them."""
    reader, admin = ground.person(stack, Role.EDITOR, Role.EDITOR), ground.person(stack, Role.ADMIN, None)
    path = f"/api/v1/answers/{ground.planted.answer}"
    refused, random = reader.get(path), reader.get(f"/api/v1/answers/{uuid4()}")
    assert refused.status_code == random.status_code == 404
    assert {**refused.json(), "request_id": ""} == {**random.json(), "request_id": ""}
    assert ground.planted.word not in reader.get("/api/v1/answers").text
    assert admin.get(path).json()["question"] == ground.planted.word


def test_no_grant_is_higher_than_editor(stack: Stack, ground: Ground) -> None:
    owner = ground.clients.of(ground.owner.key)
    for role in ("owner", "admin", "god", ""):
        answer = owner.put(f"{ground.collection}/grants/{ground.planted.user}", json={"role": role})
        assert answer.status_code == 422, role


def test_a_disabled_user_is_out_at_once_and_its_keys_stay_dead(stack: Stack, ground: Ground) -> None:
    owner = ground.clients.of(ground.owner.key)
    email, password = f"{uuid4()}@roles.example", f"password {uuid4()}"
    made = owner.post("/api/v1/users", json={"email": email, "password": password, "role": "viewer"}).json()
    login = {"email": email, "password": password}
    with stack.client("") as nobody:
        session = nobody.post("/api/v1/login", json=login).json()["token"]
        signed_in = ground.clients.of(session)
        token = signed_in.post("/api/v1/api-keys", json={"name": "k", "scopes": ["read"]}).json()["token"]
        keyed = ground.clients.of(token)
        assert (signed_in.get("/api/v1/me").status_code, keyed.get("/api/v1/me").status_code) == (200, 200)
        user = f"/api/v1/users/{made['id']}"
        assert owner.patch(user, json={"disabled": True}).status_code == 200
        assert (signed_in.get("/api/v1/me").status_code, keyed.get("/api/v1/me").status_code) == (401, 401)
        refused = nobody.post("/api/v1/login", json=login)
        assert (refused.status_code, refused.json()["code"]) == (401, "bad_credentials")
        assert owner.patch(user, json={"disabled": False}).status_code == 200
        assert (signed_in.get("/api/v1/me").status_code, keyed.get("/api/v1/me").status_code) == (401, 401)
        assert nobody.post("/api/v1/login", json=login).status_code == 200


def test_a_new_password_and_a_lower_role_work_at_once(stack: Stack, ground: Ground) -> None:
    owner = ground.clients.of(ground.owner.key)
    email, password = f"{uuid4()}@roles.example", f"password {uuid4()}"
    made = owner.post("/api/v1/users", json={"email": email, "password": password, "role": "admin"}).json()
    user = f"/api/v1/users/{made['id']}"
    with stack.client("") as nobody:
        session = nobody.post("/api/v1/login", json={"email": email, "password": password}).json()["token"]
        signed_in = ground.clients.of(session)
        assert signed_in.get("/api/v1/audit").status_code == 200
        assert owner.patch(user, json={"role": "viewer"}).status_code == 200
        assert signed_in.get("/api/v1/audit").status_code == 403
        assert owner.patch(user, json={"password": f"another {password}"}).status_code == 200
        assert signed_in.get("/api/v1/me").status_code == 401
        assert nobody.post("/api/v1/login", json={"email": email, "password": password}).status_code == 401


def test_sign_out_ends_the_session_and_no_other(stack: Stack, ground: Ground) -> None:
    owner = ground.clients.of(ground.owner.key)
    login = {"email": f"{uuid4()}@roles.example", "password": f"password {uuid4()}"}
    assert owner.post("/api/v1/users", json={**login, "role": "viewer"}).status_code == 201
    with stack.client("") as nobody:
        one, two = (ground.clients.of(nobody.post("/api/v1/login", json=login).json()["token"]) for _ in range(2))
    assert one.post("/api/v1/logout").status_code == 204
    assert one.get("/api/v1/me").status_code == 401
    assert two.get("/api/v1/me").status_code == 200
    assert owner.post("/api/v1/logout").status_code == 422


def test_an_admin_neither_makes_nor_touches_an_owner(stack: Stack, ground: Ground) -> None:
    admin = ground.person(stack, Role.ADMIN, None)
    other = add_person(stack, ground.planted.tenant, Role.ADMIN)
    before = checksums(stack, ground.planted.tenant)["users"]
    login = {"email": f"{uuid4()}@roles.example", "password": "a long enough password"}
    owner = f"/api/v1/users/{ground.owner.user_id}"
    refused = [
        admin.post("/api/v1/users", json={**login, "role": "owner"}),
        admin.patch(f"/api/v1/users/{other.user_id}", json={"role": "owner"}),
        *(admin.patch(owner, json=body) for body in ({"role": "viewer"}, {"disabled": True}, {"password": "x" * 12})),
    ]
    assert [answer.status_code in (403, 422) for answer in refused] == [True] * 5
    assert checksums(stack, ground.planted.tenant)["users"] == before


def test_the_last_owner_stays(stack: Stack) -> None:
    account = stack.new_tenant(f"last-{uuid4()}")
    with stack.client(account.api_key) as client:
        me = f"/api/v1/users/{client.get('/api/v1/me').json()['user_id']}"
        for change in ({"role": "admin"}, {"disabled": True}):
            assert client.patch(me, json=change).json()["code"] == "last_owner", change
        assert client.get("/api/v1/me").json()["role"] == "owner"


def test_two_owners_do_not_demote_each_other(stack: Stack) -> None:
    """At the same moment each sees the other as the one who stays: without a lock nobody would."""
    for _ in range(3):
        account = stack.new_tenant(f"race-{uuid4()}")
        with door(stack, "fullread_owner") as connection:
            found = connection.execute("select id from users where tenant_id = %s", (account.tenant_id,)).fetchall()
        second = add_person(stack, account.tenant_id, Role.OWNER)
        gate = threading.Barrier(2)
        results: list[int] = []

        def demote(key: str, user_id: str, gate: threading.Barrier = gate, results: list[int] = results) -> None:
            with stack.client(key) as client:
                gate.wait()
                results.append(client.patch(f"/api/v1/users/{user_id}", json={"role": "viewer"}).status_code)

        threads = [
            threading.Thread(target=demote, args=(account.api_key, second.user_id)),
            threading.Thread(target=demote, args=(second.key, str(found[0][0]))),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with door(stack, "fullread_owner") as connection:
            left = connection.execute(
                "select count(*) from users where tenant_id = %s and role = 'owner'", (account.tenant_id,)
            ).fetchall()
        assert left[0][0] == 1, results
