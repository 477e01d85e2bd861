"""The only role table: what each tenant role and each API key scope may do. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from app.core.errors import ForbiddenError


class Role(StrEnum):
    """Roles of a user in a tenant, and (the lower three) of a grant on a collection."""

    OWNER = "owner"
    ADMIN = "admin"
    EDITOR = "editor"
    REVIEWER = "reviewer"
    VIEWER = "viewer"


class Action(StrEnum):
    """What can be done; collection-bound actions are checked against the grant, the others against the role."""

    READ = "read"
    ASK = "ask"
    WRITE_DOCUMENTS = "write_documents"
    EDIT_COLLECTION = "edit_collection"
    CREATE_COLLECTION = "create_collection"
    MANAGE_GRANTS = "manage_grants"
    MANAGE_USERS = "manage_users"
    MANAGE_OWN_KEYS = "manage_own_keys"
    READ_AUDIT = "read_audit"


class Scope(StrEnum):
    """Scopes of an API key: a key never does more than its user, and never more than its scopes."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


_READERS = frozenset({Action.READ, Action.ASK, Action.MANAGE_OWN_KEYS})
_EDITORS = _READERS | {Action.WRITE_DOCUMENTS, Action.EDIT_COLLECTION, Action.CREATE_COLLECTION}
_ADMINS = frozenset(Action)
_BY_ROLE: dict[Role, frozenset[Action]] = {
    Role.OWNER: _ADMINS,
    Role.ADMIN: _ADMINS,
    Role.EDITOR: _EDITORS | {Action.MANAGE_GRANTS},
    Role.REVIEWER: _READERS,
    Role.VIEWER: _READERS,
}
_SCOPE_OF: dict[Action, Scope] = {
    Action.READ: Scope.READ,
    Action.ASK: Scope.READ,
    Action.WRITE_DOCUMENTS: Scope.WRITE,
    Action.EDIT_COLLECTION: Scope.WRITE,
    Action.CREATE_COLLECTION: Scope.WRITE,
    Action.MANAGE_GRANTS: Scope.ADMIN,
    Action.MANAGE_USERS: Scope.ADMIN,
    Action.MANAGE_OWN_KEYS: Scope.ADMIN,
    Action.READ_AUDIT: Scope.ADMIN,
}


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: a user of a tenant, signed in or through an API key (`scopes` is then not None)."""

    tenant_id: UUID
    user_id: UUID
    role: Role
    email: str
    scopes: frozenset[Scope] | None = None
    key_id: UUID | None = None
    session_id: UUID | None = None
    request_id: str = ""

    @property
    def sees_all_collections(self) -> bool:
        """Owners and admins see every collection of their tenant; others see granted ones."""
        return self.role in (Role.OWNER, Role.ADMIN)

    @property
    def actor(self) -> str:
        """The actor as written to the audit trail: ids only, no names."""
        return f"key:{self.key_id}" if self.key_id else f"user:{self.user_id}"


def role_allows(role: Role, action: Action) -> bool:
    """Whether a role (of the tenant or of a grant) covers the action."""
    return action in _BY_ROLE[role]


def scopes_allow(scopes: frozenset[Scope] | None, action: Action) -> bool:
    """Whether a key's scopes cover the action; None (a signed-in person) covers all."""
    return scopes is None or _SCOPE_OF[action] in scopes


def require(principal: Principal, action: Action, *, grant: Role | None = None) -> None:
    """Raise ForbiddenError unless role, grant (for collection-bound actions) and scopes all allow the action.

    `grant` is the caller's role on the collection; owners and admins need none.
    """
    role = principal.role if grant is None or principal.sees_all_collections else grant
    # A grant can not lift a person above the own tenant role: a tenant-wide viewer stays a viewer.
    allowed = role_allows(role, action) and role_allows(principal.role, action)
    if not allowed:
        raise ForbiddenError(
            "role_forbids", f"Your role ({role.value}) does not allow this: ask an administrator.", action=action.value
        )
    if not scopes_allow(principal.scopes, action):
        raise ForbiddenError(
            "scope_forbids",
            f"This API key lacks the scope '{_SCOPE_OF[action].value}'. Make a key that has it.",
            action=action.value,
        )


def parse_scopes(values: Iterable[str]) -> frozenset[Scope]:
    """Scopes from their names; raises ValueError on an unknown one."""
    return frozenset(Scope(value) for value in values)
