"""Reporting: when a row last changed, kept by triggers, and tombstones that outlive what was erased."""

from alembic import op

from app.migrations.security import tenant_statements

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

#: Rows only ever come in (by triggers that run with the rights of whoever deletes) and are read.
TOMBSTONE_RIGHTS = "select, insert"

_COLUMNS = (
    "alter table answers add column updated_at timestamptz not null default now()",
    "alter table citations add column updated_at timestamptz not null default now()",
    "alter table document_versions add column updated_at timestamptz not null default now()",
    # A new name shows in every row of the collection: it is compared when they are read, and none is rewritten.
    "alter table collections add column renamed_at timestamptz not null default now()",
    "create index answers_updated on answers (tenant_id, updated_at, id)",
    "create index citations_updated on citations (tenant_id, updated_at, id)",
    "create index documents_updated on documents (tenant_id, updated_at, id)",
    "create index document_versions_updated on document_versions (tenant_id, updated_at, document_id)",
)

# The dataset `grants` tells who saw a collection that is erased: its grants go with it.
_TOMBSTONES = (
    """
    create table bi_tombstones (
        tenant_id uuid not null references tenants (id),
        dataset text not null check (dataset in ('documents', 'answers', 'citations', 'grants')),
        id uuid not null,
        collection_id uuid not null,
        user_id uuid,
        deleted_at timestamptz not null default clock_timestamp(),
        primary key (tenant_id, dataset, id)
    )
    """,
    "create index bi_tombstones_deleted on bi_tombstones (tenant_id, dataset, deleted_at, id)",
)

# clock_timestamp, not now(): the time of the change and not of the transaction's start, so that the margin of a
# walk's `as_of` only has to cover what comes between a change and its commit.
_STAMPS = (
    """
    create function bi_stamp() returns trigger language plpgsql set search_path = pg_catalog, public, pg_temp as $$
    begin
        if tg_op = 'INSERT' then
            new.updated_at := clock_timestamp();
        else
            new.updated_at := greatest(old.updated_at, clock_timestamp());
        end if;
        return new;
    end $$
    """,
    *(
        statement
        for table in ("answers", "citations", "documents", "document_versions")
        for statement in (
            f"create trigger bi_made before insert on {table} for each row execute function bi_stamp()",
            (
                f"create trigger bi_changed before update on {table} for each row"
                " when (old.* is distinct from new.*) execute function bi_stamp()"
            ),
        )
    ),
    """
    create function bi_stamp_name() returns trigger language plpgsql
    set search_path = pg_catalog, public, pg_temp as $$
    begin
        new.renamed_at := greatest(old.renamed_at, clock_timestamp());
        return new;
    end $$
    """,
    """
    create trigger bi_renamed before update on collections for each row
    when (old.name is distinct from new.name) execute function bi_stamp_name()
    """,
    # An answer's row shows how many citations it has; one that was written in this transaction is fresh already.
    """
    create function bi_recount() returns trigger language plpgsql set search_path = pg_catalog, public, pg_temp as $$
    begin
        update answers set updated_at = clock_timestamp()
            where tenant_id = coalesce(new.tenant_id, old.tenant_id) and id = coalesce(new.answer_id, old.answer_id)
                and updated_at < transaction_timestamp();
        return null;
    end $$
    """,
    """
    create trigger bi_recount after insert or delete or update of verified on citations
    for each row execute function bi_recount()
    """,
)

_BURIALS = (
    """
    create function bi_bury_document() returns trigger language plpgsql
    set search_path = pg_catalog, public, pg_temp as $$
    begin
        insert into bi_tombstones (tenant_id, dataset, id, collection_id, deleted_at)
            values (old.tenant_id, 'documents', old.id, old.collection_id,
                greatest(old.updated_at, clock_timestamp()))
            on conflict do nothing;
        return null;
    end $$
    """,
    "create trigger bi_bury after delete on documents for each row execute function bi_bury_document()",
    # Before the delete: the citations go with their answer, and what they leave behind needs its user and collection.
    """
    create function bi_bury_answer() returns trigger language plpgsql
    set search_path = pg_catalog, public, pg_temp as $$
    begin
        insert into bi_tombstones (tenant_id, dataset, id, collection_id, user_id, deleted_at)
            select old.tenant_id, 'citations', c.id, old.collection_id, old.user_id,
                    greatest(c.updated_at, clock_timestamp())
                from citations c where c.tenant_id = old.tenant_id and c.answer_id = old.id
            union all
            select old.tenant_id, 'answers', old.id, old.collection_id, old.user_id,
                    greatest(old.updated_at, clock_timestamp())
            on conflict do nothing;
        return old;
    end $$
    """,
    "create trigger bi_bury before delete on answers for each row execute function bi_bury_answer()",
    """
    create function bi_bury_citation() returns trigger language plpgsql
    set search_path = pg_catalog, public, pg_temp as $$
    begin
        insert into bi_tombstones (tenant_id, dataset, id, collection_id, user_id, deleted_at)
            select a.tenant_id, 'citations', old.id, a.collection_id, a.user_id,
                    greatest(old.updated_at, clock_timestamp())
                from answers a where a.tenant_id = old.tenant_id and a.id = old.answer_id
            on conflict do nothing;
        return null;
    end $$
    """,
    "create trigger bi_bury after delete on citations for each row execute function bi_bury_citation()",
    # A grant that somebody takes away leaves nothing: only one that went with its collection does.
    """
    create function bi_bury_grant() returns trigger language plpgsql
    set search_path = pg_catalog, public, pg_temp as $$
    begin
        insert into bi_tombstones (tenant_id, dataset, id, collection_id, user_id)
            select old.tenant_id, 'grants', gen_random_uuid(), old.collection_id, old.user_id
                where not exists (
                    select from collections c where c.tenant_id = old.tenant_id and c.id = old.collection_id
                );
        return null;
    end $$
    """,
    "create trigger bi_bury after delete on collection_grants for each row execute function bi_bury_grant()",
)


def upgrade() -> None:
    """Additive: the release before runs on this schema, its rows are stamped and buried like all others."""
    for statement in (*_COLUMNS, *_TOMBSTONES):
        op.execute(statement)
    for statement in tenant_statements("bi_tombstones", TOMBSTONE_RIGHTS):
        op.execute(statement)
    for statement in (*_STAMPS, *_BURIALS):
        op.execute(statement)


def downgrade() -> None:
    """Schemas only go forward."""
    raise NotImplementedError("schemas only go forward")
