-- What a microVM takes beyond its guest's memory, by its node's word, and what a node has reserved for a sandbox.
alter table nodes add column overhead_memory bigint not null default 0 check (overhead_memory >= 0);
alter table sandboxes add column held_memory bigint;
update sandboxes set held_memory = memory_bytes;
alter table sandboxes alter column held_memory set not null;

-- Set while the request of a key does its work outside the database: until then nobody repeats it.
alter table idempotency add column unanswered_until bigint;
