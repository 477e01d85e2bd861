"""Loopback ports of the local stack: free ones, the same ones as last time when they are still free."""

import json
import secrets
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from app.core.errors import ConflictError, UnavailableError
from app.local.state import write_private

HOST = "127.0.0.1"
DEFAULT_API_PORT = 8080
# Below the kernel's ephemeral range, so that no outgoing connection takes a port between the probe and the bind.
_FIRST_PORT, _LAST_PORT = 20000, 31999
_TRIES = 200


def is_free(port: int) -> bool:
    """Whether a server could listen on loopback `port` now (TIME_WAIT of an earlier server does not count)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
        return True


def choose(names: Iterable[str], remembered: Mapping[str, int], *, api_port: int | None) -> dict[str, int]:
    """A free port per name; the API gets `api_port` exactly, else its last port, else 8080 or the next free one.

    Raises ConflictError when the port that was asked for is taken.
    """
    if api_port is not None and not is_free(api_port):
        raise ConflictError(
            "port_in_use",
            f"Port {api_port} is in use by another program. Give another one with --port, or leave --port out.",
            port=api_port,
        )
    chosen: dict[str, int] = {}
    taken: set[int] = {api_port} if api_port is not None else set()
    for name in names:
        if name == "api" and api_port is not None:
            port = api_port
        else:
            wanted = remembered.get(name)
            if wanted is not None and wanted not in taken and is_free(wanted):
                port = wanted
            elif name == "api":
                port = _first_free(range(DEFAULT_API_PORT, DEFAULT_API_PORT + 100), taken)
            else:
                port = _random_free(taken)
        taken.add(port)
        chosen[name] = port
    return chosen


def _first_free(candidates: range, taken: set[int]) -> int:
    for port in candidates:
        if port not in taken and is_free(port):
            return port
    return _random_free(taken)


def _random_free(taken: set[int]) -> int:
    for _ in range(_TRIES):
        port = _FIRST_PORT + secrets.randbelow(_LAST_PORT - _FIRST_PORT + 1)
        if port not in taken and is_free(port):
            return port
    raise UnavailableError("no_free_port", f"No free port between {_FIRST_PORT} and {_LAST_PORT} on {HOST}.")


def remembered(path: Path) -> dict[str, int]:
    """The ports of the last start; empty when there was none or the file is damaged."""
    try:
        stored = json.loads(path.read_text())
        return {str(name): int(port) for name, port in stored.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def remember(path: Path, ports: Mapping[str, int]) -> None:
    """Keep the ports for the next start; names that were not started this time keep their old port."""
    write_private(path, json.dumps({**remembered(path), **ports}, indent=1))
