"""A walk over a dataset, and its cursor: where the walk stands, sealed for the caller who began it."""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import orjson

from app.core.errors import InvalidInputError
from app.identity.permissions import Principal

#: A walk that rests longer is begun again: its `as_of` would be no news any more.
LONGEST_WALK = timedelta(days=1)
_MAC_BYTES = 16
_PURPOSE = b"bi cursor 1\0"


@dataclass(frozen=True, slots=True)
class Walk:
    """One read of a dataset over several pages.

    `as_of` is the `updated_since` of the next walk, `since` that of this one; `after` is the id of the last row seen.
    """

    dataset: str
    as_of: datetime
    since: datetime | None
    after: UUID | None = None


def seal(walk: Walk, key: bytes, actor: Principal) -> str:
    """The walk as an opaque word for an address. Without its seal a walk could begin unseen by the audit trail."""
    state = orjson.dumps([walk.dataset, walk.as_of, walk.since, walk.after])
    return _coded(_mac(state, key, actor) + state)


def unseal(cursor: str, key: bytes, actor: Principal, dataset: str, *, since: datetime | None, at: datetime) -> Walk:
    """The walk of a cursor. Raises InvalidInputError unless it was made here for this caller, dataset and day.

    `since` is what stands beside the cursor in the address: nothing, or what the walk began with.
    """
    try:
        raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
    except (Base64Error, ValueError) as error:
        raise _refused() from error
    mac, state = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
    # The second comparison: decoding ignores what is no letter of the alphabet, and one walk has one cursor.
    if not hmac.compare_digest(mac, _mac(state, key, actor)) or _coded(raw) != cursor:
        raise _refused()
    name, as_of, begun_since, after = orjson.loads(state)
    walk = Walk(
        dataset=name,
        as_of=datetime.fromisoformat(as_of),
        since=datetime.fromisoformat(begun_since) if begun_since else None,
        after=UUID(after) if after else None,
    )
    if walk.dataset != dataset or since not in (None, walk.since) or at - walk.as_of > LONGEST_WALK:
        raise _refused()
    return walk


def _refused() -> InvalidInputError:
    return InvalidInputError(
        "bad_cursor",
        "The cursor is none of this dataset, caller and filter, or older than a day. Begin again without a cursor.",
    )


def _mac(state: bytes, key: bytes, actor: Principal) -> bytes:
    message = _PURPOSE + actor.tenant_id.bytes + actor.user_id.bytes + state
    return hmac.new(key, message, hashlib.sha256).digest()[:_MAC_BYTES]


def _coded(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")
