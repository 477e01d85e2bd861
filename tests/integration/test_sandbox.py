"""The wall around the parsers: real processes that crash, hang, swell, or lose their parent."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ingestion.confinement import ProcessLimits
from ingestion.errors import ParseError
from ingestion.sandbox import Sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the confinement is Linux's")
BAD = "tests.support.bad_readers"
FILES = Path(__file__).parents[1] / "data" / "files"
LIMITS = ProcessLimits(cpu_s=2, wall_s=6.0, file_bytes=50 * 1024**2, output_bytes=40 * 1024**2)


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("models"), LIMITS, readers=BAD) as sandbox:
        yield sandbox


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "input"
    path.write_text("%PDF- words")
    (tmp_path / "neighbour").write_text("another tenant's file")
    return path


def fails(sandbox: Sandbox, file: Path, how: str) -> ParseError:
    with pytest.raises(ParseError) as caught:
        sandbox.probe(file, how)
    return caught.value


@pytest.mark.parametrize(
    ("how", "code", "facts"),
    [
        ("segv", "crashed", {"signal": signal.SIGSEGV}),
        ("memory", "resource_limit", {"resource": "memory"}),
        ("spin", "resource_limit", {"resource": "cpu"}),
        ("sleep", "timeout", {"limit_s": 6.0}),
        ("too-big", "resource_limit", {"resource": "output"}),
        ("disk", "resource_limit", {}),
        ("recursion", "corrupt", {}),
        ("value-error", "corrupt", {"reason": "ValueError"}),
        ("parse-error", "needs_password", {"attempts": 3}),
    ],
)
def test_every_death_is_a_typed_error_and_the_zygote_lives(
    bad: Sandbox, file: Path, how: str, code: str, facts: dict[str, Any]
) -> None:
    assert bad.probe(file, "fine").page_count == 1
    before = bad.pid
    error = fails(bad, file, how)
    assert error.code == code
    assert facts.items() <= error.facts.items()
    assert bad.probe(file, "fine").page_count == 1
    assert bad.pid == before


def test_no_words_of_the_document_in_an_error(bad: Sandbox, file: Path) -> None:
    error = fails(bad, file, "value-error")
    assert "words" not in error.message + str(error.facts)


def test_native_allocations_are_limited_too(bad: Sandbox, file: Path) -> None:
    assert bad.probe(file, "native-memory").facts == {"refused": True}


def test_a_big_answer_arrives_whole(bad: Sandbox, file: Path) -> None:
    assert len(bad.probe(file, "big").facts["text"]) == 30_000_000


def test_what_a_child_can_reach(bad: Sandbox, file: Path) -> None:
    held = bad.confinement
    facts = bad.probe(file, "look").facts
    assert facts["input"] == file.read_text() == "%PDF- words"
    assert not [name for name in facts["environment"] if "KEY" in name or "URL" in name or name in ("HOME", "PATH")]
    assert facts["pid"] == facts["group"]
    assert facts["cwd"] == facts["tmp"]
    assert not Path(facts["tmp"]).exists()
    if held["seccomp"]:
        assert facts["socket"] == facts["fork"] == facts["exec"] == facts["kill"] == "PermissionError"
    if held["network_namespace"] and not held["seccomp"]:
        assert facts["socket"] != "allowed"
    if held["landlock"]:
        assert facts["read_neighbour"] == facts["write_input"] == "PermissionError"


def test_the_page_that_kills_its_parser_stands_alone(bad: Sandbox, file: Path) -> None:
    pages = bad.parse(file, "bad-7-23", 1, 50)
    assert [page.number for page in pages] == list(range(1, 51))
    assert {page.number: page.code for page in pages if page.state == "failed"} == {7: "crashed", 23: "crashed"}
    assert pages[7].text == "page8"


def test_a_file_full_of_deadly_pages_ends(bad: Sandbox, file: Path) -> None:
    pages = bad.parse(file, "bad-" + "-".join(str(number) for number in range(1, 51)), 1, 50)
    assert [page.state for page in pages] == ["failed"] * 50


def test_a_killed_zygote_is_replaced(tmp_path: Path, file: Path) -> None:
    with Sandbox(tmp_path, LIMITS, readers=BAD) as sandbox:
        sandbox.probe(file, "fine")
        first = sandbox.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        assert sandbox.probe(file, "fine").page_count == 1
        assert sandbox.pid != first


def test_a_killed_child_is_retryable(tmp_path: Path, file: Path) -> None:
    with Sandbox(tmp_path, ProcessLimits(), readers=BAD) as sandbox:
        sandbox.probe(file, "fine")
        killer = threading.Timer(0.5, lambda: kill_children(sandbox.pid or 0))
        killer.start()
        error = fails(sandbox, file, "sleep")
        killer.join()
    assert (error.code, error.retryable) == ("crashed", True)


def kill_children(pid: int) -> None:
    for child in psutil.Process(pid).children():
        child.kill()


def test_close_frees_a_waiting_call(tmp_path: Path, file: Path) -> None:
    sandbox = Sandbox(tmp_path, ProcessLimits(), readers=BAD)
    sandbox.probe(file, "fine")
    pid = sandbox.pid or 0
    children: list[psutil.Process] = []

    def stop() -> None:
        children.extend(psutil.Process(pid).children())
        sandbox.close()

    killer = threading.Timer(0.5, stop)
    started = time.monotonic()
    killer.start()
    error = fails(sandbox, file, "sleep")
    killer.join()
    assert error.code == "crashed"
    assert time.monotonic() - started < 5
    assert children
    gone, alive = psutil.wait_procs(children, timeout=3)
    assert gone
    assert not alive
    assert not psutil.pid_exists(pid)


def test_nothing_survives_a_killed_parent(tmp_path: Path, file: Path) -> None:
    script = (
        "import sys, threading, time; from pathlib import Path; from ingestion.sandbox import Sandbox\n"
        f"s = Sandbox(Path({str(tmp_path)!r}), readers={BAD!r}); s.probe(Path({str(file)!r}), 'fine')\n"
        f"threading.Thread(target=s.probe, args=(Path({str(file)!r}), 'sleep')).start()\n"
        "print(s.pid, flush=True); time.sleep(600)"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=root) as parent:
        assert parent.stdout is not None
        zygote = psutil.Process(int(parent.stdout.readline()))
        deadline = time.monotonic() + 5
        while not zygote.children() and time.monotonic() < deadline:
            time.sleep(0.05)
        family = [zygote, *zygote.children()]
        assert len(family) == 2
        parent.kill()
        _, alive = psutil.wait_procs(family, timeout=5)
        assert not alive
        assert not list(Path(tempfile.gettempdir()).glob(f"fullread-parse-{parent.pid}-*"))


def test_folders_of_the_dead_are_swept(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    folders = {name: tmp_path / f"fullread-parse-{pid}-x{name}" for name, pid in
               (("dead", gone.pid), ("fresh", gone.pid), ("alive", os.getpid()))}  # fmt: skip
    for name, folder in folders.items():
        folder.mkdir()
        if name != "fresh":
            os.utime(folder, (1, 1))
    with Sandbox(tmp_path, LIMITS, readers=BAD) as sandbox:
        sandbox.probe(file, "fine")
    assert [name for name, folder in folders.items() if folder.exists()] == ["fresh", "alive"]


def test_works_in_a_daemonic_child_and_after_a_fork(tmp_path: Path, file: Path) -> None:
    """As in a Celery prefork child, where multiprocessing may not start anything."""
    with Sandbox(tmp_path, LIMITS, readers=BAD) as sandbox:
        sandbox.probe(file, "fine")
        ours = sandbox.pid
        receiver, sender = multiprocessing.Pipe(duplex=False)

        def child() -> None:
            sender.send((sandbox.probe(file, "fine").page_count, sandbox.pid))
            sandbox.close()

        process = multiprocessing.get_context("fork").Process(target=child, daemon=True)
        process.start()
        assert receiver.poll(60)
        count, theirs = receiver.recv()
        process.join(10)
        assert count == 1
        assert theirs != ours
        assert sandbox.probe(file, "fine").page_count == 1
        assert sandbox.pid == ours


def test_a_real_document_goes_through(tmp_path: Path) -> None:
    with Sandbox(tmp_path) as sandbox:
        path = FILES / "agreement.pdf"
        probe = sandbox.probe(path, "Agreement.PDF")
        assert (probe.kind, probe.page_count, probe.title) == ("pdf", 3, "Service Agreement")
        pages = sandbox.parse(path, "Agreement.PDF", 2, 3)
        assert [page.number for page in pages] == [2, 3]
        assert "EUR 250,000" in pages[0].text
        assert {page.parser for page in pages} == {"liteparse"}  # its libraries load inside the wall
        with pytest.raises(FileNotFoundError):
            sandbox.probe(tmp_path / "missing", "missing.pdf")
