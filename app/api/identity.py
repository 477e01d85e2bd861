"""Routes of sign-in, users and API keys."""

from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request

from app.api.dependencies import IdempotencyKey, PrincipalDep, ServicesDep, UnitDep
from app.api.schemas import (
    ApiKeyCreate,
    ApiKeyMade,
    ApiKeyOut,
    Items,
    Login,
    LoginOut,
    MeOut,
    UserChange,
    UserCreate,
    UserOut,
)
from app.identity import accounts, idempotency
from app.identity.permissions import Role, Scope
from app.identity.tables import ApiKey, User

router = APIRouter(tags=["identity"])


def _user(user: User) -> UserOut:
    return UserOut(
        id=user.id,
        email=user.email,
        display_name=user.display_name,
        role=Role(user.role),
        created_at=user.created_at,
        disabled_at=user.disabled_at,
    )


def _key(key: ApiKey) -> ApiKeyOut:
    return ApiKeyOut(
        id=key.id,
        user_id=key.user_id,
        name=key.name,
        hint=key.hint,
        scopes=[Scope(scope) for scope in key.scopes],
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        last_used_at=key.last_used_at,
    )


@router.post("/login")
def login(body: Login, request: Request, services: ServicesDep) -> LoginOut:
    """Sign in with e-mail and password; the answer holds a bearer token for 12 hours."""
    issued = accounts.sign_in(
        services.database,
        body.email,
        body.password.get_secret_value(),
        tenant_id=body.tenant,
        request_id=request.state.request_id,
    )
    return LoginOut(token=issued.token, expires_at=issued.expires_at)


@router.post("/logout", status_code=204)
def logout(uow: UnitDep, actor: PrincipalDep) -> None:
    """End the login session at once."""
    accounts.sign_out(uow, actor)


@router.get("/me")
def me(actor: PrincipalDep) -> MeOut:
    """Who the caller is."""
    return MeOut(
        tenant_id=actor.tenant_id,
        user_id=actor.user_id,
        email=actor.email,
        role=actor.role,
        scopes=sorted(actor.scopes) if actor.scopes is not None else None,
    )


@router.get("/users")
def list_users(uow: UnitDep, actor: PrincipalDep) -> Items[UserOut]:
    """All users of the tenant (administrators)."""
    return Items(items=[_user(user) for user in accounts.list_users(uow, actor)])


@router.post("/users", status_code=201)
def create_user(body: UserCreate, uow: UnitDep, actor: PrincipalDep, idempotency_key: IdempotencyKey = None) -> UserOut:
    """Add a user (administrators)."""

    def make() -> dict[str, Any]:
        made = accounts.create_user(
            uow,
            actor,
            email=body.email,
            password=body.password.get_secret_value(),
            role=body.role,
            display_name=body.display_name,
        )
        return _user(made).model_dump(mode="json")

    request = f"POST users {body.email} {body.role} {body.display_name}"
    return UserOut.model_validate(idempotency.once(uow, actor, idempotency_key, request, make))


@router.patch("/users/{user_id}")
def change_user(user_id: UUID, body: UserChange, uow: UnitDep, actor: PrincipalDep) -> UserOut:
    """Change a user's role, password or state (administrators)."""
    password = body.password.get_secret_value() if body.password else None
    return _user(accounts.change_user(uow, actor, user_id, role=body.role, disabled=body.disabled, password=password))


@router.get("/api-keys")
def list_api_keys(uow: UnitDep, actor: PrincipalDep) -> Items[ApiKeyOut]:
    """The caller's API keys; administrators see those of the tenant."""
    return Items(items=[_key(key) for key in accounts.list_api_keys(uow, actor)])


@router.post("/api-keys", status_code=201)
def create_api_key(body: ApiKeyCreate, uow: UnitDep, actor: PrincipalDep) -> ApiKeyMade:
    """Make an API key: its token is in this answer and nowhere else."""
    issued = accounts.create_api_key(
        uow, actor, name=body.name, scopes=frozenset(body.scopes), expires_at=body.expires_at
    )
    return ApiKeyMade(id=issued.id, token=issued.token, expires_at=issued.expires_at)


@router.delete("/api-keys/{key_id}")
def revoke_api_key(key_id: UUID, uow: UnitDep, actor: PrincipalDep) -> ApiKeyOut:
    """Revoke an API key: dead with the next request."""
    return _key(accounts.revoke_api_key(uow, actor, key_id))
