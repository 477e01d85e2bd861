"""What each database role sees and may do: every measured trap of row level security, on the running PostgreSQL."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import errors, sql
from sqlalchemy import text

from app.core.ids import new_id
from tests.support.doors import address, count, door, rows, tables_with, value
from tests.support.planted import Planted, plant, uproot
from tests.support.stack import Stack

#: fullread_platform may read these and nothing else of what tenants own.
PLATFORM_TABLES = {"credentials", "login_sessions", "api_keys", "jobs", "outbox", "engine_leases"}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two tenants with one row in every table."""

    ours: Planted
    theirs: Planted
    tables: tuple[str, ...]


@pytest.fixture(scope="module")
def pair(stack: Stack) -> Iterator[Pair]:
    """Two planted tenants; a table that nobody planted a row in would make the tests below say nothing."""
    with door(stack, "fullread_owner") as connection:
        made = Pair(plant(connection, "ours"), plant(connection, "theirs"), tuple(tables_with(connection)))
        connection.commit()
        for table in made.tables:
            for tenant in (made.ours.tenant, made.theirs.tenant):
                assert _of(connection, table, tenant) >= 1, f"plant a row in {table}: tests/support/planted.py"
    yield made
    with door(stack, "fullread_owner") as connection:
        uproot(connection, made.ours)
        uproot(connection, made.theirs)
        connection.commit()


def _of(connection: psycopg.Connection, table: str, tenant: UUID) -> int:
    statement = sql.SQL("select count(*) from {} where tenant_id = %s").format(sql.Identifier(table))
    return int(connection.execute(statement, (tenant,)).fetchall()[0][0])


def test_the_app_without_a_tenant_sees_nothing(stack: Stack, pair: Pair) -> None:
    with door(stack, "fullread_app") as connection:
        assert [table for table in (*pair.tables, "tenants") if count(connection, table)] == []


def test_the_app_sees_only_its_own_tenant(stack: Stack, pair: Pair) -> None:
    with door(stack, "fullread_app", tenant=pair.ours.tenant) as connection:
        for table in pair.tables:
            assert _of(connection, table, pair.ours.tenant) >= 1, table
            assert count(connection, table) == _of(connection, table, pair.ours.tenant), table
        assert rows(connection, "select id from tenants") == [(pair.ours.tenant,)]


def test_the_setting_is_empty_and_harmless_after_a_commit(stack: Stack, pair: Pair) -> None:
    with door(stack, "fullread_app", tenant=pair.ours.tenant) as connection:
        assert count(connection, "documents") == 1
        connection.commit()
        # Not NULL but '': a policy with a bare cast to uuid would raise here.
        assert value(connection, "select current_setting('app.tenant_id', true)") == ""
        assert [table for table in (*pair.tables, "tenants") if count(connection, table)] == []


def test_a_pooled_connection_forgets_its_tenant(stack: Stack, pair: Pair) -> None:
    database = stack.database()
    try:
        with database.tenant(pair.ours.tenant) as uow:
            assert uow.session.execute(text("select count(*) from documents")).scalar_one() == 1
            pid = uow.session.execute(text("select pg_backend_pid()")).scalar_one()
        with database._app.connect() as connection:
            assert connection.execute(text("select pg_backend_pid()")).scalar_one() == pid
            assert connection.execute(text("select count(*) from documents")).scalar_one() == 0
        with pytest.raises(RuntimeError), database.tenant(pair.ours.tenant):
            raise RuntimeError
        with database.tenant(pair.theirs.tenant) as uow:
            with uow.session.begin_nested():
                uow.session.execute(text("select 1"))
            names = uow.session.execute(text("select name from documents")).scalars().all()
        assert names == [pair.theirs.word]
    finally:
        database.dispose()


def test_the_tenant_is_bound_and_never_pasted(stack: Stack, pair: Pair) -> None:
    database = stack.database()
    hostile = f"{pair.ours.tenant}', true); select set_config('app.tenant_id', '{pair.theirs.tenant}"
    try:
        with pytest.raises(Exception, match="uuid"), database.tenant(hostile) as uow:  # type: ignore[arg-type]
            uow.session.execute(text("select count(*) from documents"))
    finally:
        database.dispose()


def test_a_back_fill_of_the_owner_touches_every_row(stack: Stack, pair: Pair) -> None:
    with door(stack, "fullread_owner") as owner, door(stack, "postgres") as superuser:
        # The stack's own workers write too: not between the two counts.
        names = sql.SQL(", ").join(map(sql.Identifier, pair.tables))
        owner.execute(sql.SQL("lock table {} in share mode").format(names))
        expected = {table: count(superuser, table) for table in pair.tables}
        assert {table: count(owner, table) for table in pair.tables} == expected
        for table in pair.tables:
            # Under FORCE and without a policy for the owner this "succeeds" on 0 rows.
            statement = sql.SQL("update {} set tenant_id = tenant_id").format(sql.Identifier(table))
            assert owner.execute(statement).rowcount == expected[table] > 0, table


@pytest.mark.parametrize("verb", ["insert", "update", "delete", "move"])
def test_the_app_writes_into_no_other_tenant(stack: Stack, pair: Pair, verb: str) -> None:
    with door(stack, "fullread_app", tenant=pair.ours.tenant) as connection:
        if verb == "insert":
            with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
                _new_collection(connection, pair.theirs, new_id())
        elif verb == "move":
            with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
                connection.execute("update collections set tenant_id = %s", (pair.theirs.tenant,))
        elif verb == "update":
            changed = connection.execute(
                "update collections set name = 'taken over' where tenant_id = %s", (pair.theirs.tenant,)
            )
            assert changed.rowcount == 0
        else:
            gone = connection.execute("delete from chunks where id = %s", (pair.theirs.chunk,))
            assert gone.rowcount == 0


def _new_collection(connection: psycopg.Connection, owner: Planted, collection_id: UUID) -> None:
    connection.execute(
        "insert into collections (tenant_id, id, name, created_by) values (%s, %s, %s, %s)",
        (owner.tenant, collection_id, f"name {uuid4()}", owner.user),
    )


def test_another_tenants_key_value_is_no_oracle(stack: Stack, pair: Pair) -> None:
    with door(stack, "fullread_app", tenant=pair.ours.tenant) as connection:
        # The very id of a row of theirs: a unique violation would tell that it exists.
        _new_collection(connection, pair.ours, pair.theirs.collection)
        connection.execute(
            "insert into collections (tenant_id, id, name, created_by) values (%s, %s, %s, %s)",
            (pair.ours.tenant, new_id(), pair.theirs.word, pair.ours.user),
        )
        with pytest.raises(errors.UniqueViolation):
            _new_collection(connection, pair.ours, pair.ours.collection)


def test_a_reference_to_another_tenants_row_is_refused(stack: Stack, pair: Pair) -> None:
    messages = []
    for collection_id in (pair.theirs.collection, new_id()):
        with (
            door(stack, "fullread_app", tenant=pair.ours.tenant) as connection,
            pytest.raises(errors.ForeignKeyViolation) as refused,
        ):
            connection.execute(
                "insert into documents (tenant_id, id, collection_id, name, created_by) values (%s, %s, %s, 'x', %s)",
                (pair.ours.tenant, new_id(), collection_id, pair.ours.user),
            )
        messages.append(str(refused.value).replace(str(collection_id), "ID"))
    assert messages[0] == messages[1], "a foreign id and a random one must not differ"


def test_the_platform_reads_no_content(stack: Stack, pair: Pair) -> None:
    for table in pair.tables:
        with door(stack, "fullread_platform") as connection:
            if table in PLATFORM_TABLES:
                assert _of(connection, table, pair.ours.tenant) >= 1, table
                assert _of(connection, table, pair.theirs.tenant) >= 1, table
            else:
                with pytest.raises(errors.InsufficientPrivilege):
                    count(connection, table)
    assert not {"pages", "chunks", "answers", "citations", "documents"} & PLATFORM_TABLES


FORBIDDEN_TO_SERVE = (
    "update audit_events set detail = '{}'",
    "delete from audit_events",
    "truncate audit_events",
    "insert into audit_events select * from audit_events",
    "create table mine (id int)",
    "create table public.mine (id int)",
    "create temporary table audit_events (seq bigint)",
    "create schema mine",
    "create function public.f() returns int language sql as 'select 1'",
    "alter table documents disable row level security",
    "alter table documents no force row level security",
    "drop policy tenant_only on documents",
    "create policy mine on documents to fullread_app using (true)",
    "set role fullread_owner",
    "set role fullread_platform",
    "set role fullread_bi",
    "set role postgres",
    "set session authorization fullread_owner",
    "set session_replication_role = replica",
    "copy documents to program 'cat'",
    "select pg_read_file('/etc/passwd')",
    "select lo_import('/etc/passwd')",
    "select rolpassword from pg_authid",
    "select * from bi.documents",
    "alter role fullread_app bypassrls",
    "alter role fullread_app superuser",
)


def _allowed(connection: psycopg.Connection, statements: tuple[str, ...]) -> list[str]:
    """Those statements that the role could run (each is rolled back)."""
    allowed = []
    for statement in statements:
        try:
            with connection.transaction(force_rollback=True):
                connection.execute(statement.encode())
                allowed.append(statement)
        except (errors.InsufficientPrivilege, errors.InvalidSchemaName, errors.ObjectNotInPrerequisiteState):
            continue
    return allowed


@pytest.mark.parametrize("role", ["fullread_app", "fullread_platform"])
def test_what_the_serving_roles_may_not_do(stack: Stack, pair: Pair, role: str) -> None:
    with door(stack, role, tenant=pair.ours.tenant) as connection:
        itself = f"set role {role}"
        assert _allowed(connection, tuple({*FORBIDDEN_TO_SERVE, itself})) == [itself]


def test_row_security_off_raises_and_reveals_nothing(stack: Stack, pair: Pair) -> None:
    with door(stack, "fullread_app", tenant=pair.ours.tenant) as connection:
        connection.execute("set row_security = off")
        with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
            count(connection, "documents")


# --- the SQL door of schema bi ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BiLogin:
    """A login role of a reporting tool."""

    name: str
    password: str


@pytest.fixture(scope="module")
def bi_logins(stack: Stack, pair: Pair) -> Iterator[tuple[BiLogin, BiLogin]]:
    """A login that belongs to our tenant, and one that belongs to none; made as a DBA would make them."""
    made = tuple(BiLogin(f"bi_{uuid4().hex[:12]}", uuid4().hex) for _ in range(2))
    with door(stack, "postgres") as superuser:
        for login in made:
            name = sql.Identifier(login.name)
            superuser.execute(sql.SQL("create role {} login password {}").format(name, sql.Literal(login.password)))
            superuser.execute(sql.SQL("grant connect on database fullread to {}").format(name))
            superuser.execute(sql.SQL("grant usage on schema bi to {}").format(name))
            superuser.execute(sql.SQL("grant select on all tables in schema bi to {}").format(name))
        superuser.execute("insert into bi_logins values (%s, %s)", (pair.ours.tenant, made[0].name))
        superuser.commit()
    yield made[0], made[1]
    with door(stack, "postgres") as superuser:
        superuser.execute("delete from bi_logins where login_name = %s", (made[0].name,))
        for login in made:
            name = sql.Identifier(login.name)
            superuser.execute(sql.SQL("drop owned by {}").format(name))
            superuser.execute(sql.SQL("drop role {}").format(name))
        superuser.commit()


def test_a_bi_login_sees_its_own_rows_whatever_it_sets(
    stack: Stack, pair: Pair, bi_logins: tuple[BiLogin, BiLogin]
) -> None:
    ours, _ = bi_logins
    with door(stack, ours.name, password=ours.password) as connection:
        assert rows(connection, "select name from bi.documents") == [(pair.ours.word,)]
        connection.execute(sql.SQL("set app.tenant_id = {}").format(sql.Literal(str(pair.theirs.tenant))))
        assert rows(connection, "select name from bi.documents") == [(pair.ours.word,)]
        connection.execute("reset app.tenant_id")
        assert rows(connection, "select name from bi.documents") == [(pair.ours.word,)]
        # The view's owner is not the one whose rows are shown: nobody is mapped to fullread_bi.
    for login in (bi_logins[1], BiLogin("fullread_bi", "")):
        with door(stack, login.name, password=login.password, tenant=pair.ours.tenant) as connection:
            assert rows(connection, "select name from bi.documents") == []


def test_a_bi_condition_is_never_tried_on_foreign_rows(
    stack: Stack, pair: Pair, bi_logins: tuple[BiLogin, BiLogin]
) -> None:
    ours, _ = bi_logins
    with door(stack, ours.name, password=ours.password) as connection:
        # Without a security barrier the division would run on their row and tell by its error that the name exists.
        probe = "select name from bi.documents where 1 / (case when name = %s then 0 else 1 end) = 1"
        assert rows(connection, probe, pair.theirs.word) == [(pair.ours.word,)]
        with pytest.raises(errors.DivisionByZero):
            rows(connection, probe, pair.ours.word)


FORBIDDEN_TO_REPORT = (
    "select * from documents",
    "select * from chunks",
    "select * from bi_logins",
    "select * from users",
    "insert into bi_logins select tenant_id, 'x' from bi_logins",
    "insert into bi.documents (id) values (gen_random_uuid())",
    "delete from bi.documents",
    "set role fullread_bi",
    "set role fullread_app",
    "set role fullread_owner",
    "set session authorization fullread_bi",
    "create table mine (id int)",
    "create table bi.mine (id int)",
    "create view bi.mine as select 1",
    "create temporary table mine (id int)",
    "create function pg_temp.leak(text) returns boolean language sql as 'select true'",
    "copy (select 1) to program 'cat'",
    "copy bi.documents from '/etc/passwd'",
    "select pg_read_file('/etc/passwd')",
    "select lo_import('/etc/passwd')",
    "select rolpassword from pg_authid",
    "select append_audit_event('a', 'b', 'c', 'd', 'e', 'f', '{}')",
)


def test_what_a_bi_login_may_not_do(stack: Stack, bi_logins: tuple[BiLogin, BiLogin]) -> None:
    ours, _ = bi_logins
    with door(stack, ours.name, password=ours.password) as connection:
        assert _allowed(connection, (*FORBIDDEN_TO_REPORT, "select name from bi.documents")) == [
            "select name from bi.documents"
        ]


def test_statistics_show_a_bi_login_no_foreign_values(
    stack: Stack, pair: Pair, bi_logins: tuple[BiLogin, BiLogin]
) -> None:
    ours, _ = bi_logins
    with door(stack, "postgres") as superuser:
        superuser.execute("analyze documents")
        superuser.commit()
    for role, password in ((ours.name, ours.password), ("fullread_app", ""), ("fullread_bi", "")):
        with door(stack, role, password=password or None) as connection:
            seen = rows(connection, "select tablename, most_common_vals::text, histogram_bounds::text from pg_stats")
        assert pair.theirs.word not in str(seen), role


def test_only_the_four_roles_and_invited_logins_come_in(stack: Stack) -> None:
    with door(stack, "postgres") as superuser:
        name = f"nobody_{uuid4().hex[:12]}"
        identifier = sql.Identifier(name)
        superuser.execute(sql.SQL("create role {} login password 'x'").format(identifier))
        superuser.commit()
        try:
            with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
                psycopg.connect(address(stack, name, "x"))
        finally:
            superuser.execute(sql.SQL("drop role {}").format(identifier))
            superuser.commit()
    for role in ("fullread_app", "postgres"):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(address(stack, role, "wrong"))
