"""What the API says when it refuses or fails: problem documents, never internals, never a 500 for bad input."""

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from uuid import uuid4

import anyio
import httpx
import pytest
import structlog

from app.identity.permissions import Role
from app.main import create_app
from app.settings import Settings
from tests.support.doors import door
from tests.support.foreign import Person, add_person
from tests.support.planted import Planted, plant
from tests.support.routes import BODIES, OPEN_ROUTES, Call, Operation, operations
from tests.support.stack import Stack

JSON = {"content-type": "application/json"}
#: Words that only our insides know: none may stand in an answer about a failure.
INTERNALS = re.compile(
    r"traceback|psycopg|sqlalchemy|\.py\b|site-packages|select |relation|permission denied|127\.0\.0\.1|/tmp|fullread_",
    re.IGNORECASE,
)


@pytest.fixture(scope="module")
def planted(stack: Stack) -> Planted:
    """A tenant with one object of each kind."""
    with door(stack, "fullread_owner") as connection:
        made = plant(connection, "problems")
        connection.commit()
    return made


@pytest.fixture(scope="module")
def owner(stack: Stack, planted: Planted) -> Person:
    """Its owner."""
    return add_person(stack, planted.tenant, Role.OWNER)


@pytest.fixture(scope="module")
def own(stack: Stack, owner: Person) -> Iterator[httpx.Client]:
    """The owner's client."""
    with stack.client(owner.key) as client:
        yield client


def _path(operation: Operation, planted: Planted) -> dict[str, str]:
    values = {
        "collection_id": planted.collection,
        "document_id": planted.document,
        "job_id": planted.job,
        "answer_id": planted.answer,
        "key_id": planted.key,
        "user_id": planted.user,
    }
    return {name: str(values[name]) for name in operation.path_ids}


def check(answer: httpx.Response, *statuses: int) -> None:
    """Assert that a refusal is a whole problem document without internals."""
    assert answer.status_code in statuses, f"{answer.request.method} {answer.request.url}: {answer.text}"
    assert answer.headers["content-type"] == "application/problem+json", answer.request.url
    body = answer.json()
    assert {"type", "title", "status", "code", "detail", "request_id"} <= set(body)
    assert body["status"] == answer.status_code
    assert body["request_id"] == answer.headers["x-request-id"] != ""
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "server" not in answer.headers
    assert not INTERNALS.search(answer.text), answer.text


def test_unknown_routes_and_methods(own: httpx.Client) -> None:
    check(own.get("/nothing"), 404)
    check(own.get("/api/v1/nothing"), 404)
    check(own.get("/api/v2/collections"), 404)
    check(own.put("/api/v1/me", json={}), 405)
    check(own.request("TRACE", "/api/v1/me"), 405)
    check(own.request("PROPFIND", "/api/v1/collections"), 405)
    check(own.options("/api/v1/collections", headers={"origin": "https://evil.example"}), 405)
    for header in ("access-control-allow-origin", "access-control-allow-credentials"):
        assert header not in own.get("/api/v1/me", headers={"origin": "https://evil.example"}).headers


def test_no_answer_leads_to_a_host_of_the_request(own: httpx.Client) -> None:
    for path in ("/api/v1/collections/", "/healthz/"):
        answer = own.get(path, headers={"host": "evil.example"})
        assert "evil.example" not in str(answer.headers)
        check(answer, 404)


def _json_bodies(operation: Operation) -> Iterator[tuple[str, bytes]]:
    """Bodies that no operation may stumble over."""
    yield from {
        "empty": b"",
        "cut": b'{"name": ',
        "no object": b"[]",
        "null": b"null",
        "text": b'"text"',
        "bad utf-8": b'{"name": "\xff\xfe"}',
        "deep": b"[" * 200_000,
        "deep object": b'{"a":' * 100_000,
        "huge number": b'{"limit": ' + b"9" * 6000 + b"}",
        "not a number": b'{"limit": NaN}',
        "surrogate name": b'{"\\ud800": 1}',
        "same name twice": b'{"name": 1, "name": 2}',
        "too large": b'{"name": "' + b"x" * (1024 * 1024) + b'"}',
    }.items()
    valid = BODIES[str(operation)]
    for name, cell in valid.items():
        if not isinstance(cell, str):
            continue
        yield f"{name} with NUL", json.dumps({**valid, name: f"{cell}\0"}).encode()
        yield f"{name} with a surrogate", json.dumps({**valid, name: f"{cell}\ud800"}).encode()
        yield f"{name} too long", json.dumps({**valid, name: f"{cell}{'x' * 5000}"}).encode()
        yield f"{name} a list", json.dumps({**valid, name: [cell]}).encode()
        yield f"{name} a number", json.dumps({**valid, name: 10**30}).encode()


def test_no_body_breaks_a_route(stack: Stack, own: httpx.Client, planted: Planted) -> None:
    tried = 0
    for operation in operations(stack.settings):
        if operation.body is None or operation.is_form:
            continue
        target = operation.path.format(**_path(operation, planted))
        for name, content in _json_bodies(operation):
            answer = own.request(operation.method, target, content=content, headers=JSON)
            # A login with a strange but possible password is only wrong.
            check(answer, 400, 413, 422, *([401] if operation.path.endswith("/login") else []))
            assert (answer.status_code == 413) == (name == "too large"), f"{operation} {name}"
            tried += 1
    assert tried >= 150


def test_no_parameter_breaks_a_route(stack: Stack, own: httpx.Client, planted: Planted) -> None:
    strange = {
        "uuid": ("x", "", "%00", "0" * 40, "null", "*", "' or 1=1--"),
        "integer": ("-1", "10" * 20, "9223372036854775808", "abc", "1e3", "", "\u0661.5"),
        "string": ("\0", "x\0y", "x" * 5000),
        "boolean": ("2", "maybe", ""),
    }
    wrong = []
    for operation in operations(stack.settings):
        kinds = {
            "uuid": operation.ids,
            "integer": operation.numbers,
            "string": operation.texts,
            "boolean": operation.switches,
        }
        for kind, names in kinds.items():
            for name, place in names.items():
                for value in strange[kind]:
                    call = Call(operation, _path(operation, planted))
                    if place == "query":
                        call.query[name] = value
                        answer = call.send(own)
                    elif kind == "uuid" and value:
                        call.path[name] = value.replace("/", "")
                        answer = call.send(own)
                    elif value:
                        path = operation.path.replace(f"{{{name}}}", value).format(**call.path)
                        answer = own.request(operation.method, path)
                    else:
                        continue
                    if answer.status_code not in (404, 405, 422):
                        wrong.append(f"{operation} {name}={value[:30]!r}: {answer.status_code}")
                    else:
                        check(answer, answer.status_code)
    assert wrong == []


@pytest.mark.parametrize("limit", ["-1", "0", "one more than allowed", "1000000000000", "1.5", "all"])
def test_pages_have_bounds(stack: Stack, own: httpx.Client, planted: Planted, limit: str) -> None:
    lists = [o for o in operations(stack.settings) if "limit" in o.numbers]
    assert len(lists) >= 5
    assert max(operation.limits["limit"] for operation in lists if "/bi/" not in operation.path) <= 200
    for operation in lists:
        value = str(operation.limits["limit"] + 1) if limit == "one more than allowed" else limit
        check(Call(operation, _path(operation, planted), {"limit": value}).send(own), 422)
    for size in (0, -1, 51, 10**30):
        check(own.post(f"/api/v1/collections/{planted.collection}/search", json={"query": "x", "limit": size}), 422)


@pytest.mark.parametrize("revision", ['"\xb2"', f'"{"9" * 5000}"', '"-1"', "*", '"1", "2"', '"\u00bd"', "W/", '"1 "'])
def test_a_strange_etag_is_refused(own: httpx.Client, planted: Planted, revision: str) -> None:
    headers = {"if-match": revision.encode("latin-1")}
    check(own.patch(f"/api/v1/collections/{planted.collection}", json={"description": "x"}, headers=headers), 409, 422)


def test_an_etag_guards_a_change(own: httpx.Client, planted: Planted) -> None:
    path = f"/api/v1/collections/{planted.collection}"
    tag = own.get(path).headers["etag"]
    assert own.patch(path, json={"description": "one"}, headers={"if-match": tag}).status_code == 200
    check(own.patch(path, json={"description": "two"}, headers={"if-match": tag}), 409)


def test_a_body_over_the_limit_is_413_declared_or_not(own: httpx.Client) -> None:
    large = b'{"name": "' + b"x" * (2 * 1024 * 1024) + b'"}'
    declared = own.post("/api/v1/collections", content=large, headers=JSON)
    streamed = own.post("/api/v1/collections", content=iter([large[:100], large[100:]]), headers=JSON)
    for answer in (declared, streamed):
        check(answer, 413)
        assert answer.json()["code"] == "body_too_large"
    lying = own.post("/api/v1/collections", content=large, headers={**JSON, "content-type": "text/plain"})
    check(lying, 413)


def test_a_stranger_uploads_nothing(stack: Stack, planted: Planted) -> None:
    """The refusal comes before the body: a form would lie on the disk before the route asks who sends it."""
    place = urlsplit(stack.api_url)
    head = (
        f"POST /api/v1/collections/{planted.collection}/documents HTTP/1.1\r\nhost: x\r\n"
        "content-type: multipart/form-data; boundary=b\r\ncontent-length: 400000000\r\n\r\n--b\r\n"
    )
    with socket.create_connection((place.hostname, place.port), timeout=10) as connection:
        connection.sendall(head.encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 401 ")


def test_multipart_has_bounds(own: httpx.Client, planted: Planted) -> None:
    path = f"/api/v1/collections/{planted.collection}/documents"
    began = time.monotonic()
    check(own.post(path, files=[(f"part{n}", ("a", b"")) for n in range(1500)]), 400)
    check(own.post(path, files={"file": ("a", b"x")}, data={"name": "x" * (2 * 1024 * 1024)}), 400)
    check(own.post(path, data={"name": "no file"}), 422)
    for content, kind in (
        (b"--b\r\nnonsense", "multipart/form-data; boundary=b"),
        (b"x", "multipart/form-data"),
        (b"x", "multipart/mixed; boundary=b"),
        (b"x", "application/x-www-form-urlencoded"),
    ):
        check(own.post(path, content=content, headers={"content-type": kind}), 400, 422)
    assert time.monotonic() - began < 20


@contextmanager
def _in_process(settings: Settings) -> Iterator[httpx.ASGITransport]:
    """The application that ships, in this process, with other settings."""
    app = create_app(settings)
    structlog.reset_defaults()
    yield httpx.ASGITransport(app=app)
    app.state.services.embedder.close()
    app.state.services.database.dispose()


def _ask(transport: httpx.ASGITransport, method: str, path: str, **options: object) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, **options)  # type: ignore[arg-type]

    return anyio.run(ask)


def test_a_file_over_the_limit_is_413_and_leaves_nothing(stack: Stack, planted: Planted, owner: Person) -> None:
    headers = {"authorization": f"Bearer {owner.key}"}
    path = f"/api/v1/collections/{planted.collection}/documents"
    with _in_process(stack.settings.model_copy(update={"max_upload_bytes": 1000})) as transport:
        for size in (1001, 200_000):
            answer = _ask(transport, "POST", path, files={"file": ("a.txt", b"x" * size)}, headers=headers)
            check(answer, 413)
    folder = stack.home.blobs / str(planted.tenant)
    assert [p for p in folder.rglob("*") if p.is_file()] == []


def test_a_lost_database_is_503_without_internals(stack: Stack, owner: Person) -> None:
    away = re.sub(r":\d+/", ":9/", stack.settings.database_url)
    settings = stack.settings.model_copy(update={"database_url": away, "database_platform_url": away})
    with _in_process(settings) as transport:
        for path in ("/api/v1/me", "/api/v1/collections"):
            answer = _ask(transport, "GET", path, headers={"authorization": f"Bearer {owner.key}"})
            check(answer, 503)
            assert answer.json()["code"] == "database_unavailable"
            assert int(answer.headers["retry-after"]) > 0
        ready = _ask(transport, "GET", "/readyz")
    assert ready.status_code == 503
    assert any(line.startswith("database:") for line in ready.json()["missing"])
    assert away not in ready.text


@contextmanager
def _taken_away(stack: Stack, revoke: str, give_back: str) -> Iterator[None]:
    """A right of the application's role is gone for a moment: real crashes, in the running server."""
    with door(stack, "fullread_owner") as connection:
        connection.execute(revoke.encode())
        connection.commit()
    try:
        yield
    finally:
        with door(stack, "fullread_owner") as connection:
            connection.execute(give_back.encode())
            connection.commit()


def test_a_crash_in_any_handler_hides_its_reason(stack: Stack, own: httpx.Client, planted: Planted) -> None:
    with _taken_away(stack, "revoke select on users from fullread_app", "grant select on users to fullread_app"):
        for operation in operations(stack.settings):
            if str(operation) in OPEN_ROUTES:
                continue
            answer = Call(operation, _path(operation, planted)).send(own)
            check(answer, 500)
            assert set(answer.json()) == {"type", "title", "status", "code", "detail", "request_id"}
            assert answer.json()["code"] == "internal"
    assert own.get("/api/v1/me").status_code == 200


def test_a_crash_is_logged_and_counted_without_values(stack: Stack, own: httpx.Client) -> None:
    word = f"canary{uuid4().hex}"
    log = stack.home.log_file("api")
    failed = 'fullread_http_requests_total{route="/collections",status="500"}'

    def counted() -> float:
        lines = own.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(failed))

    before = counted()
    with _taken_away(
        stack, "revoke select on collections from fullread_app", "grant select on collections to fullread_app"
    ):
        answer = own.get("/api/v1/collections", params={"name": word})
    check(answer, 500)
    assert counted() == before + 1
    text = log.read_text()
    crash = [line for line in text.splitlines() if answer.json()["request_id"] in line and "request_crashed" in line]
    assert len(crash) == 1
    assert "InsufficientPrivilege" in crash[0]
    # The statement is in the log, its values are not.
    assert word not in text
