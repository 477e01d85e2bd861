"""The four database roles. A DBA runs the same statements in production; `fullread up` runs them locally.

fullread_owner owns the schema and runs migrations; fullread_app does request and task work, one tenant a
transaction; fullread_platform serves login, relay, sweeper and engine admission; fullread_bi owns the views
of schema `bi`. None is a superuser and none bypasses row level security.
"""

import psycopg
from psycopg import sql

ROLES = ("fullread_owner", "fullread_app", "fullread_platform", "fullread_bi")


def create_roles(superuser_url: str, passwords: dict[str, str], *, database: str = "fullread") -> None:
    """Create or update the roles and the database (idempotent). `superuser_url`: libpq URL of a superuser."""
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        existing = {row[0] for row in connection.execute("select rolname from pg_roles").fetchall()}
        for role in ROLES:
            verb = "alter" if role in existing else "create"
            connection.execute(
                sql.SQL(
                    verb + " role {} login password {} nosuperuser nobypassrls nocreaterole nocreatedb noreplication"
                ).format(sql.Identifier(role), sql.Literal(passwords[role]))
            )
        # The owner hands the views of schema bi to fullread_bi; it never inherits that role's policies.
        connection.execute("alter role fullread_owner noinherit")
        connection.execute("grant fullread_bi to fullread_owner")
        names = {row[0] for row in connection.execute("select datname from pg_database").fetchall()}
        if database not in names:
            connection.execute(
                sql.SQL("create database {} owner fullread_owner encoding 'UTF8' template template0").format(
                    sql.Identifier(database)
                )
            )
        connection.execute(sql.SQL("revoke all on database {} from public").format(sql.Identifier(database)))
        connection.execute(
            sql.SQL("grant connect on database {} to fullread_app, fullread_platform, fullread_bi").format(
                sql.Identifier(database)
            )
        )
    inside = psycopg.conninfo.make_conninfo(superuser_url, dbname=database)
    with psycopg.connect(inside, autocommit=True) as connection:
        connection.execute("alter schema public owner to fullread_owner")
        connection.execute("revoke create on schema public from public")
        connection.execute("grant usage on schema public to fullread_app, fullread_platform, fullread_bi")
