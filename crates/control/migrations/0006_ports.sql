-- Ports of sandboxes for which something was set: who may reach them, and which tokens are void.

create table sandbox_ports (
    sandbox_id uuid not null references sandboxes on delete cascade,
    port integer not null check (port between 1 and 65535),
    visibility text not null default 'private' check (visibility in ('private', 'public')),
    -- Tokens of older epochs were revoked.
    epoch bigint not null default 0 check (epoch between 0 and 4294967295),
    primary key (sandbox_id, port)
);

-- Who may join with a token, and of an edge that did, what it is recognised by.
alter table join_tokens
    add column kind text not null default 'node' check (kind in ('node', 'edge')),
    add column edge_key_hash bytea check (length(edge_key_hash) = 32);

-- The scope `ports` goes to keys that may do everything with a sandbox already: make and delete it, run commands in it,
-- read and write its files. A key that was narrowed stays as narrow as it was.
update api_keys set scopes = array_append(scopes, 'ports')
    where scopes @> '{sandboxes:read,sandboxes:write,commands,files}' and not scopes @> '{ports}';
