"""What belongs to another tenant, or to a collection without a grant, answers exactly as what does not exist.

Generated from the route table: every operation that takes an id, every role, every place of an id.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import pytest

from app.identity.permissions import Role
from tests.support.doors import checksums, settled
from tests.support.foreign import Clients, Estate, build
from tests.support.routes import BODIES, OPEN_ROUTES, Call, Operation, body_ids, operations, routed
from tests.support.stack import Stack

#: Ids inside bodies, and how each is proved: a new one must be thought about.
BODY_IDS = {
    ("POST /api/v1/login", "tenant"): "test_a_foreign_tenant_in_a_login",
    ("POST /api/v1/collections/{collection_id}/answers", "document_ids"): "test_a_foreign_document_in_a_question",
}
#: Fields that nobody may set (mass assignment); none is a field of a body of ours, except where named here.
FORBIDDEN_FIELDS = (
    "tenant_id", "tenant_", "workspace_id", "owner_id", "user_id", "id", "role_", "created_at", "created_by",
    "updated_at", "deleted_at", "is_admin", "legal_hold", "retention_until", "status", "state", "verified_by",
    "revision", "password_hash", "secret_hash", "collection_id", "document_id",
)  # fmt: skip


@pytest.fixture(scope="module")
def theirs(stack: Stack) -> Estate:
    """Tenant A: whose ids are tried."""
    return build(stack, "theirs", granted=False)


@pytest.fixture(scope="module")
def ours(stack: Stack) -> Estate:
    """Tenant B: who tries."""
    return build(stack, "ours")


@pytest.fixture(scope="module")
def clients(stack: Stack) -> Iterator[Clients]:
    """Open connections by key."""
    made = Clients(stack)
    yield made
    made.close()


@dataclass(frozen=True, slots=True)
class Holdings:
    """Everything that a tenant has, in all stores."""

    rows: dict[str, str]
    points: int
    blobs: frozenset[str]


def holdings(stack: Stack, estate: Estate) -> Holdings:
    """The tenant's rows as checksums, its points, its blobs."""
    settled(stack, estate.tenant)
    points = stack.index().count(str(estate.tenant))
    return Holdings(checksums(stack, estate.tenant), points, frozenset(stack.blobs().digests(estate.tenant)))


def seen(answer: httpx.Response) -> tuple[int, Any, dict[str, str]]:
    """All that a caller can compare: status, body and headers, less what names the request or the moment."""
    headers = {k: v for k, v in answer.headers.items() if k not in ("date", "x-request-id")}
    body = answer.json()
    if isinstance(body, dict):
        body.pop("request_id", None)
    return answer.status_code, body, headers


def test_every_route_is_in_the_document(stack: Stack) -> None:
    assert routed(stack.settings) == {str(o) for o in operations(stack.settings)} | {"GET /api/v1/openapi.json"}


def test_the_running_application_has_these_routes(stack: Stack) -> None:
    with stack.client("") as client:
        paths = client.get("/api/v1/openapi.json").json()["paths"]
    shipped = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert shipped == {str(o) for o in operations(stack.settings)}


def _combinations(operation: Operation) -> list[list[str]]:
    """Which ids are foreign: each alone beside ids of the caller's own, and all at once. Cursors are no objects."""
    names = [name for name in operation.ids if name != "cursor"]
    alone = [[name] for name in names]
    return alone if len(names) < 2 else [*alone, names]


def _call(operation: Operation, estate: Estate | None, strange: dict[str, str], **more: Any) -> Call:
    values = {**(estate.ids if estate else {}), **strange}
    query = {name: values[name] for name, place in operation.ids.items() if place == "query" and name in strange}
    return Call(operation, {name: values[name] for name in operation.path_ids}, query, **more)


def _differences(
    stack: Stack, clients: Clients, theirs: Estate, keys: dict[str, str], own: Estate | None
) -> tuple[list[str], int]:
    """Calls in which their id and a random id are answered differently, or not refused; and how many were tried."""
    found, tried = [], 0
    for operation in operations(stack.settings):
        missing = set(operation.ids) - set(theirs.ids)
        assert not missing, f"{operation}: give {missing} a value in tests/support/foreign.py"
        for names in _combinations(operation):
            if own is None and set(names) != set(operation.path_ids):
                continue  # who owns nothing can not mix own ids with foreign ones
            accepts = ["application/json", "text/event-stream"] if operation.path.endswith("/answers") else ["*/*"]
            for who, key in keys.items():
                for accept in accepts:
                    pair = [
                        seen(_call(operation, own, strange, headers={"accept": accept}).send(clients.of(key)))
                        for strange in (
                            {name: theirs.ids[name] for name in names},
                            {name: str(uuid4()) for name in names},
                        )
                    ]
                    tried += 1
                    # A foreign id that only filters a list of own rows gives the same empty list.
                    filters = operation.method == "GET" and not operation.path_ids
                    # 403 only where the caller sees the thing: its own collection, or that there are users.
                    sees = operation.path.startswith("/api/v1/users") or operation.path_ids[:1] != names[:1]
                    allowed = {403, 404} if sees and who not in ("owner", "admin") else {404}
                    if pair[0] != pair[1] or pair[0][0] not in ({200} if filters else allowed):
                        found.append(f"{operation} {names} as {who}: {pair[0][:2]} / {pair[1][:2]}")
    return found, tried


def test_foreign_ids_are_answered_like_random_ones(
    stack: Stack, clients: Clients, theirs: Estate, ours: Estate
) -> None:
    before = holdings(stack, theirs)
    keys = {role.value: person.key for role, person in ours.people.items()}
    found, tried = _differences(stack, clients, theirs, keys, ours)
    assert found == []
    assert tried >= 100, "the route table gave too few calls to say anything"
    assert holdings(stack, theirs) == before


def test_a_collection_without_a_grant_does_not_exist(stack: Stack, clients: Clients, theirs: Estate) -> None:
    before = holdings(stack, theirs)
    keys = {role.value: theirs.people[role].key for role in (Role.EDITOR, Role.REVIEWER, Role.VIEWER)}
    found, tried = _differences(stack, clients, theirs, keys, None)
    # Users and keys of one's own tenant are no secret objects of a collection: who may not touch them hears 403.
    assert [line for line in found if "/users/" not in line] == []
    assert tried >= 60
    assert holdings(stack, theirs) == before


def test_lists_show_nothing_foreign(stack: Stack, clients: Clients, theirs: Estate, ours: Estate) -> None:
    lists = [o for o in operations(stack.settings) if o.method == "GET" and not o.path_ids]
    assert len(lists) >= 8
    names = {name: value for name, value in theirs.ids.items() if name != "tenant"}
    for operation in lists:
        for role, person in ours.people.items():
            for strange in ({}, {name: theirs.ids[name] for name in operation.ids}):
                text = _call(operation, ours, strange).send(clients.of(person.key)).text
                leaked = [name for name, value in {**names, "word": theirs.word}.items() if value in text]
                assert leaked == [], f"{operation} as {role}"


def test_lists_show_nothing_without_a_grant(stack: Stack, clients: Clients, theirs: Estate) -> None:
    hidden = {name: theirs.ids[name] for name in ("collection_id", "document_id", "job_id", "answer_id", "key_id")}
    for operation in operations(stack.settings):
        if operation.method != "GET" or operation.path_ids:
            continue
        for role in (Role.EDITOR, Role.REVIEWER, Role.VIEWER):
            text = _call(operation, theirs, {}).send(clients.of(theirs.people[role].key)).text
            leaked = [name for name, value in {**hidden, "word": theirs.word}.items() if value in text]
            assert leaked == [], f"{operation} as {role}"


def test_objects_of_ones_own_are_found(stack: Stack, clients: Clients, ours: Estate) -> None:
    """Without this the tests above would also pass for a server that answers 404 to everything."""
    for operation in operations(stack.settings):
        if operation.method != "GET" or not operation.path_ids:
            continue
        for role in (Role.OWNER, Role.ADMIN):
            answer = _call(operation, ours, {}).send(clients.of(ours.people[role].key))
            expected = 404 if "answer" in operation.path and role is Role.VIEWER else 200
            assert answer.status_code == expected, f"{operation} as {role}: {answer.text}"


def test_a_version_of_another_document_is_not_found(stack: Stack, clients: Clients, ours: Estate) -> None:
    """Also inside a tenant an id counts only under its own parent."""
    owner = clients.of(ours.people[Role.OWNER].key)
    other = owner.post("/api/v1/collections", json={"name": f"other {uuid4()}"}).json()["id"]
    made = owner.post(f"/api/v1/collections/{other}/documents", files={"file": ("o.txt", b"other text here")}).json()
    foreign = {"version_id": ours.ids["version_id"]}
    for tail in ("pages", "pages/1", "original"):
        answer = owner.get(f"/api/v1/documents/{made['document']['id']}/{tail}", params=foreign)
        assert answer.status_code == 404, tail


def test_ids_in_bodies_are_known(stack: Stack) -> None:
    found = {(str(o), name) for o in operations(stack.settings) for name in body_ids(o, stack.settings)}
    assert found == set(BODY_IDS), "prove that the new id is resolved through the caller's rights"


def test_a_foreign_tenant_in_a_login(stack: Stack, theirs: Estate, ours: Estate) -> None:
    right = {"email": ours.account.email, "password": ours.account.password}
    with stack.client("") as client:
        answers = [
            seen(client.post("/api/v1/login", json={**right, "tenant": tenant}))
            for tenant in (theirs.ids["tenant"], str(uuid4()))
        ]
        own = client.post("/api/v1/login", json={**right, "tenant": ours.ids["tenant"]})
    assert answers[0] == answers[1]
    assert answers[0][0] == 401
    assert own.status_code == 200


def test_a_foreign_document_in_a_question(clients: Clients, theirs: Estate, ours: Estate) -> None:
    path = f"/api/v1/collections/{ours.ids['collection_id']}/answers"
    for role in (Role.OWNER, Role.VIEWER):
        client = clients.of(ours.people[role].key)
        answers = [
            seen(client.post(path, json={"question": "What does the notice say?", "document_ids": [document]}))
            for document in (theirs.ids["document_id"], str(uuid4()))
        ]
        assert answers[0] == answers[1], role
        assert answers[0][0] in (404, 422), role


def test_no_body_takes_a_field_that_the_caller_may_not_set(stack: Stack, clients: Clients, ours: Estate) -> None:
    owner = clients.of(ours.people[Role.OWNER].key)
    before = holdings(stack, ours)
    accepted, tried = {}, 0
    for operation in operations(stack.settings):
        if operation.body is None or operation.is_form:
            continue
        body = {**BODIES[str(operation)], **dict.fromkeys(FORBIDDEN_FIELDS, ours.ids["tenant"])}
        answer = _call(operation, ours, {}, body=body).send(owner)
        refused = {field["field"] for field in answer.json().get("fields", [])}
        taken = {f"body.{name}" for name in FORBIDDEN_FIELDS} - refused
        tried += 1
        if taken or answer.status_code != 422:
            accepted[str(operation)] = (answer.status_code, taken)
    assert accepted == {}
    assert tried >= 9
    assert holdings(stack, ours) == before


def test_a_form_field_moves_no_upload(stack: Stack, clients: Clients, theirs: Estate, ours: Estate) -> None:
    before = holdings(stack, theirs)
    owner = clients.of(ours.people[Role.OWNER].key)
    answer = owner.post(
        f"/api/v1/collections/{ours.ids['collection_id']}/documents",
        files={"file": ("moved.txt", f"moved {uuid4()}".encode())},
        data={"tenant_id": theirs.ids["tenant"], "collection_id": theirs.ids["collection_id"], "state": "indexed"},
    )
    assert answer.status_code == 202, answer.text
    assert answer.json()["document"]["collection_id"] == ours.ids["collection_id"]
    assert answer.json()["document"]["state"] == "received"
    assert holdings(stack, theirs) == before


def _broken_credentials(key: str) -> dict[str, str]:
    prefix, name, secret = key.split("_", 2)
    flipped = secret[:-1] + ("A" if secret[-1] != "A" else "B")
    return {
        "none": "",
        "scheme only": "Bearer",
        "basic": "Basic b3duZXI6b3duZXI=",
        "no scheme": key,
        "garbage": "Bearer garbage",
        "wrong secret": f"Bearer {prefix}_{name}_{flipped}",
        "no secret": f"Bearer {prefix}_{name}_",
        "cut": f"Bearer {key[:-1]}",
        "longer": f"Bearer {key}A",
        "other kind": f"Bearer frs_{name}_{secret}",
        "unknown kind": f"Bearer adm_{name}_{secret}",
        "strange letters": "Bearer frk_ßµ²_\u00ff",
        "twice": f"Bearer {key} {key}",
        "nul like": f"Bearer {prefix}_{name}_%00",
    }


def test_every_route_asks_for_credentials(stack: Stack, ours: Estate) -> None:
    before = holdings(stack, ours)
    unasked = []
    with stack.client("") as client:
        for operation in operations(stack.settings):
            if str(operation) in OPEN_ROUTES:
                continue
            for name, header in _broken_credentials(ours.people[Role.OWNER].key).items():
                headers = {"authorization": header.encode("latin-1")} if header else {}
                answer = _call(operation, ours, {}, headers=headers).send(client)
                code = answer.json()["code"]
                if answer.status_code != 401 or code not in ("no_credentials", "token_not_valid"):
                    unasked.append(f"{operation} with credentials '{name}': {answer.status_code}")
                # Reporting tools ask a person for name and password only after a challenge that says Basic.
                scheme = "Basic" if operation.path.startswith("/api/v1/bi/") else "Bearer"
                assert answer.headers["www-authenticate"].startswith(scheme), operation
    assert unasked == []
    assert holdings(stack, ours) == before


def test_the_list_of_open_routes_is_no_longer_than_it_must_be(stack: Stack) -> None:
    assert routed(stack.settings) >= OPEN_ROUTES
    with stack.client("") as client:
        for route in ("/healthz", "/readyz", "/metrics", "/api/v1/openapi.json"):
            assert client.get(route).status_code == 200, route
        for route in ("/docs", "/redoc", "/openapi.json", "/api/v1/docs"):
            assert client.get(route).status_code == 404, route


def test_headers_and_paths_lead_nowhere_else(stack: Stack, theirs: Estate, ours: Estate) -> None:
    """Identity and routing headers of a proxy that we do not have, and paths that a proxy would read otherwise."""
    hostile = {
        "x-tenant": theirs.ids["tenant"],
        "x-tenant-id": theirs.ids["tenant"],
        "remote-user": theirs.account.email,
        "x-forwarded-user": theirs.account.email,
        "x-forwarded-host": "evil.example",
        "x-original-url": f"/api/v1/documents/{theirs.ids['document_id']}",
        "x-rewrite-url": f"/api/v1/documents/{theirs.ids['document_id']}",
        "x-http-method-override": "DELETE",
    }
    with stack.client(ours.people[Role.VIEWER].key) as client:
        me = client.get("/api/v1/me", headers=hostile)
        assert me.json()["tenant_id"] == ours.ids["tenant"]
        assert me.json()["role"] == "viewer"
        for path in ("/healthz/..;/api/v1/users", "/healthz/%2e%2e/api/v1/users", "//api/v1/users", "/api//v1/users"):
            answer = client.send(client.build_request("GET", f"{stack.api_url}{path}"))
            assert answer.status_code in (403, 404), path
