"""Passwords and keys of the local stack: made once, one 0600 file each under the data directory, never printed."""

import secrets
from dataclasses import dataclass, fields
from pathlib import Path

from app.local.state import write_private

_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Secrets:
    """One secret per role or server, URL safe; `directory` holds a file of each name."""

    directory: Path
    postgres: str
    fullread_owner: str
    fullread_app: str
    fullread_platform: str
    fullread_bi: str
    valkey: str
    vectors: str
    engine: str
    embeddings: str
    web: str

    def file(self, name: str) -> Path:
        """The file that holds secret `name`, for servers that read their key from a file."""
        return self.directory / name


def load_or_create(directory: Path) -> Secrets:
    """Read every secret, making those that do not exist yet."""
    directory.mkdir(mode=0o700, exist_ok=True)
    directory.chmod(0o700)
    names = [field.name for field in fields(Secrets) if field.name != "directory"]
    return Secrets(directory=directory, **{name: _secret(directory / name) for name in names})


def _secret(path: Path) -> str:
    if path.exists():
        stored = path.read_text().strip()
        if stored:
            return stored
    value = secrets.token_urlsafe(_SECRET_BYTES)
    write_private(path, value)
    return value
