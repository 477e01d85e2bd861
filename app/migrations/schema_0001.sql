-- First schema. Every tenant table: primary key (tenant_id, id), composite foreign keys, RLS enabled and forced.
create table tenants (
    id uuid primary key,
    name text not null,
    created_at timestamptz not null default now()
);

create table users (
    tenant_id uuid not null references tenants (id),
    id uuid not null,
    email text not null,
    display_name text not null default '',
    role text not null check (role in ('owner', 'admin', 'editor', 'reviewer', 'viewer')),
    created_at timestamptz not null default now(),
    disabled_at timestamptz,
    primary key (tenant_id, id),
    unique (tenant_id, email)
);

create table credentials (
    tenant_id uuid not null,
    user_id uuid not null,
    email text not null,
    password_hash text not null,
    changed_at timestamptz not null default now(),
    primary key (tenant_id, user_id),
    unique (tenant_id, email),
    foreign key (tenant_id, user_id) references users (tenant_id, id) on delete cascade
);
create index credentials_email on credentials (email);

create table login_sessions (
    tenant_id uuid not null,
    id uuid not null,
    user_id uuid not null,
    token_hash bytea not null,
    created_at timestamptz not null default now(),
    expires_at timestamptz not null,
    revoked_at timestamptz,
    primary key (tenant_id, id),
    foreign key (tenant_id, user_id) references users (tenant_id, id) on delete cascade
);
create index login_sessions_id on login_sessions (id);

create table api_keys (
    tenant_id uuid not null,
    id uuid not null,
    user_id uuid not null,
    name text not null,
    secret_hash bytea not null,
    hint text not null,
    scopes text[] not null,
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    primary key (tenant_id, id),
    foreign key (tenant_id, user_id) references users (tenant_id, id) on delete cascade
);
create index api_keys_id on api_keys (id);

create table collections (
    tenant_id uuid not null references tenants (id),
    id uuid not null,
    name text not null,
    description text not null default '',
    revision bigint not null default 1,
    created_by uuid not null,
    created_at timestamptz not null default now(),
    deleted_at timestamptz,
    primary key (tenant_id, id),
    foreign key (tenant_id, created_by) references users (tenant_id, id)
);
create unique index collections_name on collections (tenant_id, lower(name)) where deleted_at is null;

create table collection_grants (
    tenant_id uuid not null,
    collection_id uuid not null,
    user_id uuid not null,
    role text not null check (role in ('editor', 'reviewer', 'viewer')),
    created_at timestamptz not null default now(),
    primary key (tenant_id, collection_id, user_id),
    foreign key (tenant_id, collection_id) references collections (tenant_id, id) on delete cascade,
    foreign key (tenant_id, user_id) references users (tenant_id, id) on delete cascade
);

create table documents (
    tenant_id uuid not null,
    id uuid not null,
    collection_id uuid not null,
    name text not null,
    active_version_id uuid,
    latest_version_id uuid,
    created_by uuid not null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    deleted_at timestamptz,
    primary key (tenant_id, id),
    foreign key (tenant_id, collection_id) references collections (tenant_id, id),
    foreign key (tenant_id, created_by) references users (tenant_id, id)
);
create unique index documents_name on documents (tenant_id, collection_id, name) where deleted_at is null;
create index documents_collection on documents (tenant_id, collection_id, id);

create table document_versions (
    tenant_id uuid not null,
    id uuid not null,
    document_id uuid not null,
    collection_id uuid not null,
    number integer not null,
    sha256 text not null,
    size_bytes bigint not null,
    state text not null check (state in ('received', 'parsing', 'indexing', 'indexed', 'partial', 'failed',
        'needs_password', 'needs_ocr', 'cancelled', 'superseded', 'deleting')),
    code text,
    message text,
    media_type text,
    language text,
    title text,
    facts jsonb not null default '{}',
    parser_fingerprint text,
    pages_total integer not null default 0,
    pages_parsed integer not null default 0,
    pages_indexed integer not null default 0,
    chunks_total integer not null default 0,
    chunks_indexed integer not null default 0,
    created_at timestamptz not null default now(),
    indexed_at timestamptz,
    primary key (tenant_id, id),
    unique (tenant_id, document_id, number),
    foreign key (tenant_id, document_id) references documents (tenant_id, id) on delete cascade,
    foreign key (tenant_id, collection_id) references collections (tenant_id, id)
);
create index document_versions_bytes on document_versions (tenant_id, collection_id, sha256);
create index document_versions_blob on document_versions (tenant_id, sha256);
alter table documents add foreign key (tenant_id, active_version_id)
    references document_versions (tenant_id, id) on delete set null (active_version_id);
alter table documents add foreign key (tenant_id, latest_version_id)
    references document_versions (tenant_id, id) on delete set null (latest_version_id);

create table pages (
    tenant_id uuid not null,
    version_id uuid not null,
    number integer not null,
    parser_fingerprint text not null,
    label text,
    width real,
    height real,
    rotation integer not null default 0,
    state text not null check (state in ('ok', 'blank', 'needs_ocr', 'failed')),
    code text,
    message text,
    parser text not null,
    char_start integer,
    char_end integer,
    text text not null,
    lines jsonb not null,
    elements jsonb not null,
    primary key (tenant_id, version_id, number),
    foreign key (tenant_id, version_id) references document_versions (tenant_id, id) on delete cascade
);

create table chunks (
    tenant_id uuid not null,
    id uuid not null,
    version_id uuid not null,
    document_id uuid not null,
    collection_id uuid not null,
    ordinal integer not null,
    char_start integer not null,
    char_end integer not null,
    page_from integer not null,
    page_to integer not null,
    header text not null,
    text text not null,
    language text not null,
    stems bigint[] not null,
    primary key (tenant_id, id),
    unique (tenant_id, version_id, ordinal),
    foreign key (tenant_id, version_id) references document_versions (tenant_id, id) on delete cascade,
    foreign key (tenant_id, document_id) references documents (tenant_id, id) on delete cascade,
    foreign key (tenant_id, collection_id) references collections (tenant_id, id)
);
create index chunks_collection on chunks (tenant_id, collection_id);
create index chunks_stems on chunks using gin (stems);

create table jobs (
    tenant_id uuid not null references tenants (id),
    id uuid not null,
    kind text not null,
    queue text not null,
    state text not null check (state in ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
    subject_id uuid,
    collection_id uuid,
    created_by uuid,
    payload jsonb not null default '{}',
    progress jsonb not null default '{}',
    priority integer not null default 0,
    attempt integer not null default 0,
    setbacks integer not null default 0,
    fence bigint not null default 0,
    holder text,
    lease_until timestamptz,
    run_after timestamptz not null default now(),
    hinted_at timestamptz,
    cancel_requested_at timestamptz,
    code text,
    message text,
    created_at timestamptz not null default now(),
    started_at timestamptz,
    finished_at timestamptz,
    primary key (tenant_id, id)
);
create index jobs_id on jobs (id);
create index jobs_due on jobs (queue, priority, run_after) where state = 'queued';
create index jobs_leases on jobs (lease_until) where state = 'running';
create index jobs_subject on jobs (tenant_id, subject_id);

create table job_events (
    tenant_id uuid not null,
    id uuid not null,
    job_id uuid not null,
    at timestamptz not null default now(),
    event text not null,
    detail jsonb not null default '{}',
    primary key (tenant_id, id),
    foreign key (tenant_id, job_id) references jobs (tenant_id, id) on delete cascade
);
create index job_events_job on job_events (tenant_id, job_id, id);

create table outbox (
    tenant_id uuid not null,
    id uuid not null,
    job_id uuid not null,
    queue text not null,
    created_at timestamptz not null default now(),
    sent_at timestamptz,
    primary key (tenant_id, id),
    foreign key (tenant_id, job_id) references jobs (tenant_id, id) on delete cascade
);
create index outbox_unsent on outbox (created_at) where sent_at is null;

create table idempotency_keys (
    tenant_id uuid not null references tenants (id),
    id uuid not null,
    user_id uuid not null,
    key text not null,
    request_hash text not null,
    response jsonb,
    status integer,
    created_at timestamptz not null default now(),
    primary key (tenant_id, id),
    unique (tenant_id, user_id, key),
    foreign key (tenant_id, user_id) references users (tenant_id, id) on delete cascade
);

create table answers (
    tenant_id uuid not null,
    id uuid not null,
    collection_id uuid not null,
    user_id uuid not null,
    question text not null,
    state text not null check (state in ('running', 'succeeded', 'not_found', 'failed', 'abandoned')),
    route text not null,
    route_reasons jsonb not null default '[]',
    form text not null default 'extractive',
    text text not null default '',
    model text not null default '',
    coverage jsonb not null default '{}',
    tokens jsonb not null default '{}',
    timings jsonb not null default '{}',
    seconds double precision,
    code text,
    message text,
    created_at timestamptz not null default now(),
    finished_at timestamptz,
    primary key (tenant_id, id),
    foreign key (tenant_id, collection_id) references collections (tenant_id, id) on delete cascade,
    foreign key (tenant_id, user_id) references users (tenant_id, id)
);
create index answers_user on answers (tenant_id, user_id, id);

create table citations (
    tenant_id uuid not null,
    id uuid not null,
    answer_id uuid not null,
    ordinal integer not null,
    document_id uuid,
    version_id uuid,
    document_name text not null,
    page integer,
    page_label text,
    quote text not null,
    claim text not null default '',
    verified boolean not null,
    boxes jsonb not null default '[]',
    char_start integer,
    char_end integer,
    primary key (tenant_id, id),
    unique (tenant_id, answer_id, ordinal),
    foreign key (tenant_id, answer_id) references answers (tenant_id, id) on delete cascade,
    foreign key (tenant_id, document_id) references documents (tenant_id, id) on delete set null (document_id),
    foreign key (tenant_id, version_id) references document_versions (tenant_id, id) on delete set null (version_id)
);

create table audit_events (
    tenant_id uuid not null references tenants (id),
    seq bigint not null,
    at timestamptz not null,
    actor text not null,
    action text not null,
    object_type text not null,
    object_id text not null,
    outcome text not null,
    request_id text not null,
    detail text not null,
    prev_hash bytea not null,
    hash bytea not null,
    primary key (tenant_id, seq)
);

create table engines (
    id uuid primary key,
    name text not null,
    url text not null,
    model text not null,
    slots integer not null,
    fence bigint not null default 0,
    updated_at timestamptz not null default now()
);

create table engine_leases (
    engine_id uuid not null references engines (id),
    id uuid not null,
    tenant_id uuid not null references tenants (id),
    holder text not null,
    lane text not null check (lane in ('interactive', 'batch')),
    blocks integer not null,
    fence bigint not null,
    acquired_at timestamptz not null default now(),
    lease_until timestamptz not null,
    primary key (engine_id, id)
);
create index engine_leases_live on engine_leases (engine_id, lease_until);

create table bi_logins (
    tenant_id uuid not null references tenants (id),
    login_name text not null,
    created_at timestamptz not null default now(),
    primary key (tenant_id, login_name),
    unique (login_name)
);

create table worker_beats (
    name text primary key,
    queues text[] not null,
    at timestamptz not null default now()
);
