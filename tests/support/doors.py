"""The database seen from each of its doors: a connection per role, and checksums of everything that a tenant owns."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from app.local.secrets import load_or_create
from app.migrations.roles import ROLES
from tests.support.stack import Stack

#: What a running platform writes by itself, whoever asks for what: no part of a tenant's checksum.
VOLATILE_COLUMNS = {"api_keys": {"last_used_at"}, "jobs": {"hinted_at", "lease_until"}}
VOLATILE_TABLES = {"engine_leases", "outbox"}


def address(stack: Stack, role: str, password: str | None = None) -> str:
    """libpq address of a role of the local server; `postgres` is its superuser."""
    keys = load_or_create(stack.home.secrets)
    port = next(service["port"] for service in stack.state()["services"] if service["name"] == "postgres")
    secret = password or getattr(keys, role)
    database = "fullread"
    return psycopg.conninfo.make_conninfo(
        host="127.0.0.1", port=port, user=role, password=secret, dbname=database, connect_timeout=5
    )


@contextmanager
def door(
    stack: Stack, role: str, *, tenant: UUID | None = None, password: str | None = None
) -> Iterator[psycopg.Connection]:
    """One transaction as `role` (for a tenant, as the product sets it), rolled back at the end unless committed."""
    assert password or role in (*ROLES, "postgres")
    with psycopg.connect(address(stack, role, password)) as connection:
        if tenant is not None:
            connection.execute("select set_config('app.tenant_id', %s, true)", (str(tenant),))
        yield connection
        connection.rollback()


def rows(connection: psycopg.Connection, query: str, *values: object) -> list[tuple[Any, ...]]:
    """All rows of a query."""
    return connection.execute(query.encode(), values).fetchall()


def value(connection: psycopg.Connection, query: str, *values: object) -> Any:
    """The first column of the only row."""
    found = rows(connection, query, *values)
    assert len(found) == 1, found
    return found[0][0]


def count(connection: psycopg.Connection, table: str) -> int:
    """How many rows of a table the connection sees."""
    statement = sql.SQL("select count(*) from {}").format(sql.Identifier(table))
    return int(connection.execute(statement).fetchall()[0][0])


def tables_with(connection: psycopg.Connection, column: str = "tenant_id") -> list[str]:
    """Tables of the schema that have a column, from the catalogue."""
    return [
        row[0]
        for row in rows(
            connection,
            "select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid"
            " where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and a.attname = %s"
            " and not a.attisdropped order by 1",
            column,
        )
    ]


def settled(stack: Stack, tenant: UUID, timeout_s: float = 60) -> None:
    """Wait until no job of the tenant runs or is due: from then on only requests change its rows."""
    deadline = time.monotonic() + timeout_s
    busy = (
        "select count(*) from jobs where tenant_id = %s"
        " and (state = 'running' or (state = 'queued' and run_after < now() + interval '1 day'))"
    )
    with door(stack, "fullread_owner") as connection:
        while value(connection, busy, tenant):
            assert time.monotonic() < deadline, "jobs of the tenant do not end"
            connection.rollback()
            time.sleep(0.1)


def checksums(stack: Stack, tenant: UUID) -> dict[str, str]:
    """A digest per table over all rows of a tenant, less what the platform writes by itself."""
    with door(stack, "fullread_owner") as connection:
        digests = {}
        for table in tables_with(connection):
            if table in VOLATILE_TABLES:
                continue
            hidden = list(VOLATILE_COLUMNS.get(table, ()))
            statement = sql.SQL(
                "select count(*) || ':' || coalesce(md5(string_agg(r, '|' order by r)), '') from"
                " (select (to_jsonb(t) - %s::text[])::text as r from {} t where tenant_id = %s) s"
            ).format(sql.Identifier(table))
            digests[table] = str(connection.execute(statement, (hidden, tenant)).fetchall()[0][0])
        return digests
