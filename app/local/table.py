"""The service list: which processes the local stack consists of, how each is started and checked, what each is told."""

import contextlib
import hashlib
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from app.core.errors import InvalidInputError, UnavailableError
from app.local import models, ports, postgres, valkey
from app.local.health import Check, http_ok, valkey_ping
from app.local.ports import HOST
from app.local.secrets import Secrets, load_or_create
from app.local.state import Home, write_private
from app.settings import Settings, instance_of

Step = Callable[[], Awaitable[None]]
_SYSTEM_IDENTIFIER_BYTES = 8
_PORT_OWNERS = ("postgres", "valkey", "vectors", "embeddings", "engine", "api")
# One thread per native pool: two children on two cores need no more, and spinning pools starve the engine.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """One line of the list. `external_url` set: used, never started. `one_shot`: healthy when it exited with 0."""

    name: str
    command: tuple[str, ...] = ()
    check: Check | None = None
    depends_on: tuple[str, ...] = ()
    url_env: str = ""
    external_url: str = ""
    url: str = ""
    port: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    nice: int = 0
    uid: int | None = None
    one_shot: bool = False
    stdout_path: Path | None = None
    before_start: Step | None = None
    after_healthy: Step | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    stop_timeout_s: float = 8.0
    start_timeout_s: float = 180.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What one start runs: the services, the common environment of all children and where people find it."""

    services: tuple[ServiceSpec, ...]
    environment: Mapping[str, str]
    api_url: str
    api_port: int


def plan(
    home: Home,
    settings: Settings,
    inherited: Mapping[str, str],
    *,
    api_port: int | None = None,
    gguf: Path | None = None,
) -> Plan:
    """Decide ports, secrets, commands and environments for this directory. The caller holds the directory's lock.

    Raises InvalidInputError for settings that do not go together, ConflictError when `api_port` is taken.
    """
    _check(settings)
    keys = load_or_create(home.secrets)
    external = _external(settings)
    _check_models(settings, external, gguf)
    names = [name for name in _PORT_OWNERS if name not in external]
    chosen = ports.choose(names, ports.remembered(home.ports_file), api_port=api_port)
    ports.remember(home.ports_file, chosen)
    api_url = f"http://{HOST}:{chosen['api']}"
    common = common_environment(home, inherited)
    told = _told(home, settings, keys, chosen, api_url, gguf)
    servers = _servers(home, settings, keys, chosen, external, common, gguf)
    return Plan((*servers, *_product(home, settings, keys, chosen, told)), common, api_url, chosen["api"])


def _check(settings: Settings) -> None:
    if settings.database_url and not settings.database_owner_url:
        raise InvalidInputError(
            "setting_missing",
            "DATABASE_URL is set, DATABASE_OWNER_URL is not: migrations need the role that owns the tables.",
        )


def _check_models(settings: Settings, external: Mapping[str, str], gguf: Path | None) -> None:
    """Say at once what a model server would only say in its log."""
    needed = {"embeddings": "e5"} if "embeddings" not in external else {}
    if "engine" not in external and gguf is None:
        needed["engine"] = "smollm2"
    models = settings.models_dir.expanduser()
    missing = [name for name, folder in needed.items() if not (models / folder).is_dir()]
    if missing:
        raise UnavailableError(
            "models_missing",
            f"The packaged models for {' and '.join(missing)} are not in {models}: run `fullread models pull` once.",
        )


def _external(settings: Settings) -> dict[str, str]:
    """The services that the settings already give an address."""
    given = {
        "postgres": settings.database_url,
        "valkey": settings.redis_url,
        "vectors": settings.qdrant_url,
        "embeddings": settings.embeddings_url,
        "engine": settings.engine_url,
    }
    return {name: url for name, url in given.items() if url}


def common_environment(home: Home, inherited: Mapping[str, str]) -> dict[str, str]:
    """What every child inherits: ours, less what would lead it elsewhere."""
    # libpq's own variables would steer the local server's clients; a proxy must not come between us and loopback.
    kept = {name: value for name, value in inherited.items() if not (name.startswith("PG") and name.isupper())}
    without = ",".join(filter(None, (HOST, "localhost", kept.get("NO_PROXY") or kept.get("no_proxy"))))
    root = str(Path(__file__).resolve().parents[2])
    path = kept.get("PYTHONPATH", "")
    if root not in path.split(":") and not root.endswith("site-packages"):
        path = f"{root}:{path}" if path else root
    if _compiles_every_time(kept):
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        kept["PYTHONPYCACHEPREFIX"] = str(home.root / "bytecode")
    return {
        **kept,
        "NO_PROXY": without,
        "no_proxy": without,
        "PYTHONUNBUFFERED": "1",
        # The folder that a user starts us in is not a place to import from.
        "PYTHONSAFEPATH": "1",
        **({"PYTHONPATH": path} if path else {}),
    }


def _compiles_every_time(inherited: Mapping[str, str]) -> bool:
    """Whether imports find no compiled modules and may keep none beside the sources: six seconds more per process."""
    spec = importlib.util.find_spec("sqlalchemy")
    if spec is None or spec.origin is None or inherited.get("PYTHONPYCACHEPREFIX"):
        return False
    if Path(importlib.util.cache_from_source(spec.origin)).exists():
        return False
    return bool(inherited.get("PYTHONDONTWRITEBYTECODE")) or not os.access(Path(spec.origin).parent, os.W_OK)


def _engine_model(settings: Settings, gguf: Path | None) -> str:
    """The model's name: the one that is set, else that of the file that is given, else the packaged one's."""
    if gguf is not None and "engine_model" not in settings.model_fields_set:
        return gguf.stem.lower()
    return settings.engine_model


def _packaged_digest(settings: Settings) -> str:
    """SHA-256 of the packaged model's weights, as the models folder's manifest has it; empty without one."""
    for model in models.installed(settings.models_dir.expanduser()):
        for file in model.files:
            if file.path == "smollm2/model.gguf":
                return file.sha256
    return ""


def _told(
    home: Home, settings: Settings, keys: Secrets, chosen: Mapping[str, int], api_url: str, gguf: Path | None
) -> dict[str, str]:
    """The variables of the API and the workers. The tables' owner is not among them: only `prepare` migrates."""
    own_engine = gguf is None and "engine" in chosen
    told = {
        "ENGINE_MODEL": _engine_model(settings, gguf),
        "ENGINE_MODEL_DIGEST": settings.engine_model_digest or (_packaged_digest(settings) if own_engine else ""),
        "FULLREAD_MODELS_DIR": str(settings.models_dir.expanduser().resolve()),
        "FULLREAD_BLOB_DIR": str(
            settings.blob_dir.expanduser().resolve() if "blob_dir" in settings.model_fields_set else home.blobs
        ),
        "FULLREAD_SECRET_KEY": settings.secret_key.get_secret_value() or keys.web,
        "FULLREAD_PUBLIC_URL": settings.public_url if "public_url" in settings.model_fields_set else api_url,
    }
    if port := chosen.get("postgres"):
        told["DATABASE_URL"] = postgres.url("fullread_app", keys.fullread_app, port)
        told["DATABASE_PLATFORM_URL"] = postgres.url("fullread_platform", keys.fullread_platform, port)
    if port := chosen.get("valkey"):
        told["REDIS_URL"] = valkey.url(keys.valkey, port)
    for name, prefix, key in (
        ("vectors", "QDRANT", keys.vectors),
        ("engine", "ENGINE", keys.engine),
        ("embeddings", "EMBEDDINGS", keys.embeddings),
    ):
        if port := chosen.get(name):
            told |= {f"{prefix}_URL": f"http://{HOST}:{port}", f"{prefix}_API_KEY": key}
    return told


def _servers(
    home: Home,
    settings: Settings,
    keys: Secrets,
    chosen: Mapping[str, int],
    external: Mapping[str, str],
    common: Mapping[str, str],
    gguf: Path | None,
) -> list[ServiceSpec]:
    """The services that stand on their own; all of them start at once."""
    found: list[ServiceSpec] = []
    variables = {
        "postgres": "DATABASE_URL",
        "valkey": "REDIS_URL",
        "vectors": "QDRANT_URL",
        "embeddings": "EMBEDDINGS_URL",
        "engine": "ENGINE_URL",
    }
    for name, variable in variables.items():
        if name in external:
            found.append(ServiceSpec(name, url_env=variable, external_url=external[name]))
        elif name == "postgres":
            found.append(_postgres(home, keys, chosen[name], common))
        elif name == "valkey":
            found.append(_valkey(home, keys, chosen[name]))
        else:
            found.append(_model_server(name, variable, home, settings, keys, chosen[name], gguf))
    return found


def _postgres(home: Home, keys: Secrets, port: int, common: Mapping[str, str]) -> ServiceSpec:
    account = postgres.account(home)

    async def make() -> None:
        await postgres.initialise(home, keys, account, common)

    async def provision() -> None:
        await postgres.provision(port, keys)

    return ServiceSpec(
        "postgres",
        command=postgres.server_command(home, account, port),
        check=postgres.accepts(port, keys.postgres),
        url_env="DATABASE_URL",
        url=f"postgresql://{HOST}:{port}/{postgres.DATABASE}",
        port=port,
        uid=account.uid,
        before_start=make,
        after_healthy=provision,
        # SIGINT is PostgreSQL's fast shutdown; SIGTERM would wait for its clients.
        stop_signal=signal.SIGINT,
        stop_timeout_s=15.0,
    )


def _valkey(home: Home, keys: Secrets, port: int) -> ServiceSpec:
    return ServiceSpec(
        "valkey",
        command=valkey.server_command(valkey.configure(home, port, keys.valkey)),
        check=valkey_ping(port, keys.valkey),
        url_env="REDIS_URL",
        url=f"redis://{HOST}:{port}/0",
        port=port,
    )


def _model_server(
    name: str, variable: str, home: Home, settings: Settings, keys: Secrets, port: int, gguf: Path | None
) -> ServiceSpec:
    models = settings.models_dir.expanduser().resolve()
    module = "embedder" if name == "embeddings" else name
    place = ("--data", str(home.vectors)) if name == "vectors" else ("--models", str(models))
    told: tuple[str, ...] = ()
    if name == "engine":
        told = ("--slots", str(settings.engine_slots), "--window-tokens", str(settings.engine_window_tokens))
        told += ("--model-id", _engine_model(settings, gguf))
        told += ("--gguf", str(gguf.expanduser().resolve())) if gguf is not None else ()
    return ServiceSpec(
        name,
        command=(
            *(sys.executable, "-m", f"app.local.{module}", *place),
            *("--port", str(port), "--api-key-file", str(keys.file(name)), *told),
        ),
        check=http_ok(port, "/readyz" if name == "vectors" else "/health"),
        url_env=variable,
        url=f"http://{HOST}:{port}",
        port=port,
    )


def _product(
    home: Home, settings: Settings, keys: Secrets, chosen: Mapping[str, int], told: Mapping[str, str]
) -> list[ServiceSpec]:
    """Migrations and the first admin, then the API, the workers and beat at once."""
    port = chosen["api"]
    api_url = f"http://{HOST}:{port}"
    owner_url = settings.database_owner_url
    if postgres_port := chosen.get("postgres"):
        owner_url = postgres.url("fullread_owner", keys.fullread_owner, postgres_port)
    first_admin = home.run / "first-admin.json"

    servers = ("postgres", "valkey", "vectors")
    schema = schema_fingerprint(home) if "postgres" in chosen else ""
    migrated = bool(schema) and _stored(home.run / "schema") == schema
    # With nothing to migrate, `prepare` would only cost seconds: the same cluster with the same migrations is prepared.
    after = servers if migrated else ("prepare",)

    async def keep_admin() -> None:
        store_admin(home, first_admin, api_url)
        write_private(home.run / "schema", schema_fingerprint(home))

    async def keep_address() -> None:
        _set_address(home, api_url)

    async def rescue_admin() -> None:
        # A supervisor that was killed between the answer and our file: the password is nowhere else.
        if first_admin.exists() and not home.admin_file.exists():
            with contextlib.suppress(UnavailableError):
                store_admin(home, first_admin, api_url)

    celery = (sys.executable, "-m", "celery", "-A", "workers.celery_app")
    # Mingling waits a second for neighbours that a local stack does not have.
    worker = ("worker", "-I", "workers.tasks", "--without-gossip", "--without-mingle", "--loglevel", settings.log_level)
    prepare = ServiceSpec(
        "prepare",
        command=(sys.executable, "-m", "app.bootstrap", "--json"),
        depends_on=servers,
        environment={**told, "DATABASE_OWNER_URL": owner_url},
        one_shot=True,
        stdout_path=first_admin,
        before_start=rescue_admin,
        after_healthy=keep_admin,
    )
    return [
        *(() if migrated else (prepare,)),
        ServiceSpec(
            "api",
            command=(
                *(sys.executable, "-m", "uvicorn", "app.main:create_app", "--factory", "--host", HOST),
                *("--port", str(port), "--no-access-log", "--no-server-header"),
                *("--timeout-graceful-shutdown", "3"),
            ),
            check=http_ok(port, "/healthz", instance_of(told["FULLREAD_SECRET_KEY"])),
            depends_on=after,
            after_healthy=keep_address,
            url=api_url,
            port=port,
            environment=told,
        ),
        ServiceSpec(
            "worker-ingest",
            command=(*celery, *worker, "-Q", "ingest", "-c", "2", "-n", "ingest@%h"),
            depends_on=after,
            environment={**told, **_ONE_THREAD},
            nice=19,
        ),
        ServiceSpec(
            "worker-control",
            command=(*celery, *worker, "-Q", "control,analysis", "-c", "2", "-n", "control@%h"),
            depends_on=after,
            environment={**told, **_ONE_THREAD},
        ),
        ServiceSpec(
            "beat",
            command=(*celery, "beat", "-s", str(home.run / "beat"), "--loglevel", settings.log_level, "--pidfile="),
            depends_on=after,
            environment={**told, **_ONE_THREAD},
        ),
    ]


def schema_fingerprint(home: Home) -> str:
    """Changes with the migrations that ship and with the cluster; empty while there is no cluster."""
    try:
        with (home.postgres / "global" / "pg_control").open("rb") as control:
            digest = hashlib.sha256(control.read(_SYSTEM_IDENTIFIER_BYTES))
    except OSError:
        return ""
    migrations = Path(__file__).resolve().parents[1] / "migrations"
    for path in sorted(migrations.rglob("*")):
        if path.is_file() and path.suffix in (".py", ".sql"):
            digest.update(f"\n{path.relative_to(migrations)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _stored(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def shown_url(spec: ServiceSpec) -> str:
    """A service's address without credentials, for tables and the state file."""
    if not spec.external_url:
        return spec.url
    parts = urlsplit(spec.external_url)
    host = f"{parts.hostname or ''}:{parts.port}" if parts.port else parts.hostname or ""
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def store_admin(home: Home, answer: Path, api_url: str) -> None:
    """Keep the first admin (0600), or only the API's present address when there was one before.

    `answer` is what `app.bootstrap --json` printed. Raises UnavailableError when it is no JSON object.
    """
    lines = answer.read_text().strip().splitlines()
    try:
        made = json.loads(lines[-1])
        created = bool(made["created"])
    except (IndexError, ValueError, TypeError, KeyError):
        raise UnavailableError("bootstrap_answer", "app.bootstrap did not print its JSON object.") from None
    if created:
        kept = {name: str(made[name]) for name in ("email", "password", "api_key")}
        write_private(home.admin_file, json.dumps({**kept, "api_url": api_url}, indent=1))
    else:
        _set_address(home, api_url)
    answer.unlink(missing_ok=True)


def _set_address(home: Home, api_url: str) -> None:
    """The command line finds the API through this file: its port may have changed since the last start."""
    if not home.admin_file.exists():
        return
    stored = json.loads(home.admin_file.read_text())
    if stored.get("api_url") != api_url:
        write_private(home.admin_file, json.dumps({**stored, "api_url": api_url}, indent=1))
