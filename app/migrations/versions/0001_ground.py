"""Ground: tenants, identity, documents, jobs, answers, audit, engines; roles and row level security."""

from importlib import resources

from alembic import op

from app.migrations.security import audit_statements, bi_statements, platform_statements, tenant_statements

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

#: What the application role may do with each tenant table. Audit rows come in through a function only.
TENANT_TABLES = {
    "users": "select, insert, update",
    "credentials": "select, insert, update, delete",
    "login_sessions": "select, insert, update, delete",
    "api_keys": "select, insert, update",
    "collections": "select, insert, update, delete",
    "collection_grants": "select, insert, update, delete",
    "documents": "select, insert, update, delete",
    "document_versions": "select, insert, update, delete",
    "pages": "select, insert, update, delete",
    "chunks": "select, insert, update, delete",
    "jobs": "select, insert, update",
    "job_events": "select, insert",
    "outbox": "select, insert",
    "idempotency_keys": "select, insert, update, delete",
    "answers": "select, insert, update, delete",
    "citations": "select, insert, update, delete",
    "audit_events": "select",
    "engine_leases": "select",
    "bi_logins": "select",
}
#: The tables that work without a tenant may touch (security: never pages, chunks, answers).
PLATFORM_TABLES = {
    "credentials": "select, update",
    "login_sessions": "select, insert, update, delete",
    "api_keys": "select, update",
    "jobs": "select, update",
    "job_events": "insert",
    "outbox": "select, insert, update, delete",
    "engine_leases": "select, insert, update, delete",
}


def upgrade() -> None:
    """Create everything; the roles exist already (`fullread up` or the DBA made them)."""
    schema = resources.files("app.migrations").joinpath("schema_0001.sql").read_text("utf-8")
    for statement in schema.split(";\n"):
        if statement.strip():
            op.execute(statement)
    for table, rights in TENANT_TABLES.items():
        for statement in tenant_statements(table, rights):
            op.execute(statement)
    for table, rights in PLATFORM_TABLES.items():
        for statement in platform_statements(table, rights):
            op.execute(statement)
    for statement in (*audit_statements(), *bi_statements()):
        op.execute(statement)
    # Not tenant-owned: who the tenants are, which engines exist, which workers live.
    op.execute("alter table tenants enable row level security")
    op.execute("alter table tenants force row level security")
    op.execute("create policy owner_all on tenants to fullread_owner using (true) with check (true)")
    op.execute("create policy app_rows on tenants to fullread_app using (true)")
    op.execute(
        "create policy tenant_only on tenants as restrictive to fullread_app"
        " using (id = nullif(current_setting('app.tenant_id', true), '')::uuid)"
    )
    op.execute("grant select on tenants to fullread_app")
    op.execute("grant select on engines to fullread_app")
    op.execute("grant select, insert, update on engines to fullread_platform")
    op.execute("grant select on worker_beats to fullread_app")
    op.execute("grant select, insert, update, delete on worker_beats to fullread_platform")
    op.execute("grant select on alembic_version to fullread_app, fullread_platform")


def downgrade() -> None:
    """There is nothing before this revision."""
    raise NotImplementedError("0001 is the first schema")
