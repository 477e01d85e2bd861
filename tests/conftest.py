"""Fixtures of the whole suite. The stack is the real one; it starts once per session and only when a test asks."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import hypothesis
import pytest

from app.local.state import Home
from tests.support import stack as stacks
from tests.support.stack import Account, Stack

# In CI the same examples each time: a submission must not fail on another one's luck. At the desk they are random.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")


# A runner in the background may ignore Ctrl-C, and every child would inherit that: the tests of Ctrl-C need it back.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The local stack on a fresh data directory; FULLREAD_TEST_STACK names one that runs already (quicker trials)."""
    if existing := os.environ.get("FULLREAD_TEST_STACK"):
        yield stacks.read(Home(Path(existing).resolve()))
        return
    with stacks.running(tmp_path_factory.mktemp("stack") / "data") as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[httpx.Client]:
    """A client with the owner's API key."""
    with stack.client() as made:
        yield made


@pytest.fixture
def collection(client: httpx.Client) -> str:
    """A fresh, empty collection of the first tenant."""
    return stacks.new_collection(client, f"collection {uuid4()}")


@pytest.fixture(scope="session")
def stranger(stack: Stack) -> Account:
    """The owner of another tenant."""
    return stack.new_tenant(f"stranger-{uuid4()}")


@pytest.fixture
def user(stack: Stack, client: httpx.Client) -> Any:
    """A factory of users: `user(role)` gives (user id, client signed in as that user)."""
    opened: list[httpx.Client] = []

    def make(role: str) -> tuple[str, httpx.Client]:
        email, password = f"{uuid4()}@main.example", f"password {uuid4()}"
        answer = client.post("/api/v1/users", json={"email": email, "password": password, "role": role})
        assert answer.status_code == 201, answer.text
        login = client.post("/api/v1/login", json={"email": email, "password": password})
        assert login.status_code == 200, login.text
        signed_in = stack.client(login.json()["token"])
        opened.append(signed_in)
        return answer.json()["id"], signed_in

    yield make
    for each in opened:
        each.close()


@pytest.fixture(scope="session")
def data_files() -> Path:
    """Small files of every first format, made by tests/data/make_files.py."""
    return Path(__file__).parent / "data" / "files"
