"""API keys, sessions and passwords: shown once, stored as hashes, dead at once, never in an address or a log."""

import hashlib
import statistics
import time
from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest

from app.identity import secrets
from app.identity.permissions import Role
from tests.support.doors import door, rows
from tests.support.foreign import Person, add_person
from tests.support.stack import Stack

#: Sign-ins per kind of account whose times are compared.
SAMPLES = 11


@pytest.fixture(scope="module")
def owner(stack: Stack) -> Person:
    """An owner of the first tenant."""
    return add_person(stack, stack.owner.tenant_id, Role.OWNER)


@pytest.fixture(scope="module")
def own(stack: Stack, owner: Person) -> Iterator[httpx.Client]:
    """The owner's client."""
    with stack.client(owner.key) as client:
        yield client


def _key(client: httpx.Client, **more: object) -> dict[str, str]:
    answer = client.post("/api/v1/api-keys", json={"name": "a key", "scopes": ["read"], **more})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def _account(client: httpx.Client) -> dict[str, str]:
    login = {"email": f"{uuid4()}@keys.example", "password": f"password {uuid4()}"}
    assert client.post("/api/v1/users", json={**login, "role": "viewer"}).status_code == 201
    return login


def _found_in_database(stack: Stack, *words: str) -> list[str]:
    """Tables in which one of the words stands anywhere, as text or as the bytes of it."""
    found = []
    with door(stack, "postgres") as connection:
        tables = rows(
            connection,
            "select relname from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'",
        )
        for (table,) in tables:
            text = "\n".join(row[0] for row in rows(connection, f"select to_jsonb(t)::text from {table} t"))
            found += [table for word in words if word in text or word.encode().hex() in text]
    return found


def _logs(stack: Stack) -> str:
    return "\n".join(path.read_text(errors="replace") for path in stack.home.log.glob("*.log"))


def test_a_key_is_shown_once_and_stored_as_a_hash(stack: Stack, own: httpx.Client) -> None:
    made = _key(own)
    token = made["token"]
    secret = token.split("_", 2)[2]
    listed = own.get("/api/v1/api-keys").text
    assert made["id"] in listed
    for shown in (token, secret, hashlib.sha256(secret.encode()).hexdigest(), "hash"):
        assert shown not in listed
    item = next(i for i in own.get("/api/v1/api-keys").json()["items"] if i["id"] == made["id"])
    assert item["hint"] == token[-4:]
    assert _found_in_database(stack, token, secret) == []
    with door(stack, "postgres") as connection:
        stored = rows(connection, "select secret_hash from api_keys where id = %s", made["id"])
    assert stored == [(hashlib.sha256(secret.encode()).digest(),)]


def test_a_password_is_stored_as_argon2id_and_a_session_as_a_hash(stack: Stack, own: httpx.Client) -> None:
    login = _account(own)
    answer = own.post("/api/v1/login", json=login)
    secret = answer.json()["token"].split("_", 2)[2]
    assert _found_in_database(stack, login["password"], answer.json()["token"], secret) == []
    with door(stack, "postgres") as connection:
        stored = rows(connection, "select password_hash from credentials where email = %s", login["email"])
    assert stored[0][0].startswith("$argon2id$")
    memory_kib = int(stored[0][0].split("m=")[1].split(",")[0])
    assert memory_kib >= 19 * 1024, "OWASP's least for Argon2id"


def test_tokens_can_not_be_guessed() -> None:
    made = [secrets.new_token(secrets.API_KEY_PREFIX, uuid4())[0].split("_", 2)[2] for _ in range(1000)]
    assert len(set(made)) == 1000
    assert {len(secret) for secret in made} == {43}, "256 bits in base 64"
    # Each place takes many letters: nothing in a secret counts up, repeats or tells the time.
    assert min(len({secret[place] for secret in made}) for place in range(42)) >= 50
    passwords = {secrets.new_password() for _ in range(1000)}
    assert len(passwords) == 1000
    assert {len(password.replace("-", "")) for password in passwords} == {20}


def test_a_revoked_key_is_dead_at_once(stack: Stack, own: httpx.Client) -> None:
    made = _key(own)
    with stack.client(made["token"]) as keyed:
        assert keyed.get("/api/v1/me").status_code == 200
        assert own.delete(f"/api/v1/api-keys/{made['id']}").json()["revoked_at"] is not None
        refused = keyed.get("/api/v1/me")
    assert (refused.status_code, refused.json()["code"]) == (401, "token_not_valid")
    assert own.delete(f"/api/v1/api-keys/{made['id']}").status_code == 200


def test_an_expired_key_or_session_is_dead_at_once(stack: Stack, own: httpx.Client) -> None:
    made = _key(own, expires_at="2030-01-01T00:00:00Z")
    session = own.post("/api/v1/login", json=_account(own)).json()["token"]
    with stack.client(made["token"]) as keyed, stack.client(session) as signed_in:
        assert (keyed.get("/api/v1/me").status_code, signed_in.get("/api/v1/me").status_code) == (200, 200)
        with door(stack, "fullread_owner") as connection:
            for table, token_id in (("api_keys", made["id"]), ("login_sessions", secrets.split_token(session)[1])):  # type: ignore[index]
                statement = f"update {table} set expires_at = now() where id = %s"
                assert connection.execute(statement.encode(), (token_id,)).rowcount == 1
            connection.commit()
        assert (keyed.get("/api/v1/me").status_code, signed_in.get("/api/v1/me").status_code) == (401, 401)


@pytest.mark.parametrize(
    "expires_at",
    [
        "2001-01-01T00:00:00Z",
        "2030-01-01T00:00:00",
        "9999-12-31T23:59:59-14:00",
        "0001-01-01T00:00:00+14:00",
        "10000-01-01T00:00:00Z",
        "tomorrow",
    ],
)
def test_an_expiry_that_can_not_be_is_refused(own: httpx.Client, expires_at: str) -> None:
    answer = own.post("/api/v1/api-keys", json={"name": "k", "scopes": ["read"], "expires_at": expires_at})
    assert answer.status_code == 422
    # A date that is accepted and can not be read back would take the whole list of keys away.
    assert own.get("/api/v1/api-keys").status_code == 200


def test_a_key_in_an_address_is_refused_and_not_logged(stack: Stack, own: httpx.Client) -> None:
    token = _key(own)["token"]
    with stack.client("") as nobody:
        for client in (own, nobody):
            for name in ("api_key", "API_KEY", "apikey", "token", "key", "access_token", "anything"):
                answer = client.get("/api/v1/me", params={name: token})
                assert answer.status_code == 422, name
                assert answer.json()["code"] == "secret_in_url", name
                assert token not in answer.text
        assert nobody.get(f"/api/v1/{token}").status_code == 404
        assert nobody.get("/healthz", params={"api_key": token}).status_code == 200
    assert token.split("_", 2)[2] not in _logs(stack)


def test_secrets_reach_no_log(stack: Stack, own: httpx.Client) -> None:
    login = _account(own)
    session = own.post("/api/v1/login", json=login).json()["token"]
    own.post("/api/v1/login", json={**login, "password": f"wrong {login['password']}"})
    own.post("/api/v1/users", json={**login, "role": "viewer"})
    with stack.client(f"{session}x") as broken:
        broken.get("/api/v1/me")
    text = _logs(stack)
    for secret in (login["password"], session.split("_", 2)[2], login["email"]):
        assert secret not in text


def test_a_login_does_not_tell_which_accounts_exist(stack: Stack, own: httpx.Client) -> None:
    known, disabled = _account(own), _account(own)
    user = next(u for u in own.get("/api/v1/users").json()["items"] if u["email"] == disabled["email"])
    assert own.patch(f"/api/v1/users/{user['id']}", json={"disabled": True}).status_code == 200
    tries = {
        "unknown": {"email": f"{uuid4()}@keys.example", "password": known["password"]},
        "wrong password": {**known, "password": "a wrong password"},
        "empty password": {**known, "password": ""},
        "disabled": disabled,
        "unknown tenant": {**known, "tenant": str(uuid4())},
        "password of another": {**known, "password": disabled["password"]},
    }
    seen = set()
    with stack.client("") as client:
        for login in tries.values():
            answer = client.post("/api/v1/login", json=login)
            body = {k: v for k, v in answer.json().items() if k != "request_id"}
            headers = {k: v for k, v in answer.headers.items() if k not in ("date", "x-request-id")}
            seen.add((answer.status_code, str(body), str(headers)))
        assert client.post("/api/v1/login", json=known).status_code == 200
        assert client.post("/api/v1/login", json={**known, "email": known["email"].upper()}).status_code == 200
    assert len(seen) == 1
    assert next(iter(seen))[0] == 401


def test_a_login_takes_as_long_for_an_unknown_account(stack: Stack, own: httpx.Client) -> None:
    known = {**_account(own), "password": "a wrong password"}
    unknown = {**known, "email": f"{uuid4()}@keys.example"}
    seconds: dict[str, list[float]] = {"known": [], "unknown": []}
    with stack.client("") as client:
        client.post("/api/v1/login", json=unknown)  # the first one makes the hash that is compared with
        for _ in range(SAMPLES):
            for name, login in (("known", known), ("unknown", unknown)):
                began = time.perf_counter()
                assert client.post("/api/v1/login", json=login).status_code == 401
                seconds[name].append(time.perf_counter() - began)
    ratio = statistics.median(seconds["unknown"]) / statistics.median(seconds["known"])
    # Without the dummy hash the unknown account is answered in a tenth of the time.
    assert 0.5 < ratio < 2, seconds


def test_passwords_are_long_and_text(own: httpx.Client) -> None:
    for password in ("eleven-char", "x" * 1025):
        answer = own.post("/api/v1/users", json={"email": "p@keys.example", "password": password})
        assert answer.status_code == 422, password
        assert password not in answer.text
    surrogate = b'{"email": "p@keys.example", "password": "a long password \\ud800"}'
    for path in ("/api/v1/users", "/api/v1/login"):
        answer = own.post(path, content=surrogate, headers={"content-type": "application/json"})
        assert answer.status_code == 422, path
