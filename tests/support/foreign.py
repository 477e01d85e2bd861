"""A tenant with real objects for every id that a route takes, and a person with a key in each role."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from uuid import UUID, uuid4

import httpx

from app.core.clock import now
from app.core.ids import new_id
from app.identity import accounts
from app.identity.permissions import Principal, Role, Scope
from app.identity.tables import User
from tests.support import stack as stacks
from tests.support.stack import Account, Stack

ROLES = tuple(Role)


@dataclass(frozen=True, slots=True)
class Person:
    """A user with an API key of all scopes (or of some)."""

    user_id: str
    role: Role
    key: str


@dataclass(frozen=True, slots=True)
class Estate:
    """What a tenant owns. `ids`: a value for each id parameter of the route table, by the parameter's name."""

    account: Account
    word: str
    ids: Mapping[str, str]
    people: Mapping[Role, Person]

    @property
    def tenant(self) -> UUID:
        """The tenant's id."""
        return self.account.tenant_id


def build(stack: Stack, name: str, *, granted: bool = True) -> Estate:
    """A fresh tenant with an indexed document, a job, an answer, a key and a user of each role.

    `granted`: everybody below administrators has a grant of its own role on the collection.
    """
    word = f"canary{uuid4().hex[:12]}"
    account = stack.new_tenant(f"{name}-{word}")
    with stack.client(account.api_key) as client:
        collection = stacks.new_collection(client, f"collection {word}")
        text = f"Notice {word}. The notice period of {word} is ninety days after the written notice.\n"
        uploaded = stacks.upload(client, collection, f"{word}.txt", text.encode())
        people = {role: add_person(stack, account.tenant_id, role) for role in ROLES}
        if granted:
            for role in (Role.EDITOR, Role.REVIEWER, Role.VIEWER):
                grant(client, collection, people[role].user_id, role)
        document = stacks.wait_for_end(client, uploaded["document"]["id"])
        assert document["state"] == "indexed", document
        answer = client.post(
            f"/api/v1/collections/{collection}/answers", json={"question": f"What is the notice period of {word}?"}
        )
        assert answer.status_code == 200, answer.text
        spare = client.post("/api/v1/api-keys", json={"name": f"key {word}", "scopes": ["read"]})
        assert spare.status_code == 201, spare.text
    ids = {
        "collection_id": collection,
        "document_id": document["id"],
        "version_id": document["version_id"],
        "job_id": uploaded["job_id"],
        "answer_id": answer.json()["id"],
        "key_id": spare.json()["id"],
        "user_id": people[Role.VIEWER].user_id,
        "tenant": str(account.tenant_id),
    }
    # A list's cursor is an id too: that of the row before.
    return Estate(account, word, {**ids, "cursor": document["id"]}, people)


def add_person(stack: Stack, tenant: UUID, role: Role, *, scopes: frozenset[Scope] = frozenset(Scope)) -> Person:
    """A user of the tenant with an API key; without a password, because hashing one takes longer than a test."""
    database = stack.database()
    try:
        with database.tenant(tenant) as uow:
            email = f"{role.value}-{uuid4().hex[:12]}@test.example"
            user = User(
                tenant_id=tenant,
                id=new_id(),
                email=email,
                display_name="",
                role=role.value,
                created_at=now(),
                disabled_at=None,
            )
            uow.session.add(user)
            uow.session.flush()
            actor = Principal(tenant_id=tenant, user_id=user.id, role=role, email=email)
            issued = accounts.create_api_key(uow, actor, name=f"{role.value} of a test", scopes=scopes)
            return Person(str(user.id), role, issued.token)
    finally:
        database.dispose()


def grant(client: httpx.Client, collection: str, user_id: str, role: Role) -> None:
    """Give a user a role on a collection."""
    answer = client.put(f"/api/v1/collections/{collection}/grants/{user_id}", json={"role": role.value})
    assert answer.status_code == 204, answer.text


class Clients:
    """Clients by API key, made once and closed together."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._open: dict[str, httpx.Client] = {}
        self._exit = ExitStack()

    def of(self, key: str) -> httpx.Client:
        """The client with this key; the empty string sends no credentials."""
        if key not in self._open:
            self._open[key] = self._exit.enter_context(self._stack.client(key))
        return self._open[key]

    def close(self) -> None:
        """Close all."""
        self._exit.close()
