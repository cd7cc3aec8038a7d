-- Projects, and quotas of tenants and projects.

alter table tenants
    -- Null: what the configuration says.
    add column quota_sandboxes bigint,
    add column quota_vcpus bigint,
    add column quota_memory bigint,
    add column quota_disk bigint,
    -- The sums over its sandboxes: of all with `reserved`, and for the disk of all that are not deleted. Kept here so
    -- that checking a quota and using it is one conditional update.
    add column held_sandboxes bigint not null default 0 check (held_sandboxes >= 0),
    add column held_vcpus bigint not null default 0 check (held_vcpus >= 0),
    add column held_memory bigint not null default 0 check (held_memory >= 0),
    add column held_disk bigint not null default 0 check (held_disk >= 0);

-- A tenant's default project has the tenant's own UUID, so that nobody has to look it up.
create table projects (
    id uuid primary key,
    tenant_id uuid not null references tenants,
    name text not null,
    -- Null: no limit beyond the tenant's.
    quota_sandboxes bigint,
    quota_vcpus bigint,
    quota_memory bigint,
    quota_disk bigint,
    held_sandboxes bigint not null default 0 check (held_sandboxes >= 0),
    held_vcpus bigint not null default 0 check (held_vcpus >= 0),
    held_memory bigint not null default 0 check (held_memory >= 0),
    held_disk bigint not null default 0 check (held_disk >= 0),
    created_at bigint not null default now_ms(),
    deleted_at bigint,
    unique (id, tenant_id),
    check (id <> tenant_id or deleted_at is null)
);
create unique index projects_name on projects (tenant_id, name) where deleted_at is null;
insert into projects (id, tenant_id, name, created_at) select id, id, 'default', created_at from tenants;

alter table sandboxes add column project_id uuid;
update sandboxes set project_id = tenant_id;
alter table sandboxes
    alter column project_id set not null,
    add foreign key (project_id, tenant_id) references projects (id, tenant_id);
create index sandboxes_project on sandboxes (project_id, id desc);
create index sandboxes_project_live on sandboxes (project_id, id desc) where state <> 'deleted';

alter table api_keys
    add column project_id uuid,
    add foreign key (project_id, tenant_id) references projects (id, tenant_id);

-- The log outlives sandboxes, so it says itself whose an event is.
alter table events add column project_id uuid;
update events set project_id = tenant_id;
alter table events alter column project_id set not null;
create index events_project on events (project_id, sequence);

update tenants t set
    held_sandboxes = s.sandboxes, held_vcpus = s.vcpus, held_memory = s.memory, held_disk = s.disk
from (
    select tenant_id, count(*) filter (where reserved) as sandboxes,
           coalesce(sum(vcpus) filter (where reserved), 0) as vcpus,
           coalesce(sum(memory_bytes) filter (where reserved), 0) as memory,
           sum(disk_bytes) as disk
    from sandboxes where state <> 'deleted' group by tenant_id
) s where s.tenant_id = t.id;
update projects p set
    held_sandboxes = t.held_sandboxes, held_vcpus = t.held_vcpus, held_memory = t.held_memory, held_disk = t.held_disk
from tenants t where t.id = p.id;
