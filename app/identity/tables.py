"""Rows of identity: tenants, users, credentials, login sessions, API keys."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import ARRAY, LargeBinary, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.core.db import Base


class Tenant(Base):
    """A customer: everything else belongs to exactly one."""

    __tablename__ = "tenants"
    id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str]
    created_at: Mapped[datetime]


class User(Base):
    """A person of a tenant with one role. The password lives in `credentials`."""

    __tablename__ = "users"
    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    email: Mapped[str]
    display_name: Mapped[str]
    role: Mapped[str]
    created_at: Mapped[datetime]
    disabled_at: Mapped[datetime | None]


class Credential(Base):
    """The Argon2id hash of a user's password."""

    __tablename__ = "credentials"
    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    user_id: Mapped[UUID] = mapped_column(primary_key=True)
    email: Mapped[str]
    password_hash: Mapped[str]
    changed_at: Mapped[datetime]


class LoginSession(Base):
    """A signed-in browser or terminal; only the token's SHA-256 is stored."""

    __tablename__ = "login_sessions"
    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    user_id: Mapped[UUID]
    token_hash: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]


class ApiKey(Base):
    """A key for programs: shown once, stored as SHA-256, scoped, expiring, revocable."""

    __tablename__ = "api_keys"
    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    user_id: Mapped[UUID]
    name: Mapped[str]
    secret_hash: Mapped[bytes] = mapped_column(LargeBinary)
    hint: Mapped[str]
    scopes: Mapped[list[str]] = mapped_column(ARRAY(Text))
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
