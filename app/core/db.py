"""Database scopes: one engine per role, one transaction per unit of work, one tenant per transaction.

`Database.tenant` opens work as `fullread_app` under row level security; `Database.platform` opens the few
tables that login, relay, sweeper and engine admission may read across tenants. Nothing else connects.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from sqlalchemy import DateTime, Engine, MetaData, create_engine, event, text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import DeclarativeBase, Session, SessionTransaction

from app.core.errors import InvalidInputError, UnavailableError

#: SQLSTATE class 54 (program limit exceeded), as for a value that fits in no index page: a retry never helps.
_LIMIT_CLASS = "54"


class Base(DeclarativeBase):
    """Declarative base of every table; the schema itself is written by the migrations."""

    metadata = MetaData()
    # Bound with their zone: a server whose TimeZone is not UTC would shift what comes without one.
    type_annotation_map: ClassVar[dict[Any, Any]] = {datetime: DateTime(timezone=True)}


@dataclass(frozen=True, slots=True)
class UnitOfWork:
    """One transaction for one tenant. `session` is bound to role fullread_app."""

    session: Session
    tenant_id: UUID


@dataclass(frozen=True, slots=True)
class PlatformWork:
    """One transaction as fullread_platform: credentials, keys, jobs, outbox, engines, leases. Never content."""

    session: Session


@event.listens_for(Session, "after_begin")
def _set_tenant(session: Session, transaction: SessionTransaction, connection: Any) -> None:
    """Set the tenant inside the transaction, with a bound parameter: safe under transaction pooling."""
    tenant_id = session.info.get("tenant_id")
    if tenant_id is not None:
        connection.execute(text("select set_config('app.tenant_id', :tenant, true)"), {"tenant": str(tenant_id)})


class Database:
    """The engines of a process. Call `dispose` after a fork so that no connection is shared."""

    def __init__(self, app_url: str, platform_url: str, *, pool_size: int = 8) -> None:
        options: dict[str, Any] = {
            "pool_pre_ping": True,
            "pool_size": pool_size,
            "max_overflow": pool_size * 2,
            "pool_timeout": 10,
            # A failing statement is logged: its values are document text and hashes, and stay out of the message.
            "hide_parameters": True,
            "connect_args": {"connect_timeout": 5, "application_name": "fullread", "prepare_threshold": None},
        }
        self._app: Engine = create_engine(app_url, **options)
        self._platform: Engine = create_engine(platform_url, **options)

    @contextmanager
    def tenant(self, tenant_id: UUID) -> Iterator[UnitOfWork]:
        """One transaction as fullread_app for `tenant_id`; commits at the end, rolls back on any error."""
        with _transaction(self._app, {"tenant_id": tenant_id}) as session:
            yield UnitOfWork(session=session, tenant_id=tenant_id)

    @contextmanager
    def platform(self) -> Iterator[PlatformWork]:
        """One transaction as fullread_platform; commits at the end, rolls back on any error."""
        with _transaction(self._platform, {}) as session:
            yield PlatformWork(session=session)

    @property
    def platform_engine(self) -> Engine:
        """The platform engine, for advisory locks that must outlive a transaction."""
        return self._platform

    def dispose(self, *, close: bool = True) -> None:
        """Drop all pooled connections (`close=False` in a forked child: the parent still owns the sockets)."""
        self._app.dispose(close=close)
        self._platform.dispose(close=close)

    def ping(self) -> None:
        """Raise UnavailableError unless both roles can connect."""
        for engine in (self._app, self._platform):
            with _mapped_errors(), engine.connect() as connection:
                connection.execute(text("select 1"))


@contextmanager
def _transaction(engine: Engine, info: dict[str, Any]) -> Iterator[Session]:
    with _mapped_errors(), Session(engine, expire_on_commit=False, info=info) as session, session.begin():
        yield session


@contextmanager
def _mapped_errors() -> Iterator[None]:
    """A lost connection is a typed, retryable error: nothing above needs to know the driver."""
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeoutError) as error:
        if str(getattr(getattr(error, "orig", None), "sqlstate", "")).startswith(_LIMIT_CLASS):
            raise InvalidInputError("value_too_long", "A value is too long to be stored. Use a shorter one.") from error
        raise UnavailableError("database_unavailable", "The database does not answer. Try again shortly.") from error
    except DBAPIError as error:
        if error.connection_invalidated:
            raise UnavailableError(
                "database_unavailable", "The connection to the database was lost. Try again shortly."
            ) from error
        raise
