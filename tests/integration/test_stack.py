"""The local stack's supervisor over a short list of real servers: order, restarts, leftovers, refusals, stopping."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import psutil
import psycopg
import pytest
import redis

from app.local import processes
from app.local.ports import remembered
from app.local.state import Home, StackState, identity, open_home, owner_pid

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
STARTED = ["one", "two", "three"]


class Trial:
    """One run of the small stack as a process of its own."""

    def __init__(self, data: Path, *flags: str, python: str = sys.executable, **options: Any) -> None:
        self.home = Home(data.resolve())
        self.notices_path = Path(tempfile.mkstemp(prefix="fullread-notices-")[1])
        with self.notices_path.open("wb") as out:
            self.process = subprocess.Popen(
                [python, "-m", "tests.support.small_stack", str(data), *flags],
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
                **options,
            )

    def notices(self, *kinds: str) -> list[dict[str, Any]]:
        lines = [line for line in self.notices_path.read_text().splitlines() if line.startswith("{")]
        found = [json.loads(line) for line in lines]
        return [notice for notice in found if notice["kind"] in kinds] if kinds else found

    def until(self, true: Callable[[], Any], timeout_s: float = 30.0) -> Any:
        deadline = time.monotonic() + timeout_s
        while not (value := true()):
            assert time.monotonic() < deadline, self.notices_path.read_text()
            time.sleep(0.05)
        return value

    def ready(self) -> Self:
        self.until(lambda: self.notices("ready") or self.process.poll() is not None)
        assert self.notices("ready"), self.notices_path.read_text()
        return self

    def pid(self, service: str) -> int | None:
        state = StackState.read(self.home)
        assert state is not None
        return {line.name: line.pid for line in state.services}[service]

    def restarted(self, service: str, old_pid: int) -> int:
        def again() -> int | None:
            state = StackState.read(self.home)
            line = {line.name: line for line in state.services}[service] if state else None
            return line.pid if line and line.state == "running" and line.pid not in (None, old_pid) else None

        return int(self.until(again))

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(30)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self.notices_path.unlink()


def alive(pid: int | None) -> bool:
    """Whether it runs; a zombie that its new parent has not collected does not."""
    try:
        return pid is not None and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def command_lines() -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue  # it ended while we looked
    return found


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    """One data directory for the module: the first start makes the cluster, later ones find it."""
    folder = Path(tempfile.mkdtemp(prefix="fullread-stack-"))
    yield folder / "data"
    for process in processes.marked(identity(open_home(folder / "data"))):
        process.kill()
    shutil.rmtree(folder)


def secret(home: Home, name: str) -> str:
    return (home.secrets / name).read_text()


def login(home: Home, role: str, password: str, database: str = "fullread") -> psycopg.Connection[Any]:
    port = remembered(home.ports_file)["postgres"]
    return psycopg.connect(host="127.0.0.1", port=port, user=role, password=password, dbname=database)


def test_starts_in_order_and_stops_in_reverse(data: Path) -> None:
    with Trial(data) as trial:
        trial.ready()
        healthy = [notice["service"] for notice in trial.notices("healthy")]
        assert sorted(healthy[:2]) == ["postgres", "valkey"]
        assert healthy[2:] == STARTED
        assert owner_pid(trial.home) == trial.process.pid
        assert trial.end(signal.SIGINT) == 0
        stopped = [notice["service"] for notice in trial.notices("stopped")]
        assert stopped[:3] == STARTED[::-1]
        assert sorted(stopped[3:]) == ["postgres", "valkey"]
        assert not trial.home.state_file.exists()
        assert owner_pid(trial.home) is None
        assert processes.marked(identity(trial.home)) == []


def test_background_service_is_nice_and_the_supervisor_has_one_thread(data: Path) -> None:
    with Trial(data) as trial:
        trial.ready()
        niceness = {name: psutil.Process(trial.pid(name)).nice() for name in STARTED}
        assert niceness == {"one": 0, "two": 19, "three": 0}
        # Between sessions nice means nothing (autogroup); between process groups Ctrl-C does not pass.
        pids = [trial.pid(name) or 0 for name in STARTED]
        assert {os.getsid(pid) for pid in pids} == {os.getsid(trial.process.pid)}
        assert len({os.getpgid(pid) for pid in [trial.process.pid, *pids]}) == 4
        # A second thread would make the code between fork and exec unsafe.
        assert psutil.Process(trial.process.pid).num_threads() == 1


def test_database_and_broker_take_passwords_only(data: Path) -> None:
    with Trial(data) as trial:
        home = trial.ready().home
        with login(home, "fullread_owner", secret(home, "fullread_owner")) as connection:
            rows = connection.execute(
                "SELECT rolname, rolsuper, rolbypassrls, rolcreatedb, rolcreaterole, rolcanlogin FROM pg_roles"
                " WHERE rolname LIKE 'fullread%' ORDER BY 1"
            ).fetchall()
            owner = connection.execute(
                "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'fullread'"
            ).fetchone()
        names = ["fullread_app", "fullread_bi", "fullread_owner", "fullread_platform"]
        assert rows == [(name, False, False, False, False, True) for name in names]
        assert owner == ("fullread_owner",)
        for role in ("fullread_app", "postgres"):
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                login(home, role, "wrong")
        with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
            login(home, "fullread_bi", secret(home, "fullread_bi"), database="postgres")
        port = remembered(home.ports_file)["valkey"]
        with redis.Redis(port=port) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
        with redis.Redis(port=port, password=secret(home, "valkey")) as broker:
            assert broker.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert broker.config_get("save") == {"save": ""}


def test_no_secret_on_a_command_line_or_open_to_others(data: Path) -> None:
    with Trial(data) as trial:
        home = trial.ready().home
        secrets = [path.read_text() for path in home.secrets.iterdir()]
        assert len(secrets) == 10
        lines = command_lines()
        assert any("postgres" in line for line in lines)
        assert not [line for line in lines if any(word in line for word in secrets)]
        logs = [path.read_text() for path in home.log.iterdir()]
        assert not [text for text in logs if any(word in text for word in secrets)]
        kept = [*home.secrets.iterdir(), *home.log.iterdir(), *(p for p in home.run.iterdir() if p.is_file())]
        assert {path.stat().st_mode & 0o077 for path in [home.root, *kept]} == {0}


def test_listens_on_loopback_only(data: Path) -> None:
    with Trial(data) as trial:
        trial.ready()
        addresses = set()
        for process in processes.marked(identity(trial.home)):
            addresses |= {c.laddr.ip for c in process.net_connections("all") if c.status == psutil.CONN_LISTEN}
            assert not [c for c in process.net_connections("unix") if str(c.laddr).endswith(".s.PGSQL")]
        assert addresses == {"127.0.0.1"}


@pytest.mark.parametrize("service", ["valkey", "two", "postgres"])
def test_killed_child_comes_back_and_is_named(data: Path, service: str) -> None:
    with Trial(data) as trial:
        home = trial.ready().home
        with login(home, "fullread_owner", secret(home, "fullread_owner")) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS kept (n int)")
            connection.execute("INSERT INTO kept VALUES (1)")
        old_pid = trial.pid(service)
        assert old_pid is not None
        before = {p.pid for p in processes.marked(identity(home), service)}
        began = time.monotonic()
        os.kill(old_pid, signal.SIGKILL)
        trial.restarted(service, old_pid)
        assert time.monotonic() - began < 12
        crashed = trial.notices("crashed")
        assert {notice["service"] for notice in crashed} == {service}
        assert "SIGKILL" in crashed[0]["text"]
        assert "0.2 s" in crashed[0]["text"]
        # What the killed process had started does not go on beside its successor.
        assert not before & {p.pid for p in processes.marked(identity(home), service)}
        with login(home, "fullread_owner", secret(home, "fullread_owner")) as connection:
            assert connection.execute("SELECT count(*) > 0 FROM kept").fetchone() == (True,)


def test_back_off_doubles(data: Path) -> None:
    with Trial(data) as trial:
        trial.ready()
        pid = trial.pid("one")
        for _ in range(3):
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            pid = trial.restarted("one", pid)
        delays = [notice["text"].rsplit(" in ", 1)[1] for notice in trial.notices("crashed")]
        assert delays == ["0.2 s", "0.4 s", "0.8 s"]
        state = StackState.read(trial.home)
        assert state is not None
        assert {line.name: line.restarts for line in state.services}["one"] == 3


def test_killed_supervisor_leaves_what_the_next_start_ends(data: Path) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        with Trial(data, "--stubborn") as first:
            first.ready()
            mark = identity(first.home)
            two = first.pid("two")
            first.end(signal.SIGKILL)
            # It ignores SIGTERM, and its child was told nothing: both outlive the supervisor.
            first.until(lambda: not alive(first.pid("one")))
            left = {process.pid for process in processes.marked(mark)}
            assert two in left
            assert len(left) >= 2
            assert owner_pid(first.home) is None
            with Trial(data) as second:
                second.ready()
                assert second.notices("leftover")
                assert not [pid for pid in left if alive(pid)]
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_second_start_is_refused_with_the_owners_pid(data: Path) -> None:
    with Trial(data) as first:
        first.ready()
        with Trial(data) as second:
            assert second.process.wait(20) == 1
            refused = second.notices("refused")[0]
            assert refused["facts"] == {"pid": first.process.pid}
            assert str(first.process.pid) in refused["text"]
        assert first.process.poll() is None
        assert alive(first.pid("one"))


def test_port_that_was_taken_meanwhile_is_avoided(data: Path) -> None:
    with Trial(data) as trial:
        trial.ready()
    ports = remembered(trial.home.ports_file)
    code = f"import socket, time; s = socket.create_server(('127.0.0.1', {ports['valkey']})); time.sleep(600)"
    stranger = subprocess.Popen([sys.executable, "-c", code])
    try:
        time.sleep(0.5)
        with Trial(data) as trial:
            trial.ready()
            now = remembered(trial.home.ports_file)
        assert now["valkey"] != ports["valkey"]
        assert {name: port for name, port in now.items() if name != "valkey"} == {
            name: port for name, port in ports.items() if name != "valkey"
        }
    finally:
        stranger.kill()
        stranger.wait()


def test_service_that_cannot_start_ends_the_start_and_says_why(data: Path) -> None:
    with Trial(data, "--broken") as trial:
        assert trial.process.wait(40) == 1
        assert "two exited with status 1" in trial.notices("failed")[0]["text"]
        assert "no model here" in trial.notices("failed")[0]["text"]
        state = StackState.read(trial.home)
        assert state is not None
        assert state.phase == "failed"
        assert "no model here" in state.failure
        assert processes.marked(identity(trial.home)) == []


def test_stubborn_service_is_killed_after_its_time(data: Path) -> None:
    with Trial(data, "--stubborn") as trial:
        trial.ready()
        assert trial.end(signal.SIGTERM) == 0
        codes = {notice["service"]: notice["text"] for notice in trial.notices("stopped")}
        assert codes["two"] == "exit SIGKILL"
        assert [notice["service"] for notice in trial.notices("stopped")][:3] == STARTED[::-1]
        assert processes.marked(identity(trial.home)) == []


def test_stale_lock_of_a_reused_pid_does_not_stop_postgres(data: Path) -> None:
    with Trial(data) as trial:
        trial.ready()
        text = (trial.home.postgres / "postmaster.pid").read_text()
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        _, rest = text.split("\n", 1)
        (trial.home.postgres / "postmaster.pid").write_text(f"{stranger.pid}\n{rest}")
        with Trial(data) as trial:
            trial.ready()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def nobody_python() -> str | None:
    """An interpreter of this version that another user may run, with this one's packages."""
    for candidate in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        trial = [candidate, "-c", "import psycopg, psutil, pydantic_settings"]
        try:
            done = subprocess.run(
                trial, user=NOBODY, group=NOBODY, extra_groups=[], env=nobody_environment(), capture_output=True
            )
        except OSError:
            continue
        if done.returncode == 0:
            return candidate
    return None


def nobody_environment() -> dict[str, str]:
    packages = [path for path in sys.path if path.endswith("site-packages")]
    return {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join([str(ROOT), *packages]), "HOME": "/nonexistent"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user; the other tests run as this one")
def test_runs_as_a_normal_user() -> None:
    python = nobody_python()
    if python is None:
        pytest.skip("no interpreter that another user may run")
    folder = Path(tempfile.mkdtemp(prefix="fullread-nobody-"))
    os.chown(folder, NOBODY, NOBODY)
    try:
        options: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "env": nobody_environment()}
        with Trial(folder / "data", python=python, **options) as trial:
            trial.ready()
            assert {process.uids().real for process in processes.marked(identity(trial.home))} == {NOBODY}
            postgres = trial.pid("postgres")
            assert postgres is not None
            assert "unshare" not in psutil.Process(postgres).cmdline()[0]
            assert trial.end() == 0
    finally:
        shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another account for PostgreSQL")
def test_root_without_user_namespaces_becomes_nobody_or_says_what_to_do() -> None:
    folder = Path(tempfile.mkdtemp(prefix="fullread-root-"))
    environment = {**os.environ, "PATH": "/nonexistent"}  # no `unshare` there
    try:
        with Trial(folder / "data", env=environment) as trial:
            # The folder above is root's alone, and its rights are not ours to open.
            assert trial.process.wait(20) == 1
            assert "Run fullread as a normal user, or give DATABASE_URL" in trial.notices("refused")[0]["text"]
            assert folder.stat().st_mode & 0o777 == 0o700
        folder.chmod(0o711)
        shutil.rmtree(folder / "data")
        with Trial(folder / "data", env=environment) as trial:
            trial.ready()
            postgres = trial.pid("postgres")
            assert postgres is not None
            assert psutil.Process(postgres).uids().real == NOBODY
            assert {name: trial.home.root.joinpath(name).stat().st_mode & 0o077 for name in ("secrets", "run")} == {
                "secrets": 0,
                "run": 0,
            }
        # Made by nobody, it goes on so where namespaces exist too.
        with Trial(folder / "data") as trial:
            trial.ready()
    finally:
        shutil.rmtree(folder)
