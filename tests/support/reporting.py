"""What the tests of the door for reporting tools share: a tenant with its people, walks, rows made by SQL."""

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx
import psycopg

from app.core.ids import new_id
from app.exports.datasets import DATASETS
from app.identity.permissions import Role
from tests.support.doors import door
from tests.support.foreign import Clients, Person, add_person, grant
from tests.support.planted import Planted, plant
from tests.support.stack import Stack

NAMES = tuple(dataset.name for dataset in DATASETS)
LONG_AGO = "2020-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Ground:
    """A tenant with one row of each kind, and its people; the viewer has a grant on the only collection."""

    stack: Stack
    planted: Planted
    owner: Person
    viewer: Person
    outsider: Person
    clients: Clients

    def get(self, person: Person, name: str, **query: object) -> list[dict[str, Any]]:
        """All rows of a dataset for a person."""
        return walk(self.clients.of(person.key), name, **query)[0]


@contextmanager
def ground_of(stack: Stack) -> Iterator[Ground]:
    """A fresh tenant with its people."""
    with door(stack, "fullread_owner") as connection:
        planted = plant(connection, "bi")
        connection.commit()
    people = [add_person(stack, planted.tenant, role) for role in (Role.OWNER, Role.VIEWER, Role.VIEWER)]
    clients = Clients(stack)
    grant(clients.of(people[0].key), str(planted.collection), people[1].user_id, Role.VIEWER)
    yield Ground(stack, planted, *people, clients)
    clients.close()


def page(client: httpx.Client, target: str, **query: object) -> dict[str, Any]:
    """One page."""
    answer = client.get(target, params={k: str(v) for k, v in query.items()} or None)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def walk(client: httpx.Client, name: str, **query: object) -> tuple[list[dict[str, Any]], str]:
    """All rows of a dataset, by the links of its pages, and the time for the next refresh."""
    found = page(client, f"/api/v1/bi/{name}", **query)
    items, as_of = list(found["items"]), found["as_of"]
    while found["next"] is not None:
        found = page(client, local(client, found["next"]))
        items += found["items"]
        assert found["as_of"] == as_of
    return items, as_of


def local(client: httpx.Client, address: str) -> str:
    """A link of the door, as a path of the client's server."""
    assert address.startswith(f"{str(client.base_url).rstrip('/')}/api/v1/bi/"), address
    return address[len(str(client.base_url).rstrip("/")) :]


def refused(answer: httpx.Response, status: int, code: str) -> None:
    """Assert a problem document."""
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def new_answers(connection: psycopg.Connection, tenant: UUID, collection: UUID, user: UUID, number: int) -> list[UUID]:
    """Answers with one citation each, as rows only."""
    ids, quotes = [new_id() for _ in range(number)], [new_id() for _ in range(number)]
    connection.execute(
        "insert into answers (tenant_id, id, collection_id, user_id, question, state, route, text)"
        " select %s, id, %s, %s, 'q', 'succeeded', 'retrieval', 'made' from unnest(%s::uuid[]) as id",
        (tenant, collection, user, ids),
    )
    connection.execute(
        "insert into citations (tenant_id, id, answer_id, ordinal, document_name, quote, verified)"
        " select %s, c, a, 1, 'd', 'quoted', true from unnest(%s::uuid[], %s::uuid[]) as t(c, a)",
        (tenant, quotes, ids),
    )
    connection.commit()
    return ids


def read_csv(answer: httpx.Response) -> list[dict[str, str]]:
    """The rows of a CSV answer, as a program reads them."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/csv; charset=utf-8; header=present"
    text = answer.content.decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
