"""What the local stack keeps on disk: the data directory's layout, its owner's lock, its mark, its state file."""

import fcntl
import json
import os
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from app.core.errors import ConflictError, InvalidInputError

Phase = Literal["starting", "ready", "stopping", "failed"]
_LOCK_TRIES = 5
_LOCK_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Home:
    """The data directory and where everything lies in it."""

    root: Path

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets"

    @property
    def blobs(self) -> Path:
        return self.root / "blobs"

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"

    @property
    def vectors(self) -> Path:
        return self.root / "vectors"

    @property
    def admin_file(self) -> Path:
        return self.root / "admin.json"

    @property
    def state_file(self) -> Path:
        return self.run / "stack.json"

    @property
    def ports_file(self) -> Path:
        return self.run / "ports.json"

    @property
    def lock_file(self) -> Path:
        return self.run / "lock"

    @property
    def identity_file(self) -> Path:
        return self.run / "identity.json"

    def log_file(self, service: str) -> Path:
        """The log of one service."""
        return self.log / f"{service}.log"


@dataclass(frozen=True, slots=True)
class ServiceState:
    """One line of the state file; `created` is the process's start time, which tells a reused pid apart."""

    name: str
    pid: int | None
    created: float | None
    port: int | None
    url: str
    state: str
    restarts: int


@dataclass(frozen=True, slots=True)
class StackState:
    """What the supervisor last wrote; `failure` names what stopped the start."""

    pid: int
    phase: Phase
    api_url: str
    data_dir: str
    started_at: str
    services: tuple[ServiceState, ...]
    failure: str = ""

    @classmethod
    def read(cls, home: Home) -> Self | None:
        """The stored state; None when there is none or it cannot be read."""
        try:
            stored = json.loads(home.state_file.read_text())
            services = tuple(ServiceState(**line) for line in stored.pop("services"))
            return cls(services=services, **stored)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def write(self, home: Home) -> None:
        """Replace the state file in one step."""
        write_private(home.state_file, json.dumps(asdict(self), indent=1), durable=False)


def write_private(path: Path, text: str, *, durable: bool = True) -> None:
    """Write a 0600 file so that a reader, or a crash, sees the old text or the new and nothing between."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def open_home(data_dir: Path) -> Home:
    """Make the data directory (0700) and its folders. Raises InvalidInputError when it cannot be used."""
    home = Home(data_dir.expanduser().resolve())
    try:
        home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (home.run, home.log, home.secrets, home.blobs, home.vectors):
            folder.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=home.run):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInputError(
            "data_dir_unusable", f"The data directory {home.root} cannot be used: {reason}. Give another with --data."
        ) from error
    return home


class Lock:
    """The data directory's one owner. The kernel lets go of it however the owner ends; children do not inherit it."""

    def __init__(self, home: Home) -> None:
        self._descriptor = os.open(home.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not self._taken():
            owner = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._descriptor)
            raise ConflictError(
                "stack_running",
                f"Already running on {home.root} (pid {owner}). Stop it with `fullread down --data {home.root}`.",
                pid=int(owner) if owner.isdigit() else None,
            )
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def _taken(self) -> bool:
        for attempt in range(_LOCK_TRIES):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                # `status` holds a shared lock for an instant: that is no owner.
                if attempt < _LOCK_TRIES - 1:
                    time.sleep(_LOCK_PAUSE_S)
            else:
                return True
        return False

    def release(self) -> None:
        """Give the directory up."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def owner_pid(home: Home) -> int | None:
    """The pid of the supervisor that holds the directory now; None when nobody does."""
    try:
        descriptor = os.open(home.lock_file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # A shared, non-blocking probe: it fails only while an owner holds the exclusive lock.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        return int(text) if text.isdigit() else None
    else:
        return None
    finally:
        os.close(descriptor)


def identity(home: Home) -> str:
    """The mark that this directory's processes carry. A copied or moved directory gets a new one, so that two copies
    never take each other's processes for their own."""
    place = {"path": str(home.root), "inode": home.root.stat().st_ino}
    try:
        stored: Mapping[str, Any] = json.loads(home.identity_file.read_text())
        if {name: stored.get(name) for name in place} == place:
            return str(uuid.UUID(stored["stack_id"]))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass
    stack_id = str(uuid.uuid4())
    write_private(home.identity_file, json.dumps({"stack_id": stack_id, **place}))
    return stack_id


def read_admin(home: Home) -> dict[str, str] | None:
    """The first admin's {email, password, api_key, api_url}; None before the first start."""
    try:
        stored = json.loads(home.admin_file.read_text())
    except (OSError, ValueError):
        return None
    return {str(key): str(value) for key, value in stored.items()} if isinstance(stored, dict) else None
