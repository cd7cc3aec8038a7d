-- Keys with scopes, an end, and a second secret while they are rotated.

alter table api_keys
    add column scopes text[] not null default
        '{sandboxes:read,sandboxes:write,commands,files,keys,projects,usage:read}',
    add column expires_at bigint,
    add column rotated_at bigint,
    -- The secret before the last rotation, and until when it is valid.
    add column former_hash bytea check (length(former_hash) = 32),
    add column former_until bigint,
    add column last_used_at bigint,
    add check ((former_hash is null) = (former_until is null));

-- Members could do all of that but make keys and projects. From here on every insert says what its key may do.
update api_keys set scopes = array_remove(array_remove(scopes, 'keys'), 'projects') where role = 'member';
alter table api_keys alter column scopes drop default;
