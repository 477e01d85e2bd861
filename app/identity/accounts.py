"""Users, sign-in and API keys. Credentials are read across tenants as fullread_platform, content never."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from app.audit import events
from app.core.clock import now
from app.core.db import Database, PlatformWork, UnitOfWork
from app.core.errors import ConflictError, InvalidInputError, NotFoundError, UnauthenticatedError
from app.core.ids import new_id
from app.identity import secrets
from app.identity.permissions import Action, Principal, Role, Scope, parse_scopes, require
from app.identity.tables import ApiKey, Credential, LoginSession, User

SESSION_LIFETIME = timedelta(hours=12)
_KEY_USE_RESOLUTION = timedelta(minutes=1)
_MIN_PASSWORD = 12
#: A far date overflows where it is read back, and then no list of keys can be shown any more.
_LONGEST_KEY = timedelta(days=3660)


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token at the only moment when it can be shown."""

    id: UUID
    token: str
    expires_at: datetime | None


def _refused() -> UnauthenticatedError:
    return UnauthenticatedError("bad_credentials", "The e-mail address or the password is wrong.")


def _not_valid() -> UnauthenticatedError:
    return UnauthenticatedError(
        "token_not_valid", "The API key or login session is not valid (any more). Sign in again."
    )


def sign_in(
    database: Database, email: str, password: str, *, tenant_id: UUID | None = None, request_id: str = ""
) -> IssuedToken:
    """Check a password and open a login session of 12 hours. The same error for every kind of failure."""
    email = email.strip().lower()
    with database.platform() as work:
        query = select(Credential).where(Credential.email == email)
        if tenant_id is not None:
            query = query.where(Credential.tenant_id == tenant_id)
        found = list(work.session.scalars(query.limit(8)))
    # The hash runs outside the transaction: Argon2 takes long enough to hold a connection for nothing.
    match = next((row for row in found if secrets.verify_password(password, row.password_hash)), None)
    if not found:
        secrets.verify_password(password, None)
    if match is None:
        raise _refused()
    with database.tenant(match.tenant_id) as uow:
        user = uow.session.get(User, (match.tenant_id, match.user_id))
        if user is None or user.disabled_at is not None:
            raise _refused()
        session_id = new_id()
        token, digest = secrets.new_token(secrets.SESSION_PREFIX, session_id)
        expires_at = now() + SESSION_LIFETIME
        uow.session.add(
            LoginSession(
                tenant_id=uow.tenant_id,
                id=session_id,
                user_id=user.id,
                token_hash=digest,
                created_at=now(),
                expires_at=expires_at,
                revoked_at=None,
            )
        )
        events.append(uow, f"user:{user.id}", "session.open", "session", session_id, request_id=request_id)
    return IssuedToken(session_id, token, expires_at)


def sign_out(uow: UnitOfWork, actor: Principal) -> None:
    """End the caller's login session at once."""
    if actor.session_id is None:
        raise InvalidInputError("not_a_session", "An API key can not sign out: revoke it instead.")
    uow.session.execute(update(LoginSession).where(LoginSession.id == actor.session_id).values(revoked_at=now()))
    events.append(uow, actor.actor, "session.close", "session", actor.session_id, request_id=actor.request_id)


def authenticate(database: Database, token: str, *, request_id: str = "") -> Principal:
    """The principal of a bearer token. Raises UnauthenticatedError when it is unknown, expired or revoked."""
    parts = secrets.split_token(token)
    if parts is None:
        raise _not_valid()
    prefix, token_id, secret = parts
    scopes: frozenset[Scope] | None = None
    with database.platform() as work:
        if prefix == secrets.API_KEY_PREFIX:
            key = _live_key(work, token_id, secret)
            tenant_id, user_id, scopes = key.tenant_id, key.user_id, parse_scopes(key.scopes)
        else:
            session = work.session.scalars(select(LoginSession).where(LoginSession.id == token_id)).one_or_none()
            if (
                session is None
                or not secrets.secret_matches(secret, session.token_hash)
                or session.revoked_at is not None
                or session.expires_at <= now()
            ):
                raise _not_valid()
            tenant_id, user_id = session.tenant_id, session.user_id
    with database.tenant(tenant_id) as uow:
        person = principal_of(uow, user_id, scopes)
    return replace(
        person,
        key_id=token_id if scopes is not None else None,
        session_id=token_id if scopes is None else None,
        request_id=request_id,
    )


def principal_of(uow: UnitOfWork, user_id: UUID, scopes: frozenset[Scope] | None) -> Principal:
    """The principal of a user with the role of now. Raises UnauthenticatedError when the account is disabled.

    `scopes` None: all that the role allows.
    """
    user = uow.session.get(User, (uow.tenant_id, user_id))
    if user is None or user.disabled_at is not None:
        raise _not_valid()
    return Principal(
        tenant_id=uow.tenant_id,
        user_id=user.id,
        role=Role(user.role),
        email=user.email,
        scopes=scopes,
    )


def authenticate_key(database: Database, key_id: str, password: str, *, request_id: str = "") -> Principal:
    """The principal of an API key, given as user name (its id) and password (the token, or only its secret part).

    Raises UnauthenticatedError, also for the right token under another id.
    """
    token = secrets.key_token(key_id, password)
    if token is None:
        raise _not_valid()
    return authenticate(database, token, request_id=request_id)


def _live_key(work: PlatformWork, key_id: UUID, secret: str) -> ApiKey:
    key = work.session.scalars(select(ApiKey).where(ApiKey.id == key_id)).one_or_none()
    if (
        key is None
        or not secrets.secret_matches(secret, key.secret_hash)
        or key.revoked_at is not None
        or (key.expires_at is not None and key.expires_at <= now())
    ):
        raise _not_valid()
    if key.last_used_at is None or now() - key.last_used_at > _KEY_USE_RESOLUTION:
        work.session.execute(update(ApiKey).where(ApiKey.id == key.id).values(last_used_at=now()))
    return key


def create_user(
    uow: UnitOfWork, actor: Principal | None, *, email: str, password: str, role: Role, display_name: str = ""
) -> User:
    """Add a user to the tenant. `actor` None is the bootstrap of a new installation."""
    if actor is not None:
        require(actor, Action.MANAGE_USERS)
        if role is Role.OWNER and actor.role is not Role.OWNER:
            raise InvalidInputError("owner_by_owner", "Only an owner can make another owner.")
    email = email.strip().lower()
    check_password(password)
    user = User(
        tenant_id=uow.tenant_id,
        id=new_id(),
        email=email,
        display_name=display_name,
        role=role.value,
        created_at=now(),
        disabled_at=None,
    )
    uow.session.add(user)
    try:
        uow.session.flush()
    except IntegrityError as error:
        raise ConflictError("email_taken", "There is already a user with this e-mail address.") from error
    uow.session.add(
        Credential(
            tenant_id=uow.tenant_id,
            user_id=user.id,
            email=email,
            password_hash=secrets.hash_password(password),
            changed_at=now(),
        )
    )
    name = actor.actor if actor else "system"
    events.append(uow, name, "user.create", "user", user.id, request_id=actor.request_id if actor else "", role=role)
    return user


def check_password(password: str) -> None:
    """Refuse passwords under 12 characters (length beats composition rules: NIST SP 800-63B)."""
    if len(password) < _MIN_PASSWORD:
        raise InvalidInputError("password_short", f"A password needs at least {_MIN_PASSWORD} characters.")


def list_users(uow: UnitOfWork, actor: Principal) -> Sequence[User]:
    """All users of the tenant, by e-mail address."""
    require(actor, Action.MANAGE_USERS)
    return uow.session.scalars(select(User).order_by(User.email)).all()


def change_user(
    uow: UnitOfWork,
    actor: Principal,
    user_id: UUID,
    *,
    role: Role | None = None,
    disabled: bool | None = None,
    password: str | None = None,
) -> User:
    """Change a user's role, password or state. Disabling or a new password ends sessions and revokes keys."""
    require(actor, Action.MANAGE_USERS)
    user = uow.session.get(User, (uow.tenant_id, user_id))
    if user is None:
        raise NotFoundError
    if (user.role == Role.OWNER or role is Role.OWNER) and actor.role is not Role.OWNER:
        raise InvalidInputError("owner_by_owner", "Only an owner can change an owner.")
    loses_owner = user.role == Role.OWNER and (disabled is True or (role is not None and role is not Role.OWNER))
    if loses_owner:
        # Locked: two owners who demote each other at the same moment would both see the other one left.
        owners = uow.session.scalars(
            select(User.id)
            .where(User.role == Role.OWNER.value, User.disabled_at.is_(None))
            .order_by(User.id)
            .with_for_update()
        ).all()
        if not set(owners) - {user.id}:
            raise ConflictError("last_owner", "This is the last owner: make another one first.")
    if role is not None:
        user.role = role.value
    if disabled is not None:
        user.disabled_at = now() if disabled else None
    if password is not None:
        check_password(password)
        uow.session.execute(
            update(Credential)
            .where(Credential.user_id == user.id)
            .values(password_hash=secrets.hash_password(password), changed_at=now())
        )
    if disabled or password is not None:
        uow.session.execute(
            update(LoginSession)
            .where(LoginSession.user_id == user.id, LoginSession.revoked_at.is_(None))
            .values(revoked_at=now())
        )
    if disabled or password is not None:
        uow.session.execute(
            update(ApiKey).where(ApiKey.user_id == user.id, ApiKey.revoked_at.is_(None)).values(revoked_at=now())
        )
    events.append(
        uow,
        actor.actor,
        "user.change",
        "user",
        user.id,
        request_id=actor.request_id,
        role=role,
        disabled=disabled,
        password=password is not None,
    )
    return user


def create_api_key(
    uow: UnitOfWork, actor: Principal, *, name: str, scopes: frozenset[Scope], expires_at: datetime | None = None
) -> IssuedToken:
    """Make a key for the caller; the token is returned here and never again."""
    require(actor, Action.MANAGE_OWN_KEYS)
    if not scopes:
        raise InvalidInputError("no_scopes", "Name at least one scope: read, write or admin.")
    if actor.scopes is not None and not scopes <= actor.scopes:
        raise InvalidInputError("scopes_wider", "A key can not make another key with more scopes than its own.")
    if expires_at is not None and expires_at <= now():
        raise InvalidInputError("expiry_past", "The expiry lies in the past.")
    if expires_at is not None and expires_at > now() + _LONGEST_KEY:
        raise InvalidInputError("expiry_far", "An expiry lies at most ten years ahead.")
    key_id = new_id()
    token, digest = secrets.new_token(secrets.API_KEY_PREFIX, key_id)
    uow.session.add(
        ApiKey(
            tenant_id=uow.tenant_id,
            id=key_id,
            user_id=actor.user_id,
            name=name,
            secret_hash=digest,
            hint=token[-4:],
            scopes=sorted(scope.value for scope in scopes),
            created_at=now(),
            expires_at=expires_at,
            revoked_at=None,
            last_used_at=None,
        )
    )
    events.append(
        uow, actor.actor, "api_key.create", "api_key", key_id, request_id=actor.request_id, scopes=sorted(scopes)
    )
    return IssuedToken(key_id, token, expires_at)


def list_api_keys(uow: UnitOfWork, actor: Principal) -> Sequence[ApiKey]:
    """The caller's keys; an administrator sees all keys of the tenant. Secrets are never among the fields shown."""
    require(actor, Action.MANAGE_OWN_KEYS)
    query = select(ApiKey).order_by(ApiKey.id.desc())
    if not actor.sees_all_collections:
        query = query.where(ApiKey.user_id == actor.user_id)
    return uow.session.scalars(query).all()


def revoke_api_key(uow: UnitOfWork, actor: Principal, key_id: UUID) -> ApiKey:
    """Revoke a key: dead with the next request. Revoking twice is no error."""
    require(actor, Action.MANAGE_OWN_KEYS)
    key = uow.session.get(ApiKey, (uow.tenant_id, key_id))
    if key is None or (key.user_id != actor.user_id and not actor.sees_all_collections):
        raise NotFoundError
    if key.revoked_at is None:
        key.revoked_at = now()
        events.append(uow, actor.actor, "api_key.revoke", "api_key", key.id, request_id=actor.request_id)
    return key
