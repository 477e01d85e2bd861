"""Row level security as statements, so that no migration can write a policy differently.

Rules (each has a test): RLS enabled and forced; a policy names its role, never PUBLIC; the tenant policy of
fullread_app is restrictive; the setting is '' and not NULL after a commit, hence nullif.
"""

_TENANT = "tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid"


def tenant_statements(table: str, rights: str) -> list[str]:
    """Statements that put a tenant table under RLS and give fullread_app its rights on it."""
    return [
        f"alter table {table} enable row level security",
        f"alter table {table} force row level security",
        f"create policy owner_all on {table} to fullread_owner using (true) with check (true)",
        f"create policy app_rows on {table} to fullread_app using (true) with check (true)",
        f"create policy tenant_only on {table} as restrictive to fullread_app using ({_TENANT}) with check ({_TENANT})",
        f"grant {rights} on {table} to fullread_app",
    ]


def platform_statements(table: str, rights: str) -> list[str]:
    """Statements that let fullread_platform work across tenants on one of its few tables."""
    return [
        f"create policy platform_rows on {table} to fullread_platform using (true) with check (true)",
        f"grant {rights} on {table} to fullread_platform",
    ]


def audit_statements() -> list[str]:
    """The only way into audit_events: a function that appends to the tenant's hash chain under a lock.

    It runs as fullread_owner (SECURITY DEFINER), takes the tenant from the transaction's setting and never
    from an argument, looks for names in pg_temp last, and hashes with the built-in sha256:
    hash = sha256(prev || canonical row).
    """
    return [
        """
        create function append_audit_event(p_actor text, p_action text, p_object_type text, p_object_id text,
            p_outcome text, p_request_id text, p_detail text) returns bigint
        language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
        declare
            v_tenant uuid := nullif(current_setting('app.tenant_id', true), '')::uuid;
            v_seq bigint;
            v_prev bytea;
            v_at timestamptz := clock_timestamp();
            v_row text;
        begin
            if v_tenant is null then
                raise exception 'no tenant is set';
            end if;
            perform pg_advisory_xact_lock(hashtextextended('audit:' || v_tenant::text, 0));
            select seq, hash into v_seq, v_prev from audit_events
                where tenant_id = v_tenant order by seq desc limit 1;
            v_seq := coalesce(v_seq, 0) + 1;
            v_prev := coalesce(v_prev, ''::bytea);
            v_row := json_build_array(v_tenant, v_seq, extract(epoch from v_at)::text, p_actor, p_action,
                p_object_type, p_object_id, p_outcome, p_request_id, p_detail)::text;
            insert into audit_events (tenant_id, seq, at, actor, action, object_type, object_id, outcome,
                    request_id, detail, prev_hash, hash)
                values (v_tenant, v_seq, v_at, p_actor, p_action, p_object_type, p_object_id, p_outcome,
                    p_request_id, p_detail, v_prev, sha256(v_prev || convert_to(v_row, 'UTF8')));
            return v_seq;
        end $$
        """,
        "revoke all on function append_audit_event(text, text, text, text, text, text, text) from public",
        "grant execute on function append_audit_event(text, text, text, text, text, text, text) to fullread_app",
    ]


def bi_statements() -> list[str]:
    """Schema `bi`: views owned by fullread_bi, whose rows come from session_user and never from a setting."""
    tenant = "tenant_id in (select l.tenant_id from bi_logins l where l.login_name = session_user)"
    statements = [
        "create schema bi",
        "create policy bi_rows on bi_logins for select to fullread_bi using (login_name = session_user)",
        "grant select on bi_logins to fullread_bi",
    ]
    for table in ("collections", "documents", "document_versions"):
        statements += [
            f"create policy bi_rows on {table} for select to fullread_bi using ({tenant})",
            f"grant select on {table} to fullread_bi",
        ]
    return [
        *statements,
        """
        create view bi.documents with (security_barrier) as
        select d.id, d.collection_id, c.name as collection, d.name, v.state, v.code, v.pages_total, v.pages_indexed,
               v.media_type, v.size_bytes, d.created_at, d.updated_at
        from documents d
        join collections c on c.tenant_id = d.tenant_id and c.id = d.collection_id
        left join document_versions v on v.tenant_id = d.tenant_id and v.id = d.latest_version_id
        where d.deleted_at is null and c.deleted_at is null
        """,
        "grant usage, create on schema bi to fullread_bi",
        "alter view bi.documents owner to fullread_bi",
        "revoke create on schema bi from fullread_bi",
    ]
