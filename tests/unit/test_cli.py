"""The command line against a scripted server: exit statuses, shapes, retries, what reaches a terminal."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.cli.program import run
from tests.support.scripted_api import TOKEN, ScriptedApi, scripted_api

ROOT = Path(__file__).resolve().parents[2]
INGEST_KEYS = {"path", "state", "code", "message", "document_id", "pages_total", "pages_indexed"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, an environment and a working directory of the test's own."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "FULLREAD_URL", "FULLREAD_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "here"


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    with scripted_api() as made:
        yield made


@pytest.fixture
def bare(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command as it stands."""

    def call(*arguments: str) -> Outcome:
        capsys.readouterr()
        status = run(arguments)
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return call


@pytest.fixture
def cli(api: ScriptedApi, bare: Cli) -> Cli:
    """Run a command against the scripted server."""

    def call(*arguments: str, key: str = TOKEN) -> Outcome:
        return bare(*arguments, "--url", api.url, "--api-key", key)

    return call


def files(folder: Path, **contents: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in contents.items():
        (folder / f"{name}.txt").write_text(text)
    return folder


# What is said without a server


def test_version_imports_nothing() -> None:
    program = (
        "import sys; sys.argv = ['fullread', '--version']; from app.cli import main; main()\n"
        "assert not {'typer', 'rich', 'httpx', 'pydantic'} & set(sys.modules), sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("fullread 0.")


COMMANDS = (
    (), ("up",), ("down",), ("status",), ("demo",), ("migrate",), ("ingest",), ("ask",), ("search",), ("delete",),
    ("retry",), ("cancel",), ("documents",), ("documents", "list"), ("documents", "show"), ("collections",),
    ("collections", "create"), ("collections", "delete"), ("collections", "status"), ("collections", "grants"),
    ("collections", "grant"), ("collections", "revoke"), ("models",), ("login",), ("logout",), ("whoami",), ("users",),
    ("users", "add"), ("users", "change"), ("keys",), ("keys", "create"), ("keys", "revoke"), ("answers",),
    ("answers", "list"), ("answers", "show"), ("jobs",), ("jobs", "list"), ("jobs", "show"), ("jobs", "cancel"),
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(bare: Cli, command: tuple[str, ...]) -> None:
    outcome = bare(*command, "--help")
    assert outcome.status == 0
    assert "Usage: fullread" in outcome.out


def test_the_main_help_teaches(bare: Cli) -> None:
    assert "fullread ingest contracts/" in bare().out
    assert bare().status == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("ask",),
        ("ask", "why", "--route", "sideways"),
        ("search", "x", "--limit", "0"),
        ("ingest", "x"),
        ("documents", "--colection", "x"),
        ("nonsense",),
        ("delete", "--url", "http://127.0.0.1:9", "--api-key", "k"),
        ("documents", "--url", "ftp://x"),
    ],
)
def test_wrong_use_is_two_and_one_line(bare: Cli, arguments: tuple[str, ...]) -> None:
    outcome = bare(*arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith("Error: ")
    assert outcome.err.count("\n") == 1


def test_wrong_use_with_json_is_a_problem(bare: Cli) -> None:
    outcome = bare("ask", "--json")
    assert outcome.status == 2
    assert outcome.json["code"] == "wrong_use"
    assert "question" in outcome.json["detail"]


def test_no_server_is_a_failure_that_says_how_to_start_one(bare: Cli) -> None:
    outcome = bare("ask", "why", "--json")
    assert outcome.status == 1
    assert outcome.json["code"] == "no_server"
    assert "fullread up" in outcome.err


def test_a_dead_server_is_a_failure(bare: Cli) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        outcome = bare("documents", "--url", url, "--api-key", "k", "--json")
    assert (outcome.status, outcome.json["code"]) == (1, "unreachable")


def test_a_wrong_key_is_the_servers_problem(cli: Cli) -> None:
    outcome = cli("documents", "--json", key="wrong")
    assert outcome.status == 1
    assert outcome.json["code"] == "bad_token"
    assert outcome.json["status"] == 401
    assert outcome.json["request_id"] == "r-1"
    assert outcome.err.count("\n") == 1


# Which server


def stack(folder: Path, url: str, key: str) -> Path:
    (folder / "run").mkdir(parents=True)
    (folder / "run" / "stack.json").write_text(json.dumps({"api_url": url, "phase": "ready"}))
    (folder / "admin.json").write_text(json.dumps({"api_key": key, "api_url": url}))
    return folder


def test_the_local_stack_is_found(api: ScriptedApi, bare: Cli, place: Path) -> None:
    stack(place / "fullread-data", api.url, TOKEN)
    assert bare("whoami", "--json").json == {
        "url": api.url, "email": TOKEN, "role": "owner", "scopes": None, "user_id": "u", "tenant_id": "t",
    }  # fmt: skip
    assert bare("whoami", "--data", str(place / "other")).status == 1


def test_what_is_said_goes_before_what_lies_there(
    api: ScriptedApi, bare: Cli, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.tokens |= {"from-flag", "from-variable", "from-other"}
    stack(place / "fullread-data", "http://127.0.0.1:9", "nobody")
    other = stack(place / "other", api.url, "from-other")
    monkeypatch.setenv("FULLREAD_URL", api.url)
    monkeypatch.setenv("FULLREAD_API_KEY", "from-variable")

    def who(*options: str) -> str:
        return str(bare("whoami", "--json", *options).json["email"])

    assert who() == "from-variable"
    assert who("--data", str(other)) == "from-other"
    assert who("--api-key", "from-flag") == "from-flag"
    assert who("--data", str(other), "--api-key", "from-flag") == "from-flag"
    monkeypatch.delenv("FULLREAD_URL")
    assert who("--data", str(other)) == "from-variable"


def test_a_login_is_kept_private_and_used(
    api: ScriptedApi, bare: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def login(password: str) -> Outcome:
        read, write = os.pipe()
        os.write(write, f"{password}\n".encode())
        os.close(write)
        with os.fdopen(read) as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            return bare("login", "--url", f"{api.url}/api/v1/", "--email", "ana@example.org", "--password-stdin")

    assert login("wrong").status == 1
    assert login("right").status == 0
    kept = tmp_path / "home" / ".config" / "fullread" / "credentials.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    assert bare("whoami", "--json").json["email"] == "session-of-ana@example.org"
    stored = json.loads(kept.read_text())
    stored["logins"][api.url]["expires_at"] = "2001-01-01T00:00:00+00:00"
    kept.write_text(json.dumps(stored))
    assert bare("whoami", "--json").json["code"] == "no_credentials"
    stored["logins"][api.url]["expires_at"] = None
    kept.write_text(json.dumps(stored))
    assert bare("logout").status == 0
    assert api.tokens == {TOKEN}
    assert bare("whoami", "--json").json["code"] == "no_server"


# ingest


def test_ingest_makes_the_collection_and_says_what_became_of_each_file(api: ScriptedApi, cli: Cli, place: Path) -> None:
    files(place / "in", good="a", locked="b")
    working = {"state": "parsing", "pages_total": 3, "pages_indexed": 0}
    api.states["good.txt"] = [working, working, {"state": "indexed", "pages_indexed": 3}]
    api.states["locked.txt"] = [{"state": "needs_password", "code": "needs_password", "message": "It is encrypted."}]
    outcome = cli("ingest", "in", "in/absent.txt", "--collection", "letters", "--json")
    assert outcome.status == 3
    assert [c["name"] for c in api.collections.values()] == ["letters"]
    good, locked, absent = outcome.json["files"]
    assert good.keys() >= INGEST_KEYS
    assert (good["path"], good["state"], good["code"]) == ("in/good.txt", "indexed", None)
    assert (good["pages_total"], good["pages_indexed"]) == (3, 3)
    assert good["document_id"] in api.documents
    assert (locked["state"], locked["code"], locked["message"]) == (
        "needs_password", "needs_password", "It is encrypted.",
    )  # fmt: skip
    assert (absent["path"], absent["state"], absent["code"]) == ("in/absent.txt", "failed", "unreadable")
    assert absent["document_id"] is None


def test_ingest_of_good_files_is_zero_and_again_is_harmless(api: ScriptedApi, cli: Cli, place: Path) -> None:
    files(place / "in", one="1", two="2")
    for _ in range(2):
        outcome = cli("ingest", "in", "-c", "letters", "--json")
        assert outcome.status == 0
    assert [file["duplicate"] for file in outcome.json["files"]] == [True, True]
    assert sorted(api.names()) == ["one.txt", "two.txt"]


def test_ingest_says_it_to_people_too(api: ScriptedApi, cli: Cli, place: Path) -> None:
    files(place / "in", bad="b", good="a")
    (place / "in" / ".hidden").write_text("x")
    api.states["bad.txt"] = [{"state": "failed", "code": "corrupt", "message": "The file is \x1b[31mdamaged."}]
    outcome = cli("ingest", "in", "-c", "letters")
    assert outcome.status == 3
    assert "The file is \ufffd[31mdamaged. (corrupt)" in outcome.out
    assert "1 of 2 files indexed" in outcome.out
    assert "1 hidden" in outcome.err


def test_a_partial_document_is_not_indexed(api: ScriptedApi, cli: Cli, place: Path) -> None:
    files(place / "in", half="a")
    api.states["half.txt"] = [{"state": "partial", "pages_total": 2, "pages_indexed": 1}]
    assert cli("ingest", "in", "-c", "letters", "--json").status == 3


def test_ingest_without_waiting_asks_nothing(api: ScriptedApi, cli: Cli, place: Path) -> None:
    files(place / "in", long="a")
    api.states["long.txt"] = [{"state": "received"}]
    outcome = cli("ingest", "in", "-c", "letters", "--no-wait", "--json")
    assert (outcome.status, outcome.json["files"][0]["state"]) == (0, "received")
    assert not [r for r in api.requests if r.startswith("GET /api/v1/documents/")]


def test_ingest_outlives_a_restart(api: ScriptedApi, cli: Cli, place: Path) -> None:
    files(place / "in", one="1", two="2", three="3")
    api.states["two.txt"] = [{"state": "parsing"}, {"state": "indexed"}]
    api.refusals = [503, 0, 502, 0, 429]
    outcome = cli("ingest", "in", "-c", "letters", "--json")
    assert outcome.status == 0, outcome.out
    assert sorted(api.names()) == ["one.txt", "three.txt", "two.txt"]
    assert len(api.collections) == 1
    assert not api.refusals


def test_ingest_waits_for_a_server_that_starts(bare: Cli, place: Path) -> None:
    files(place / "in", one="1")
    with scripted_api(delay_s=1.0) as late:
        outcome = bare("ingest", "in", "-c", "letters", "--json", "--url", late.url, "--api-key", TOKEN)
        assert outcome.status == 0, outcome.out


def test_a_refused_file_does_not_stop_the_others(api: ScriptedApi, cli: Cli, place: Path) -> None:
    files(place / "in", refused_one="1", two="2")
    outcome = cli("ingest", "in", "-c", "letters", "--json")
    assert outcome.status == 3
    assert [file["code"] for file in outcome.json["files"]] == ["bad_name", None]


def test_a_dead_key_stops_everything(api: ScriptedApi, cli: Cli, place: Path) -> None:
    outcome = cli("ingest", str(files(place / "in", one="1")), "-c", "letters", "--json", key="revoked")
    assert outcome.status == 1
    assert outcome.json["code"] == "bad_token"


def test_a_document_deleted_meanwhile_ends_the_waiting(api: ScriptedApi, cli: Cli, place: Path) -> None:
    files(place / "in", gone="1")
    api.states["gone.txt"] = [{"state": "parsing"}]
    api.seen = lambda document: api.documents.pop(document["id"])  # type: ignore[method-assign]
    outcome = cli("ingest", "in", "-c", "letters", "--json")
    assert (outcome.status, outcome.json["files"][0]["code"]) == (3, "deleted")


def test_interrupting_stops_the_watching_and_says_how_to_go_on(api: ScriptedApi, place: Path) -> None:
    files(place / "in", long="1")
    api.states["long.txt"] = [{"state": "parsing"}]
    command = [sys.executable, "-m", "app.cli", "ingest", "in", "-c", "letters"]
    environment = {**os.environ, "FULLREAD_URL": api.url, "FULLREAD_API_KEY": TOKEN, "PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not any(r.startswith("GET /api/v1/documents/") for r in api.requests):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "goes on" in said
    assert "fullread documents -c letters" in said
    assert "Traceback" not in said


# search


def test_search_json_is_the_hits(api: ScriptedApi, cli: Cli) -> None:
    api.collection("letters")
    api.hits = [{"document": "a.txt", "document_id": "d", "page": 1, "page_to": 1, "text": "Cap.", "score": 0.5}]
    outcome = cli("search", "cap", "--collection", "letters", "--limit", "3", "--json")
    assert (outcome.status, outcome.json["hits"]) == (0, api.hits)
    assert api.bodies == [{"query": "cap", "limit": 3}]


def test_the_collection_is_needed_only_when_there_are_several(api: ScriptedApi, cli: Cli) -> None:
    assert cli("search", "x", "--json").json["code"] == "no_collections"
    only = api.collection("letters")
    assert cli("search", "x").status == 0
    assert cli("search", "x", "-c", "LETTERS").status == 0
    assert cli("search", "x", "-c", only["id"]).status == 0
    api.collection("archive")
    outcome = cli("search", "x")
    assert outcome.status == 2
    assert "letters, archive" in outcome.err
    assert cli("search", "x", "-c", "nowhere", "--json").json["code"] == "collection_not_found"
