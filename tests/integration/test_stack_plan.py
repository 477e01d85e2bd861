"""What the local stack decides before it starts anything: services, ports, secrets, environments, identity."""

import asyncio
import importlib.util
import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from app.core.errors import ConflictError, InvalidInputError, UnavailableError
from app.local import ports, processes
from app.local.state import Home, Lock, identity, open_home, owner_pid, read_admin
from app.local.supervisor import restart_delay_s
from app.local.table import Plan, ServiceSpec, plan, shown_url, store_admin
from app.settings import Settings


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return open_home(tmp_path / "data")


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for name in ("e5", "smollm2"):
        (tmp_path / "models" / name).mkdir(parents=True)
    return tmp_path / "models"


def made(home: Home, models: Path, inherited: dict[str, str] | None = None, **settings: Any) -> Plan:
    return plan(home, Settings(FULLREAD_MODELS_DIR=models, **settings), inherited or {"PATH": "/usr/bin"})


def named(chosen: Plan) -> dict[str, ServiceSpec]:
    return {spec.name: spec for spec in chosen.services}


def test_without_urls_everything_is_started(home: Home, models: Path) -> None:
    chosen = made(home, models)
    assert [spec.name for spec in chosen.services] == [
        "postgres", "valkey", "vectors", "embeddings", "engine",
        "prepare", "api", "worker-ingest", "worker-control", "beat",
    ]  # fmt: skip
    specs = named(chosen)
    assert not [spec.name for spec in chosen.services if spec.external_url or not spec.command]
    assert {name: spec.nice for name, spec in specs.items() if spec.nice} == {"worker-ingest": 19}
    assert not [spec for spec in chosen.services[:5] if spec.depends_on]
    assert {spec.depends_on for spec in chosen.services[6:]} == {("prepare",)}
    told = specs["api"].environment
    assert told["DATABASE_URL"].startswith("postgresql+psycopg://fullread_app:")
    assert told["QDRANT_URL"] == f"http://127.0.0.1:{specs['vectors'].port}"
    assert told["FULLREAD_BLOB_DIR"] == str(home.blobs)
    assert told["FULLREAD_PUBLIC_URL"] == chosen.api_url
    assert len(told["FULLREAD_SECRET_KEY"]) >= 32


def test_only_prepare_gets_the_owner_of_the_tables(home: Home, models: Path) -> None:
    owners = [spec.name for spec in made(home, models).services if "DATABASE_OWNER_URL" in spec.environment]
    assert owners == ["prepare"]


def test_given_urls_are_used_and_shown_without_credentials(home: Home, models: Path) -> None:
    url = "https://user:secret@vectors.example:6333/q?api-key=secret"
    chosen = made(home, models, QDRANT_URL=url, REDIS_URL="redis://:secret@cache.example:6379/0")
    specs = named(chosen)
    assert specs["vectors"].external_url == url
    assert specs["vectors"].command == specs["valkey"].command == ()
    assert shown_url(specs["vectors"]) == "https://vectors.example:6333/q"
    assert shown_url(specs["valkey"]) == "redis://cache.example:6379/0"
    # The children inherit the given variables; ours must not replace them.
    assert not {"QDRANT_URL", "QDRANT_API_KEY", "REDIS_URL"} & set(specs["api"].environment)
    assert "ENGINE_URL" in specs["api"].environment


def test_given_database_needs_its_owner_for_migrations(home: Home, models: Path) -> None:
    given = {"DATABASE_URL": "postgresql+psycopg://a@h/d", "DATABASE_PLATFORM_URL": "postgresql+psycopg://p@h/d"}
    with pytest.raises(InvalidInputError, match="DATABASE_OWNER_URL"):
        made(home, models, **given)
    chosen = named(made(home, models, **given, DATABASE_OWNER_URL="postgresql+psycopg://o@h/d"))
    assert chosen["postgres"].external_url == given["DATABASE_URL"]
    assert chosen["prepare"].environment["DATABASE_OWNER_URL"] == "postgresql+psycopg://o@h/d"


def test_missing_models_are_named_with_the_command_that_brings_them(home: Home, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"embeddings and engine are not in .*fullread models pull"):
        made(home, tmp_path / "none")
    chosen = plan(
        home, Settings(FULLREAD_MODELS_DIR=tmp_path, EMBEDDINGS_URL="http://h"), {}, gguf=tmp_path / "own.gguf"
    )
    assert named(chosen)["engine"].command[-2:] == ("--gguf", str(tmp_path / "own.gguf"))


def test_children_are_not_led_elsewhere(home: Home, models: Path) -> None:
    inherited = {"PATH": "/usr/bin", "PGHOST": "elsewhere", "http_proxy": "http://proxy:1", "NO_PROXY": "intranet"}
    environment = made(home, models, inherited).environment
    assert "PGHOST" not in environment
    assert environment["NO_PROXY"] == environment["no_proxy"] == "127.0.0.1,localhost,intranet"
    assert environment["PATH"] == "/usr/bin"


def test_children_find_compiled_modules(home: Home, models: Path) -> None:
    compiled = Path(importlib.util.cache_from_source(sqlalchemy.__file__)).exists()
    for inherited in ({"PYTHONDONTWRITEBYTECODE": "1"}, {"PATH": "/usr/bin"}):
        environment = made(home, models, inherited).environment
        kept_beside = compiled or "PYTHONPYCACHEPREFIX" in environment or "PYTHONDONTWRITEBYTECODE" not in environment
        assert kept_beside, environment
    own = made(home, models, {"PYTHONPYCACHEPREFIX": "/own", "PYTHONDONTWRITEBYTECODE": "1"}).environment
    assert own["PYTHONPYCACHEPREFIX"] == "/own"


def test_secrets_are_made_once(home: Home, models: Path) -> None:
    first = named(made(home, models))["api"].environment
    again = named(made(home, models))["api"].environment
    assert first == again
    other = named(made(open_home(home.root.parent / "other"), models))["api"].environment
    assert other["FULLREAD_SECRET_KEY"] != first["FULLREAD_SECRET_KEY"]
    assert other["DATABASE_URL"] != first["DATABASE_URL"]


def test_ports_are_kept_when_free_and_avoided_when_taken() -> None:
    first = ports.choose(["a", "b", "api"], {}, api_port=None)
    assert len(set(first.values())) == 3
    assert ports.choose(["a", "b", "api"], first, api_port=None) == first
    with socket.create_server(("127.0.0.1", first["a"])), socket.create_server(("127.0.0.1", first["api"])):
        again = ports.choose(["a", "b", "api"], first, api_port=None)
        assert again["a"] != first["a"]
        assert again["api"] != first["api"]
        assert again["b"] == first["b"]
        with pytest.raises(ConflictError, match=str(first["api"])):
            ports.choose(["api"], {}, api_port=first["api"])


def test_api_port_that_is_asked_for_is_taken_from_nobody_else(home: Home) -> None:
    wanted = ports.choose(["x"], {}, api_port=None)["x"]
    assert ports.choose(["a", "api"], {"a": wanted}, api_port=wanted)["api"] == wanted
    assert ports.choose(["a", "api"], {"a": wanted}, api_port=wanted)["a"] != wanted


def test_damaged_port_file_is_no_failure(home: Home) -> None:
    home.ports_file.write_text("[not json")
    assert ports.remembered(home.ports_file) == {}


def test_back_off_doubles_to_its_limit() -> None:
    assert [restart_delay_s(n) for n in (1, 2, 3, 4, 5, 6, 40)] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_copied_directory_has_another_identity(home: Home) -> None:
    mark = identity(home)
    assert identity(home) == mark
    copy = home.root.parent / "copy"
    shutil.copytree(home.root, copy)
    assert identity(Home(copy)) != mark


def test_directory_has_one_owner(home: Home) -> None:
    assert owner_pid(home) is None
    with Lock(home):
        with pytest.raises(ConflictError, match="Already running"):
            Lock(home)
        assert owner_pid(home) is not None
    assert owner_pid(home) is None
    Lock(home).release()


def test_unusable_directory_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match="--data"):
        open_home(tmp_path / "file")


def test_first_admin_is_kept_and_later_only_its_address_changes(home: Home) -> None:
    answer = home.run / "answer.json"
    first = {"created": True, "tenant_id": "t", "email": "a@b", "password": "p", "api_key": "k"}
    answer.write_text(f"a line before it\n{json.dumps(first)}\n")
    store_admin(home, answer, "http://127.0.0.1:1")
    assert home.admin_file.stat().st_mode & 0o777 == 0o600
    assert not answer.exists()
    answer.write_text('{"created": false}')
    store_admin(home, answer, "http://127.0.0.1:2")
    assert read_admin(home) == {"email": "a@b", "password": "p", "api_key": "k", "api_url": "http://127.0.0.1:2"}
    answer.write_text("")
    with pytest.raises(UnavailableError, match="JSON"):
        store_admin(home, answer, "http://127.0.0.1:2")


def test_answer_of_a_killed_start_is_not_lost(home: Home, models: Path) -> None:
    prepare = named(made(home, models))["prepare"]
    assert prepare.stdout_path is not None
    assert prepare.before_start is not None
    first = {"created": True, "tenant_id": "t", "email": "a@b", "password": "p", "api_key": "k"}
    prepare.stdout_path.write_text(json.dumps(first))
    asyncio.run(prepare.before_start())
    kept = read_admin(home)
    assert kept is not None
    assert kept["password"] == "p"


def test_nothing_waits_for_a_migration_that_is_done(home: Home, models: Path) -> None:
    (home.postgres / "global").mkdir(parents=True)
    control = home.postgres / "global" / "pg_control"
    control.write_bytes(b"cluster1 and more")
    prepare = named(made(home, models))["prepare"]
    assert prepare.stdout_path is not None
    assert prepare.after_healthy is not None
    prepare.stdout_path.write_text('{"created": false}')
    asyncio.run(prepare.after_healthy())
    servers = ("postgres", "valkey", "vectors")
    again = made(home, models).services[5:]
    assert [spec.name for spec in again] == ["api", "worker-ingest", "worker-control", "beat"]
    assert {spec.depends_on for spec in again} == {servers}
    control.write_bytes(b"cluster2 and more")
    assert {spec.depends_on for spec in made(home, models).services[6:]} == {("prepare",)}


def test_log_is_rotated_over_its_limit(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("1234567890")
    processes.rotate(log, limit_bytes=10)
    assert log.exists()
    processes.rotate(log, limit_bytes=9)
    assert not log.exists()
    assert (tmp_path / "x.log.1").read_text() == "1234567890"


def test_tail_is_short_and_survives_odd_bytes(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(b"\xff\n" * 100_000 + b"last")
    assert processes.tail(log, lines=2).splitlines()[-1] == "last"
    assert processes.tail(tmp_path / "none") == ""
