"""Two hundred files while a random service is killed every two seconds: each document indexed once, nothing lost."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from sqlalchemy import text

from tests.support import stack as stacks
from tests.support.stack import Stack

FILES = 200
SEED = 20261130
KILL_EVERY_S = 2.0
#: The promise is 90 s on a quiet machine (benchmarks/resilience.md); here only that it ends.
LIMIT_S = 280.0


def victims(stack: Stack) -> list[tuple[str, int]]:
    """The services that run now, and the pool children of the workers."""
    found = []
    for service in stack.state()["services"]:
        pid = service["pid"]
        if not pid or not psutil.pid_exists(pid):
            continue
        found.append((service["name"], pid))
        if service["name"].startswith("worker"):
            try:
                found += [(f"{service['name']} child", child.pid) for child in psutil.Process(pid).children()]
            except psutil.NoSuchProcess:
                continue
    return found


class Killer(threading.Thread):
    """Kills one random service every two seconds until told to stop."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(daemon=True)
        self.stack = stack
        self.random = random.Random(SEED)
        self.done = threading.Event()
        self.killed: list[str] = []

    def run(self) -> None:
        while not self.done.wait(KILL_EVERY_S):
            try:
                name, pid = self.random.choice(victims(self.stack))
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, IndexError, json.JSONDecodeError, FileNotFoundError):
                continue
            self.killed.append(name)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_document_is_indexed_once_whatever_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(FILES):
        cost = number * 13 + 5
        body = f"# Order {number}\n\nOrder number {number} of the supplier {number * 7919} costs {cost} euros.\n"
        (folder / f"order-{number:03}.md").write_text(body)
    with stacks.running(tmp_path / "data") as stack:
        killer = Killer(stack)
        began = time.monotonic()
        killer.start()
        try:
            command = [sys.executable, "-m", "app.cli", "ingest", str(folder), "--collection", "orders", "--json"]
            finished = subprocess.run(
                [*command, "--data", str(stack.home.root)], capture_output=True, text=True, timeout=300, check=False
            )
        finally:
            killer.done.set()
            killer.join()
        seconds = time.monotonic() - began
        print(f"{FILES} files in {seconds:.1f} s, killed: {killer.killed}")
        assert finished.returncode == 0, f"{finished.stdout[-2000:]}\n{finished.stderr[-2000:]}"
        files = json.loads(finished.stdout)["files"]
        assert [f["state"] for f in files] == ["indexed"] * FILES
        assert len({f["document_id"] for f in files}) == FILES
        assert len(killer.killed) >= 5
        check_stores(stack)
        assert seconds < LIMIT_S


def check_stores(stack: Stack) -> None:
    """Rows and points agree: one version each, as many points as chunks."""
    stacks.wait_until_ready(stack)
    database = stack.database()
    with database.tenant(stack.owner.tenant_id) as uow:
        documents, versions, chunks = uow.session.execute(
            text(
                "select (select count(*) from documents where deleted_at is null),"
                " (select count(*) from document_versions where state = 'indexed'), (select count(*) from chunks)"
            )
        ).one()
    database.dispose()
    assert documents == versions == FILES
    assert stack.index().count(str(stack.owner.tenant_id)) == chunks >= FILES
