"""What the catalogue of the migrated database must say: policies, keys, owners, grants, functions, and the ORM's view.

Rules that hold for every table, so that a table of tomorrow can not be forgotten.
"""

from collections import defaultdict

import pytest

import app.answering.tables
import app.documents.tables
import app.engine.tables
import app.identity.tables
import app.jobs.tables  # noqa: F401  (each import registers its tables)
from app.core.db import Base
from app.migrations.roles import ROLES
from tests.support.doors import door, rows, tables_with, value
from tests.support.stack import Stack

#: Tables that belong to no tenant, and who may read them.
SHARED_TABLES = {"tenants", "engines", "worker_beats", "alembic_version"}
#: Unique keys that need not start with the tenant: nobody but the owner and the platform writes there.
PLATFORM_KEYS = {("bi_logins", "login_name"), ("engine_leases", "engine_id")}
#: All that fullread_platform may do (security: never pages, chunks, answers).
PLATFORM_GRANTS = {
    "credentials": {"SELECT", "UPDATE"},
    "login_sessions": {"SELECT", "INSERT", "UPDATE", "DELETE"},
    "api_keys": {"SELECT", "UPDATE"},
    "jobs": {"SELECT", "UPDATE"},
    "job_events": {"INSERT"},
    "outbox": {"SELECT", "INSERT", "UPDATE", "DELETE"},
    "engine_leases": {"SELECT", "INSERT", "UPDATE", "DELETE"},
    "engines": {"SELECT", "INSERT", "UPDATE"},
    "worker_beats": {"SELECT", "INSERT", "UPDATE", "DELETE"},
    "alembic_version": {"SELECT"},
}
#: What reporting may read: the rows that the views are made of.
BI_GRANTS = {"bi_logins", "collections", "documents", "document_versions"}


def test_every_table_is_a_tenants_or_known_as_shared(stack: Stack) -> None:
    with door(stack, "fullread_owner") as connection:
        everything = {
            row[0]
            for row in rows(
                connection,
                "select relname from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')",
            )
        }
        owned = tables_with(connection)
    assert everything - set(owned) == SHARED_TABLES


def test_every_tenant_table_is_forced_and_restricted(stack: Stack) -> None:
    with door(stack, "fullread_owner") as connection:
        owned = {*tables_with(connection), "tenants"}
        flags = rows(
            connection,
            "select relname, relrowsecurity, relforcerowsecurity from pg_class"
            " where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')",
        )
        restricted = rows(
            connection,
            "select tablename, qual, with_check, cmd from pg_policies"
            " where schemaname = 'public' and permissive = 'RESTRICTIVE' and roles = '{fullread_app}'",
        )
        backfill = rows(
            connection,
            "select tablename from pg_policies where roles = '{fullread_owner}' and qual = 'true' and cmd = 'ALL'",
        )
    assert {table for table, enabled, forced in flags if enabled and forced} == owned
    guarded = {}
    for table, using, check, command in restricted:
        assert "NULLIF(current_setting('app.tenant_id'::text, true), ''::text)" in using, table
        # A policy for all commands without a WITH CHECK checks by its USING.
        assert check in (None, using), table
        assert command == "ALL", table
        guarded[table] = using
    assert set(guarded) == owned
    assert {table for (table,) in backfill} == owned


def test_every_policy_names_our_roles(stack: Stack) -> None:
    with door(stack, "fullread_owner") as connection:
        found = rows(connection, "select schemaname || '.' || tablename, policyname, roles::text[] from pg_policies")
    assert found
    # Permissive policies are OR-ed: one for PUBLIC opens the table to every role at once.
    wrong = [(table, policy) for table, policy, roles in found if len(roles) != 1 or roles[0] not in ROLES]
    assert wrong == []


def test_policies_of_the_reporting_role_follow_the_login(stack: Stack) -> None:
    with door(stack, "fullread_owner") as connection:
        found = rows(
            connection, "select tablename, qual, cmd from pg_policies where roles = '{fullread_bi}' order by tablename"
        )
        granted = rows(
            connection,
            "select table_name, privilege_type from information_schema.role_table_grants"
            " where grantee = 'fullread_bi' and table_schema = 'public'",
        )
    assert {table for table, _, _ in found} == BI_GRANTS
    for table, using, command in found:
        assert "SESSION_USER" in using, table
        assert "current_setting" not in using, table
        assert command == "SELECT", table
    assert set(granted) == {(table, "SELECT") for table in BI_GRANTS}


def test_unique_keys_start_with_the_tenant(stack: Stack) -> None:
    with door(stack, "fullread_owner") as connection:
        found = rows(
            connection,
            "select t.relname, (select a.attname from pg_attribute a where a.attrelid = t.oid"
            " and a.attnum = i.indkey[0]) from pg_index i join pg_class t on t.oid = i.indrelid"
            " where i.indisunique and t.relnamespace = 'public'::regnamespace and t.relname = any(%s)",
            tables_with(connection),
        )
    keys = {(table, first) for table, first in found if first != "tenant_id"}
    assert keys == PLATFORM_KEYS, "a unique key over all tenants tells that another tenant's row exists"
    assert {table for table, _ in found} >= {"documents", "chunks", "users", "answers"}


def test_foreign_keys_carry_the_tenant(stack: Stack) -> None:
    with door(stack, "fullread_owner") as connection:
        owned = set(tables_with(connection))
        found = rows(
            connection,
            """
            select c.conrelid::regclass::text, c.confrelid::regclass::text, c.conname,
                array(select a.attname::text from unnest(c.conkey) with ordinality k(n, o)
                    join pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.n order by k.o),
                array(select a.attname::text from unnest(c.confkey) with ordinality k(n, o)
                    join pg_attribute a on a.attrelid = c.confrelid and a.attnum = k.n order by k.o)
            from pg_constraint c where c.contype = 'f' and c.connamespace = 'public'::regnamespace
            """,
        )
    # Key checks bypass row level security: only the composite key keeps a reference inside the tenant.
    wrong = []
    for table, target, name, columns, referenced in found:
        if target in owned and (columns[0] != "tenant_id" or referenced[0] != "tenant_id" or len(columns) < 2):
            wrong.append((table, name))
        if target not in owned and (target, referenced) not in (("tenants", ["id"]), ("engines", ["id"])):
            wrong.append((table, name))
    assert wrong == []
    assert len([1 for _, target, *_ in found if target in owned]) >= 15


def test_every_tenant_row_hangs_on_its_tenant(stack: Stack) -> None:
    with door(stack, "fullread_owner") as connection:
        edges = rows(
            connection,
            "select conrelid::regclass::text, confrelid::regclass::text from pg_constraint"
            " where contype = 'f' and connamespace = 'public'::regnamespace",
        )
        owned = tables_with(connection)
    reached = {"tenants"}
    while more := {source for source, target in edges if target in reached} - reached:
        reached |= more
    assert set(owned) - reached == set(), "rows of a tenant that does not exist could be written there"


def test_no_role_rises_above_row_level_security(stack: Stack) -> None:
    with door(stack, "fullread_owner") as connection:
        found = rows(
            connection,
            "select rolname from pg_roles where rolname = any(%s) and not (rolsuper or rolbypassrls or rolcreaterole"
            " or rolcreatedb or rolreplication) and rolcanlogin",
            list(ROLES),
        )
        members = rows(
            connection,
            "select m.rolname, r.rolname from pg_auth_members a join pg_roles m on m.oid = a.member"
            " join pg_roles r on r.oid = a.roleid where m.rolname = any(%s)",
            list(ROLES),
        )
        inherits = value(connection, "select rolinherit from pg_roles where rolname = 'fullread_owner'")
    assert {name for (name,) in found} == set(ROLES)
    # The owner hands views over; inheriting would add fullread_bi's policies to its own.
    assert members == [("fullread_owner", "fullread_bi")]
    assert inherits is False


def test_views_belong_to_a_plain_role(stack: Stack) -> None:
    with door(stack, "fullread_owner") as connection:
        found = rows(
            connection,
            "select n.nspname || '.' || c.relname, r.rolname, r.rolsuper or r.rolbypassrls,"
            " coalesce(c.reloptions::text, '') from pg_class c join pg_namespace n on n.oid = c.relnamespace"
            " join pg_roles r on r.oid = c.relowner where c.relkind in ('v', 'm')"
            " and n.nspname not in ('pg_catalog', 'information_schema')",
        )
    assert {name for name, *_ in found} == {"bi.documents"}
    for name, owner, above, options in found:
        assert owner == "fullread_bi", name
        assert above is False, name
        assert "security_barrier" in options, name


def test_tables_belong_to_the_owner_and_nobody_else_may_make_any(stack: Stack) -> None:
    with door(stack, "fullread_owner") as connection:
        owners = rows(
            connection,
            "select distinct pg_get_userbyid(relowner) from pg_class where relnamespace = 'public'::regnamespace",
        )
        creators = rows(
            connection,
            "select r.rolname, n.nspname from pg_roles r cross join pg_namespace n"
            " where r.rolname = any(%s) and n.nspname in ('public', 'bi') and has_schema_privilege(r.oid, n.oid,"
            " 'create')",
            list(ROLES),
        )
        guests = rows(
            connection,
            "select r.rolname from pg_roles r where r.rolname = any(%s)"
            " and has_database_privilege(r.oid, current_database(), 'temporary')",
            list(ROLES),
        )
    assert owners == [("fullread_owner",)]
    assert set(creators) == {("fullread_owner", "public"), ("fullread_owner", "bi")}
    assert guests == [("fullread_owner",)]


def test_the_platform_has_its_few_tables_and_no_more(stack: Stack) -> None:
    granted: dict[str, set[str]] = defaultdict(set)
    with door(stack, "fullread_owner") as connection:
        for table, privilege in rows(
            connection,
            "select table_name, privilege_type from information_schema.role_table_grants"
            " where grantee = 'fullread_platform'",
        ):
            granted[table].add(privilege)
        public = rows(
            connection,
            "select table_schema, table_name from information_schema.role_table_grants where grantee = 'PUBLIC'"
            " and table_schema not in ('pg_catalog', 'information_schema')",
        )
        columns = rows(
            connection,
            "select c.relname, a.attname from pg_attribute a join pg_class c on c.oid = a.attrelid"
            " where c.relnamespace = 'public'::regnamespace and a.attacl is not null",
        )
    assert dict(granted) == PLATFORM_GRANTS
    assert public == []
    assert columns == [], "a grant on single columns goes past the lists of tables"


def test_the_app_may_only_read_what_is_written_for_it(stack: Stack) -> None:
    with door(stack, "fullread_owner") as connection:
        found = rows(
            connection,
            "select table_name, array_agg(privilege_type::text) from information_schema.role_table_grants"
            " where grantee = 'fullread_app' group by table_name",
        )
    granted = {table: set(privileges) for table, privileges in found}
    read_only = {"audit_events", "bi_logins", "tenants", "engines", "engine_leases", "worker_beats", "alembic_version"}
    assert {table for table, privileges in granted.items() if privileges == {"SELECT"}} == read_only
    assert not any(privileges & {"TRUNCATE", "REFERENCES", "TRIGGER"} for privileges in granted.values())
    # History is only ever added to; people are disabled and keys revoked, never deleted.
    assert granted["job_events"] == {"SELECT", "INSERT"}
    assert not {table for table in ("users", "api_keys", "jobs") if "DELETE" in granted[table]}


def test_functions_of_the_owner_can_not_be_led_astray(stack: Stack) -> None:
    with door(stack, "fullread_owner") as connection:
        found = rows(
            connection,
            "select p.proname, p.proconfig, pg_get_function_identity_arguments(p.oid), p.prosrc,"
            " has_function_privilege('fullread_platform', p.oid, 'execute') or"
            " has_function_privilege('fullread_bi', p.oid, 'execute'),"
            " exists (select 1 from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) where grantee = 0)"
            " from pg_proc p where p.prosecdef and p.pronamespace not in ('pg_catalog'::regnamespace,"
            " 'information_schema'::regnamespace)",
        )
    assert {name for name, *_ in found} == {"append_audit_event"}
    for name, settings, arguments, source, others, public in found:
        # pg_temp is searched first unless it is named: a temporary table could take the place of a real one.
        assert settings == ["search_path=pg_catalog, public, pg_temp"], name
        assert "tenant" not in arguments, name
        assert "current_setting('app.tenant_id', true)" in source, name
        assert "execute " not in source.lower(), f"{name} builds no statement from text"
        assert others is False, name
        assert public is False, name


@pytest.mark.parametrize("table", sorted(Base.metadata.tables))
def test_the_orm_knows_the_migrated_table(stack: Stack, table: str) -> None:
    mapped = Base.metadata.tables[table]
    with door(stack, "fullread_owner") as connection:
        found = {
            name: (nullable == "YES", kind)
            for name, nullable, kind in rows(
                connection,
                "select column_name, is_nullable, udt_name from information_schema.columns"
                " where table_schema = 'public' and table_name = %s",
                table,
            )
        }
        key = rows(
            connection,
            "select a.attname from pg_index i join pg_attribute a on a.attrelid = i.indrelid"
            " and a.attnum = any(i.indkey) where i.indisprimary and i.indrelid = %s::regclass",
            table,
        )
    assert {column.name: column.nullable for column in mapped.columns} == {
        name: nullable for name, (nullable, _) in found.items()
    }
    assert {column.name for column in mapped.primary_key} == {name for (name,) in key}
    kinds = {column.name: _kind(column.type.python_type) for column in mapped.columns}
    for name, (_, kind) in found.items():
        assert kind in kinds[name], f"{table}.{name} is {kind}, mapped as {kinds[name]}"


def _kind(python_type: type) -> set[str]:
    return {
        "UUID": {"uuid"},
        "str": {"text"},
        "int": {"int4", "int8"},
        "float": {"float4", "float8"},
        "bool": {"bool"},
        "bytes": {"bytea"},
        "datetime": {"timestamptz"},
        "list": {"_text", "_int8", "jsonb"},
        "dict": {"jsonb"},
        "object": {"jsonb"},
    }[python_type.__name__]
