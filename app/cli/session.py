"""Which server, and as whom: the local stack's files, options, variables, the stored login."""

import json
import os
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from app.cli.options import FromEnvironment
from app.cli.output import CommandError

if TYPE_CHECKING:
    from app.cli.client import Api

DEFAULT_DATA = Path("fullread-data")


@dataclass(frozen=True, slots=True)
class Target:
    """A server and the token to use there. `server` is the name under which a login is stored."""

    url: str
    token: str
    server: str
    data: Path | None = None


def connect(data: Path | None, url: str | None, api_key: str | None, *, patience_s: float = 0.0) -> "Api":
    """A client for the server that the options, the variables, a local stack or the stored login name.

    Raises CommandError when there is no server or no token. `patience_s` is how long a server that does not answer is
    asked again.
    """
    target = find(data, url, api_key)
    if not target.token:
        raise CommandError(
            "no_credentials",
            f"No API key for {target.url}: give --api-key or FULLREAD_API_KEY, or sign in with `fullread login`.",
        )
    return client(target, patience_s=patience_s)


def client(target: Target, *, patience_s: float = 0.0) -> "Api":
    """A client for one target."""
    from app.cli.client import Api

    return Api(target.url, target.token, data=target.data, patience_s=patience_s)


def find(data: Path | None, url: str | None, api_key: str | None) -> Target:
    """The server, by this order: --url, --data, FULLREAD_URL, ./fullread-data, the last login.

    The token: --api-key, FULLREAD_API_KEY, a login there, the local stack's first administrator; empty when there is
    none. Raises CommandError when there is no server.
    """
    if url and not (isinstance(url, FromEnvironment) and data is not None):
        return _remote(url, api_key)
    stack = _stack(data if data is not None else DEFAULT_DATA)
    if stack is not None:
        # FULLREAD_API_KEY belongs to FULLREAD_URL when both are set.
        foreign = isinstance(api_key, FromEnvironment) and bool(url)
        return Target(stack.url, (api_key if not foreign else None) or stack.token, stack.server, stack.data)
    if data is not None:
        raise CommandError("no_stack", f"Nothing runs on {data}. Start it with `fullread up --data {data}`.")
    last = _stored().get("current")
    if isinstance(last, str):
        return _remote(last, api_key)
    raise CommandError(
        "no_server",
        "No server: start one here with `fullread up`, or name one with --data DIR or --url URL, or sign in with"
        " `fullread login --url URL`.",
    )


def _remote(url: str, api_key: str | None) -> Target:
    url = plain_url(url)
    return Target(url, api_key or login_token(url), url)


def plain_url(url: str) -> str:
    """The address without a trailing slash or the API's prefix. Raises CommandError for anything but http and https."""
    url = url.strip().rstrip("/").removesuffix("/api/v1").rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise CommandError("bad_url", f"The address must begin with http:// or https://, not {url!r}.", exit_code=2)
    return url


def _stack(data: Path) -> Target | None:
    """The local stack that runs on a data directory, as its files say; None when there is none."""
    root = data.expanduser().resolve()
    try:
        url = json.loads((root / "run" / "stack.json").read_text(encoding="utf-8"))["api_url"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not url:
        return None
    server = str(root)
    token = login_token(server)
    if not token:
        try:
            token = json.loads((root / "admin.json").read_text(encoding="utf-8"))["api_key"]
        except (OSError, ValueError, KeyError, TypeError):
            token = ""
    return Target(str(url), str(token), server, root)


def credentials_file() -> Path:
    """Where logins are kept, 0600."""
    return Path(typer.get_app_dir("fullread")) / "credentials.json"


def _stored() -> dict[str, Any]:
    try:
        stored = json.loads(credentials_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}


def login_token(server: str) -> str:
    """The token of a stored login that has not expired; else empty."""
    login = _stored().get("logins", {}).get(server)
    if not isinstance(login, dict):
        return ""
    expires_at = login.get("expires_at")
    if expires_at and datetime.fromisoformat(expires_at) <= datetime.now(UTC):
        return ""
    return str(login.get("token", ""))


def remember(target: Target, *, email: str, token: str, expires_at: str | None) -> Path:
    """Keep a login; a remote server becomes the one that is used when nothing else is named."""
    stored = _stored()
    stored.setdefault("logins", {})[target.server] = {"email": email, "token": token, "expires_at": expires_at}
    if target.data is None:
        stored["current"] = target.server
    return _store(stored)


def forget(target: Target) -> bool:
    """Drop the login at a server; whether there was one."""
    stored = _stored()
    had = stored.get("logins", {}).pop(target.server, None) is not None
    if stored.get("current") == target.server:
        del stored["current"]
    if had:
        _store(stored)
    return had


def _store(stored: dict[str, Any]) -> Path:
    path = credentials_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".credentials.")  # 0600 from its first byte
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(stored, file, indent=1)
    Path(temporary).replace(path)
    return path
