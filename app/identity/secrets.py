"""Passwords (Argon2id) and random tokens (SHA-256 of 256 random bits)."""

import hashlib
import hmac
import secrets
import threading
from base64 import b32decode, b32encode
from binascii import Error as Base32Error
from functools import lru_cache
from uuid import UUID

from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher

_TOKEN_BYTES = 32
API_KEY_PREFIX = "frk"
SESSION_PREFIX = "frs"
#: Each hash takes 64 MiB: a flood of sign-ins waits here and does not take the memory of the process.
_HASHING = threading.BoundedSemaphore(4)


@lru_cache(maxsize=1)
def _hasher() -> PasswordHash:
    return PasswordHash((Argon2Hasher(),))


@lru_cache(maxsize=1)
def _dummy_hash() -> str:
    return _hasher().hash(secrets.token_urlsafe(16))


def hash_password(password: str) -> str:
    """Argon2id, m=64 MiB t=3 p=4 (the library's defaults, OWASP's upper profile)."""
    with _HASHING:
        return _hasher().hash(password)


def verify_password(password: str, stored_hash: str | None) -> bool:
    """Check a password; with no hash (unknown account) the same work is done and the answer is no."""
    with _HASHING:
        if stored_hash is None:
            _hasher().verify(password, _dummy_hash())
            return False
        return _hasher().verify(password, stored_hash)


def new_password() -> str:
    """A generated password with about 95 bits, easy to read aloud."""
    raw = b32encode(secrets.token_bytes(12)).decode().rstrip("=").lower()
    return "-".join(raw[i : i + 5] for i in range(0, len(raw), 5))


def new_token(prefix: str, token_id: UUID) -> tuple[str, bytes]:
    """A bearer token `prefix_id_secret` and the SHA-256 that is stored. The secret carries 256 random bits."""
    secret = secrets.token_urlsafe(_TOKEN_BYTES)
    return _token(prefix, token_id, secret), hashlib.sha256(secret.encode()).digest()


def _token(prefix: str, token_id: UUID, secret: str) -> str:
    name = b32encode(token_id.bytes).decode().rstrip("=").lower()
    return f"{prefix}_{name}_{secret}"


def key_token(key_id: str, password: str) -> str | None:
    """The API key of a user name and a password: its id, and the whole token or its secret part.

    None when the name is no id, or the token is another key's or no key's.
    """
    try:
        wanted = UUID(key_id)
    except ValueError:
        return None
    parts = split_token(password)
    if parts is None:
        return _token(API_KEY_PREFIX, wanted, password)
    return password if parts[:2] == (API_KEY_PREFIX, wanted) else None


def split_token(token: str) -> tuple[str, UUID, str] | None:
    """Prefix, id and secret of a token; None when it has another form."""
    parts = token.split("_", 2)
    if len(parts) != 3 or parts[0] not in (API_KEY_PREFIX, SESSION_PREFIX):
        return None
    try:
        raw = b32decode(parts[1].upper() + "=" * (-len(parts[1]) % 8))
    except (Base32Error, ValueError):
        return None
    if len(raw) != 16:
        return None
    return parts[0], UUID(bytes=raw), parts[2]


def secret_matches(secret: str, stored_hash: bytes) -> bool:
    """Constant-time comparison of a token's secret with its stored hash."""
    return hmac.compare_digest(hashlib.sha256(secret.encode()).digest(), stored_hash)
