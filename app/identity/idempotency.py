"""`Idempotency-Key`: the same create sent twice is done once, and answered twice with the same body."""

import hashlib
from collections.abc import Callable
from typing import Any

import orjson
from sqlalchemy import text

from app.core.db import UnitOfWork
from app.core.errors import ConflictError, InvalidInputError
from app.core.ids import new_id
from app.identity.permissions import Principal

_MAX_KEY_CHARS = 200


def once(
    uow: UnitOfWork, actor: Principal, key: str | None, request: str, make: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """The answer of `make`, or the one stored under the caller's key. All in the caller's transaction.

    `request` is the request as text: the same key with another request is ConflictError. A second request that
    comes while the first one runs waits for its commit.
    """
    if key is None:
        return make()
    if not key.strip() or len(key) > _MAX_KEY_CHARS:
        raise InvalidInputError("bad_idempotency_key", f"Idempotency-Key has 1 to {_MAX_KEY_CHARS} characters.")
    digest = hashlib.sha256(request.encode()).hexdigest()
    mine = uow.session.execute(
        text(
            "insert into idempotency_keys (tenant_id, id, user_id, key, request_hash) values (:t, :id, :u, :k, :h)"
            " on conflict (tenant_id, user_id, key) do nothing returning id"
        ),
        {"t": uow.tenant_id, "id": new_id(), "u": actor.user_id, "k": key, "h": digest},
    ).first()
    if mine is None:
        stored = uow.session.execute(
            text("select request_hash, response from idempotency_keys where user_id = :u and key = :k"),
            {"u": actor.user_id, "k": key},
        ).one()
        if stored.request_hash != digest:
            raise ConflictError("idempotency_key_used", "This Idempotency-Key was used for another request.")
        answer: dict[str, Any] = stored.response
        return answer
    answer = make()
    uow.session.execute(
        text("update idempotency_keys set response = cast(:r as jsonb) where id = :id"),
        {"r": orjson.dumps(answer).decode(), "id": mine[0]},
    )
    return answer
