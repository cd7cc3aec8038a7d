-- What a node is recognised by when it joins again: the hash of its public key.
-- Null: it joined before keys were written down.
alter table nodes add column key_hash bytea check (length(key_hash) = 32);
