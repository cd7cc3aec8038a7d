-- Usage: what the sandboxes of a project held, over time, by UTC day.

alter table projects
    -- Up to here the days have what the project held.
    add column usage_at bigint not null default now_ms(),
    -- Sandboxes ever created, since this column exists.
    add column creates bigint not null default 0;

-- Products with milliseconds, in bytes: exact, so that nothing is lost to rounding however often a project changes.
create table usage_days (
    project_id uuid not null,
    tenant_id uuid not null,
    day date not null,
    sandbox_ms numeric not null,
    vcpu_ms numeric not null,
    memory_byte_ms numeric not null,
    disk_byte_ms numeric not null,
    creates bigint not null,
    primary key (project_id, day),
    foreign key (project_id, tenant_id) references projects (id, tenant_id)
);
create index usage_days_tenant on usage_days (tenant_id, day);

-- A span of Unix milliseconds by UTC day. The day of its end is always there, if only with 0.
create function usage_span(since bigint, until bigint) returns table (day date, ms bigint)
language sql immutable as $$
    select date '1970-01-01' + d::integer,
           least(until, (d + 1) * 86400000) - greatest(since, d * 86400000)
    from generate_series(since / 86400000, until / 86400000) d
$$;

-- A trigger and not a statement beside the update: `old` is the row as the transaction before left it, even after
-- waiting for its lock, and no update of the sums can be written that forgets the time before it.
create function usage_accrue() returns trigger language plpgsql as $$
begin
    new.usage_at := greatest(old.usage_at, now_ms());
    insert into usage_days as u
    select old.id, old.tenant_id, s.day, old.held_sandboxes::numeric * s.ms, old.held_vcpus::numeric * s.ms,
           old.held_memory::numeric * s.ms, old.held_disk::numeric * s.ms,
           case when s.day = date '1970-01-01' + (new.usage_at / 86400000)::integer
                then new.creates - old.creates else 0 end
    from usage_span(
        case when old.held_sandboxes = 0 and old.held_disk = 0 then new.usage_at else old.usage_at end,
        new.usage_at) s
    on conflict (project_id, day) do update set
        sandbox_ms = u.sandbox_ms + excluded.sandbox_ms,
        vcpu_ms = u.vcpu_ms + excluded.vcpu_ms,
        memory_byte_ms = u.memory_byte_ms + excluded.memory_byte_ms,
        disk_byte_ms = u.disk_byte_ms + excluded.disk_byte_ms,
        creates = u.creates + excluded.creates;
    return new;
end
$$;
create trigger usage_accrue before update of held_sandboxes, held_vcpus, held_memory, held_disk, creates on projects
    for each row execute function usage_accrue();
