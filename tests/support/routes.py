"""Every operation of the application that ships, from its route table: tests are generated from this list.

A new route joins by itself; a body or an id that nobody gave a value for fails the tests that use it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import httpx
import structlog
from fastapi.routing import iter_route_contexts

from app.main import create_app
from app.settings import Settings

#: Routes that ask for no credentials. Whoever adds one adds it here, in view of a reviewer.
OPEN_ROUTES = {
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
    "POST /api/v1/login",
    "GET /api/v1/openapi.json",
}
#: A body that passes validation, for each operation that takes one.
BODIES: dict[str, dict[str, Any]] = {
    "POST /api/v1/login": {"email": "nobody@nowhere.example", "password": "a password of nobody"},
    "POST /api/v1/users": {"email": "new@users.example", "password": "a long enough password"},
    "PATCH /api/v1/users/{user_id}": {"role": "editor"},
    "POST /api/v1/api-keys": {"name": "made by a test", "scopes": ["read"]},
    "POST /api/v1/collections": {"name": "made by a test"},
    "PATCH /api/v1/collections/{collection_id}": {"description": "changed by a test"},
    "PUT /api/v1/collections/{collection_id}/grants/{user_id}": {"role": "editor"},
    "POST /api/v1/collections/{collection_id}/search": {"query": "what does the notice say"},
    "POST /api/v1/collections/{collection_id}/answers": {"question": "What does the notice say?"},
}
FORM_FILE = {"file": ("made.txt", b"made by a test")}


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `ids` are its parameters of type uuid, by where they stand (path or query).

    `limits`: the largest value that the document allows for a number.
    """

    method: str
    path: str
    ids: Mapping[str, str]
    numbers: Mapping[str, str]
    texts: Mapping[str, str]
    switches: Mapping[str, str]
    limits: Mapping[str, int]
    body: Mapping[str, Any] | None
    is_form: bool

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def path_ids(self) -> list[str]:
        """Names of the ids in the path."""
        return [name for name, place in self.ids.items() if place == "path"]

    @property
    def writes(self) -> bool:
        """Whether the operation may change something (search only reads)."""
        return self.method != "GET" and not self.path.endswith("/search")


@dataclass(slots=True)
class Call:
    """A request to an operation; without ids in the query and with the body from BODIES, unless changed."""

    operation: Operation
    path: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] | None = None

    def send(self, client: httpx.Client) -> httpx.Response:
        """Send it. An operation whose body nobody wrote down fails here."""
        operation = self.operation
        numbers = {name: "1" for name, place in operation.numbers.items() if place == "path"}
        target = operation.path.format(**numbers, **self.path)
        options: dict[str, Any] = {}
        if operation.is_form:
            options["files"] = FORM_FILE
            if self.body:
                options["data"] = self.body
        elif operation.body is not None:
            assert str(operation) in BODIES, f"write a valid body for {operation} into tests/support/routes.py"
            options["json"] = BODIES[str(operation)] if self.body is None else self.body
        return client.request(operation.method, target, params=self.query, headers=self.headers, **options)


@cache
def _application(settings: Settings) -> tuple[dict[str, Any], frozenset[str]]:
    app = create_app(settings)
    # The application configured logging onto this test's captured stderr: nobody else shall write there.
    structlog.reset_defaults()
    routed = frozenset(
        f"{method} {context.path}"
        for context in iter_route_contexts(app.routes)
        for method in (context.methods or ())
        if method != "HEAD"
    )
    return app.openapi(), routed


def routed(settings: Settings) -> frozenset[str]:
    """Every routed method and path, shown in the OpenAPI document or not."""
    return _application(settings)[1]


def operations(settings: Settings) -> list[Operation]:
    """Every operation of the OpenAPI document."""
    document, _ = _application(settings)
    return [
        _operation(document, method.upper(), path, item)
        for path, methods in document["paths"].items()
        for method, item in methods.items()
    ]


def _operation(document: dict[str, Any], method: str, path: str, item: dict[str, Any]) -> Operation:
    found: dict[str, dict[str, str]] = {"uuid": {}, "integer": {}, "string": {}, "boolean": {}}
    for parameter in item.get("parameters", []):
        kinds = set(_kinds(document, parameter["schema"]))
        if parameter["in"] == "header":
            continue
        assert len(kinds) == 1, f"{method} {path}: {parameter['name']} is {kinds}"
        found[kinds.pop()][parameter["name"]] = parameter["in"]
    content = item.get("requestBody", {}).get("content", {})
    body = next(iter(content.values()))["schema"] if content else None
    return Operation(
        method=method,
        path=path,
        ids=found["uuid"],
        numbers=found["integer"],
        texts=found["string"],
        switches=found["boolean"],
        limits={p["name"]: p["schema"]["maximum"] for p in item.get("parameters", []) if "maximum" in p["schema"]},
        body=_resolved(document, body) if body else None,
        is_form="multipart/form-data" in content,
    )


def _resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
    return schema


def _kinds(document: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    """The kinds that a parameter may have: uuid, or its JSON type; null is none."""
    schema = _resolved(document, schema)
    if "anyOf" in schema:
        return [kind for part in schema["anyOf"] for kind in _kinds(document, part)]
    kind = schema.get("format") if schema.get("format") == "uuid" else schema["type"]
    return [] if kind == "null" else [str(kind)]


def body_ids(operation: Operation, settings: Settings) -> set[str]:
    """Names of the ids inside an operation's body."""
    document, _ = _application(settings)
    if operation.body is None:
        return set()
    return _ids_in(document, dict(operation.body), "")


def _ids_in(document: dict[str, Any], schema: dict[str, Any], name: str) -> set[str]:
    schema = _resolved(document, schema)
    found = {name} if schema.get("format") == "uuid" else set()
    for key, part in schema.get("properties", {}).items():
        found |= _ids_in(document, part, key)
    for part in [*schema.get("anyOf", []), *([schema["items"]] if "items" in schema else [])]:
        found |= _ids_in(document, part, name)
    return found
