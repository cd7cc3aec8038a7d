//! The journal's tables. A change is another step at the end of [`STEPS`]; `user_version` counts those done.

use rusqlite::Connection;

use super::JournalError;

const STEPS: [&str; 1] = ["
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
    CREATE TABLE vms (
        vm_id TEXT PRIMARY KEY,
        slot INTEGER NOT NULL UNIQUE,
        stage TEXT NOT NULL,
        pid INTEGER,
        start_time INTEGER
    ) STRICT;
    CREATE TABLE sandboxes (
        sandbox_id TEXT PRIMARY KEY,
        tenant_id TEXT NOT NULL,
        generation INTEGER NOT NULL,
        sequence INTEGER NOT NULL,
        phase TEXT NOT NULL,
        reason TEXT,
        message TEXT NOT NULL,
        config BLOB NOT NULL,
        vm_id TEXT REFERENCES vms (vm_id),
        agent_version TEXT NOT NULL,
        started_at_ms INTEGER NOT NULL,
        updated_at_ms INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE workers (
        tenant_id TEXT PRIMARY KEY,
        number INTEGER NOT NULL UNIQUE,
        port INTEGER,
        pid INTEGER,
        start_time INTEGER
    ) STRICT;
"];

pub(super) fn migrate(connection: &mut Connection) -> Result<(), JournalError> {
    let done: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let done = done as usize;
    if done > STEPS.len() {
        return Err(JournalError::Corrupt(format!("schema version {done} is newer than {}", STEPS.len())));
    }
    for (version, step) in (1_u32..).zip(STEPS).skip(done) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", version)?;
        transaction.commit()?;
    }
    Ok(())
}
