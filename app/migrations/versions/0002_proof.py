"""Proof: snapshots and how they are read in sections; what an answer needs to be explained and repeated."""

from alembic import op

from app.migrations.security import tenant_statements

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TENANT_TABLES = {
    "snapshots": "select, insert, delete",
    "snapshot_plans": "select, insert, delete",
}

_STATEMENTS = (
    """
    create table snapshots (
        tenant_id uuid not null,
        id uuid not null,
        collection_id uuid not null,
        digest text not null,
        format integer not null,
        documents jsonb not null,
        documents_total integer not null,
        pages_total integer not null,
        chars_total bigint not null,
        created_at timestamptz not null default now(),
        primary key (tenant_id, id),
        foreign key (tenant_id, collection_id) references collections (tenant_id, id) on delete cascade
    )
    """,
    """
    create table snapshot_plans (
        tenant_id uuid not null,
        snapshot_id uuid not null,
        collection_id uuid not null,
        tokenizer text not null,
        section_tokens integer not null,
        shape text not null,
        additive boolean not null,
        tokens bigint not null,
        sections jsonb not null,
        created_at timestamptz not null default now(),
        primary key (tenant_id, snapshot_id, tokenizer, section_tokens, shape),
        foreign key (tenant_id, snapshot_id) references snapshots (tenant_id, id) on delete cascade
    )
    """,
    "create index snapshots_collection on snapshots (tenant_id, collection_id)",
    "alter table answers drop constraint answers_state_check",
    """
    alter table answers add constraint answers_state_check check
        (state in ('queued', 'running', 'succeeded', 'not_found', 'failed', 'cancelled', 'abandoned'))
    """,
    "alter table answers add column asked_route text not null default 'auto'",
    "alter table answers add column selection jsonb not null default '{}'",
    "alter table answers add column verdicts jsonb not null default '[]'",
    "alter table answers add column run jsonb not null default '{}'",
    "alter table answers add column again_of uuid",
    "alter table answers add column job_id uuid",
    """
    alter table answers add constraint answers_again_of_fkey foreign key (tenant_id, again_of)
        references answers (tenant_id, id) on delete set null (again_of)
    """,
)


def upgrade() -> None:
    """Additive: the release before runs on this schema."""
    for statement in _STATEMENTS:
        op.execute(statement)
    for table, rights in TENANT_TABLES.items():
        for statement in tenant_statements(table, rights):
            op.execute(statement)


def downgrade() -> None:
    """Schemas only go forward."""
    raise NotImplementedError("schemas only go forward")
