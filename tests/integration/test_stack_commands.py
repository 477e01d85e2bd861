"""`fullread up`, `status` and `down` over the whole stack, as a person runs them."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.local import processes
from app.local.state import Home, StackState, identity, owner_pid, read_admin

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SERVICES = [
    "postgres", "valkey", "vectors", "embeddings", "engine",
    "prepare", "api", "worker-ingest", "worker-control", "beat",
]  # fmt: skip


def fullread(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "app.cli", *arguments], capture_output=True, text=True, timeout=400)


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    folder = Path(tempfile.mkdtemp(prefix="fullread-up-")).resolve()
    yield Home(folder / "data")
    fullread("down", "--data", str(folder / "data"))
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def first(home: Home) -> subprocess.CompletedProcess[str]:
    """The first start, detached."""
    return fullread("up", "--detach", "--data", str(home.root))


def status(home: Home) -> tuple[int, dict[str, Any]]:
    done = fullread("status", "--json", "--data", str(home.root))
    return done.returncode, json.loads(done.stdout)


def test_first_start_ends_ready_and_shows_the_administrator(
    home: Home, first: subprocess.CompletedProcess[str]
) -> None:
    assert first.returncode == 0, first.stderr
    state, admin = StackState.read(home), read_admin(home)
    assert state is not None
    assert admin is not None
    assert home.admin_file.stat().st_mode & 0o777 == 0o600
    for shown in (state.api_url, admin["email"], admin["password"], admin["api_key"], *SERVICES):
        assert shown in first.stdout
    assert httpx.get(f"{state.api_url}/readyz").json()["missing"] == []
    me = httpx.get(f"{state.api_url}/api/v1/me", headers={"Authorization": f"Bearer {admin['api_key']}"})
    assert me.status_code == 200


def test_status_names_every_service(home: Home, first: subprocess.CompletedProcess[str]) -> None:
    code, shown = status(home)
    assert (code, shown["ready"], shown["pid"]) == (0, True, owner_pid(home))
    assert [line["name"] for line in shown["services"]] == SERVICES
    assert {line["state"] for line in shown["services"]} == {"running", "done"}


@pytest.mark.parametrize("how", [(), ("--detach",)])
def test_second_start_is_refused(home: Home, first: subprocess.CompletedProcess[str], how: tuple[str, ...]) -> None:
    refused = fullread("up", *how, "--data", str(home.root))
    assert refused.returncode == 1
    assert f"(pid {owner_pid(home)})" in refused.stderr


def test_down_leaves_nothing_and_the_next_start_knows_everything(
    home: Home, first: subprocess.CompletedProcess[str]
) -> None:
    before = read_admin(home)
    assert fullread("down", "--data", str(home.root)).returncode == 0
    assert processes.marked(identity(home)) == []
    code, shown = status(home)
    assert (code, shown["running"]) == (1, False)
    assert "Nothing runs" in fullread("down", "--data", str(home.root)).stdout
    again = fullread("up", "--detach", "--data", str(home.root))
    assert again.returncode == 0, again.stderr
    assert before is not None
    assert before["password"] not in again.stdout  # it is shown once
    assert read_admin(home) == before


def test_port_that_is_asked_for_and_taken_is_an_error(home: Home, first: subprocess.CompletedProcess[str]) -> None:
    state = StackState.read(home)
    assert state is not None
    port = state.api_url.rsplit(":", 1)[1]
    other = home.root.parent / "other"
    failed = fullread("up", "--detach", "--data", str(other), "--port", port)
    assert failed.returncode == 1
    assert f"Port {port} is in use" in failed.stderr
