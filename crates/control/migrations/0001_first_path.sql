-- The schema of the first path. Times are Unix milliseconds by this server's clock; sizes are bytes.

create function now_ms() returns bigint language sql volatile as
$$ select (extract(epoch from clock_timestamp()) * 1000)::bigint $$;

-- One row, whose insertion elects the replica that makes the first tenant and key.
create table installation (
    singleton boolean primary key default true check (singleton),
    created_at bigint not null default now_ms()
);

create table tenants (
    id uuid primary key,
    name text not null unique,
    created_at bigint not null default now_ms()
);

create table api_keys (
    id uuid primary key,
    tenant_id uuid not null references tenants,
    name text not null,
    role text not null check (role in ('member', 'admin')),
    secret_hash bytea not null check (length(secret_hash) = 32),
    created_at bigint not null default now_ms(),
    revoked_at bigint
);
create index api_keys_tenant on api_keys (tenant_id);

create table nodes (
    id uuid primary key,
    name text not null unique,
    address text not null,
    version text not null default '',
    boot_id text not null default '',
    capacity_vcpus integer not null default 0,
    capacity_memory bigint not null default 0,
    disk_free bigint not null default 0,
    -- The sums over its sandboxes with `reserved`; kept here so that placing is one conditional update.
    reserved_vcpus integer not null default 0 check (reserved_vcpus >= 0),
    reserved_memory bigint not null default 0 check (reserved_memory >= 0),
    -- Grows whenever the lease is taken anew; commands carry it.
    fence bigint not null default 0,
    lease_until bigint not null default 0,
    lost boolean not null default false,
    joined_at bigint not null default now_ms(),
    heartbeat_at bigint
);

create table join_tokens (
    hash bytea primary key check (length(hash) = 32),
    created_at bigint not null default now_ms(),
    expires_at bigint not null,
    used_at bigint,
    node_id uuid references nodes
);

create table releases (
    id uuid primary key,
    name text not null,
    digest text not null,
    location text not null,
    size_bytes bigint not null,
    created_at bigint not null default now_ms(),
    unique (name, digest)
);

create table template_tags (
    name text not null,
    tag text not null,
    release_id uuid not null references releases,
    moved_at bigint not null default now_ms(),
    primary key (name, tag)
);

create table sandboxes (
    id uuid primary key,
    tenant_id uuid not null references tenants,
    -- wanted
    desired text not null check (desired in ('running', 'deleted')),
    generation bigint not null,
    vcpus integer not null,
    memory_bytes bigint not null,
    disk_bytes bigint not null,
    release_id uuid not null references releases,
    template_name text not null,
    template_tag text,
    env jsonb not null,
    labels jsonb not null,
    -- placed
    node_id uuid not null references nodes,
    reserved boolean not null,
    -- seen
    observed text not null,
    reason text,
    message text,
    observed_generation bigint not null default 0,
    observed_sequence bigint not null default 0,
    node_lost boolean not null default false,
    data_address text not null default '',
    agent_version text not null default '',
    vmm_version text not null default '',
    -- shown: a pure function of the above, written in the same transaction
    state text not null,
    created_at bigint not null default now_ms(),
    started_at bigint,
    ended_at bigint
);
create index sandboxes_tenant on sandboxes (tenant_id, id desc);
create index sandboxes_tenant_live on sandboxes (tenant_id, id desc) where state <> 'deleted';
create index sandboxes_labels on sandboxes using gin (labels jsonb_path_ops);
create index sandboxes_node on sandboxes (node_id) where state <> 'deleted';
create index sandboxes_ended on sandboxes (ended_at) where state = 'deleted';

create table operations (
    id uuid primary key,
    tenant_id uuid not null references tenants,
    sandbox_id uuid not null references sandboxes on delete cascade,
    kind text not null check (kind in ('create', 'delete')),
    status text not null check (status in ('pending', 'running', 'succeeded', 'failed')),
    problem jsonb,
    created_at bigint not null default now_ms(),
    finished_at bigint
);
create index operations_open on operations (sandbox_id) where finished_at is null;
create index operations_sandbox on operations (sandbox_id);

-- Sequence numbers are handed out before they are committed, so a reader may see 10 before 9. Readers go only
-- as far as every older transaction has ended, which `transaction` tells.
create table events (
    sequence bigserial primary key,
    id uuid not null,
    transaction xid8 not null default pg_current_xact_id(),
    tenant_id uuid not null references tenants,
    sandbox_id uuid not null,
    kind text not null,
    data jsonb not null,
    at bigint not null default now_ms()
);
create index events_tenant on events (tenant_id, sequence);
create index events_sandbox on events (sandbox_id, sequence);
create index events_at on events (at);

-- What the sandbox controller has yet to look at. Survives the process that wrote it.
create table triggers (
    sandbox_id uuid primary key references sandboxes on delete cascade,
    due_at bigint not null
);
create index triggers_due on triggers (due_at);

create table idempotency (
    tenant_id uuid not null references tenants,
    key text not null,
    route text not null,
    body_hash bytea not null,
    status integer not null,
    response jsonb not null,
    created_at bigint not null default now_ms(),
    primary key (tenant_id, key)
);
create index idempotency_created on idempotency (created_at);
