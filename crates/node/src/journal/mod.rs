//! The intent journal: what this node has made outside of itself, written down before it is made.
//!
//! SQLite in WAL mode with `synchronous = FULL`: a row that was committed is there after `kill -9` and after
//! a power cut. One row in `vms` stands for all of a VM's outside resources (namespace, TAP, cgroup, FIFO,
//! jail, process), because their names follow from its id and slot; likewise one in `workers`. A row goes
//! only when all that it stands for is gone.
//!
//! ```text
//!   vms.stage:  preparing ──▶ pooled ──▶ claimed ──▶ ended (process side gone, disk kept)
//!                   └───────────┴──────────┴───────────┴──▶ removing ──▶ (no row)
//! ```
//!
//! What nobody writes down: a sandbox that was refused, and the pool's preference for certain slots.

mod sandboxes;
mod schema;
mod vms;
mod workers;

use std::sync::{Arc, Mutex, PoisonError};

use camino::Utf8Path;
use rusqlite::{Connection, OptionalExtension, Transaction};

pub(crate) use sandboxes::{Phase, SandboxRecord, now_ms};
pub(crate) use vms::{VmRecord, VmStage};
pub(crate) use workers::WorkerRecord;

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("the journal failed")]
    Sqlite(#[from] rusqlite::Error),
    #[error("the journal holds what this version can't read: {0}")]
    Corrupt(String),
    #[error("no slot is free")]
    NoSlot,
    #[error("no user id is free for a worker")]
    NoWorkerUid,
    #[error("the journal's task was stopped")]
    Stopped,
}

/// Cheap to clone. Every call is one transaction.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    connection: Arc<Mutex<Connection>>,
}

impl Journal {
    /// Opens or makes the journal at `path`. Blocks.
    pub(crate) fn open(path: &Utf8Path) -> Result<Self, JournalError> {
        Self::prepare(Connection::open(path)?)
    }

    #[cfg(test)]
    pub(crate) fn in_memory() -> Result<Self, JournalError> {
        Self::prepare(Connection::open_in_memory()?)
    }

    fn prepare(mut connection: Connection) -> Result<Self, JournalError> {
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        schema::migrate(&mut connection)?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)) })
    }

    /// Runs `work` in a transaction on a thread that may block. Not cancelled by dropping: what was begun is
    /// finished.
    async fn transact<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let connection = Arc::clone(&self.connection);
        let run = move || {
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            let transaction = connection.transaction()?;
            let result = work(&transaction)?;
            transaction.commit()?;
            Ok(result)
        };
        tokio::task::spawn_blocking(run).await.map_err(|_stopped| JournalError::Stopped)?
    }

    /// The fence below which every command is refused.
    pub(crate) async fn fence(&self) -> Result<u64, JournalError> {
        Ok(self.meta("fence").await?.and_then(|text| text.parse().ok()).unwrap_or(0))
    }

    /// Raises the fence; never lowers it.
    pub(crate) async fn raise_fence(&self, fence: u64) -> Result<(), JournalError> {
        self.transact(move |transaction| {
            let known = get_meta(transaction, "fence")?.and_then(|text| text.parse().ok()).unwrap_or(0_u64);
            if fence > known { set_meta(transaction, "fence", &fence.to_string()) } else { Ok(()) }
        })
        .await
    }

    /// The boot of the machine that the rows are from; replaced by `current`. `None` in a new journal.
    pub(crate) async fn exchange_boot_id(&self, current: String) -> Result<Option<String>, JournalError> {
        self.transact(move |transaction| {
            let last = get_meta(transaction, "boot_id")?;
            set_meta(transaction, "boot_id", &current)?;
            Ok(last)
        })
        .await
    }

    async fn meta(&self, key: &'static str) -> Result<Option<String>, JournalError> {
        self.transact(move |transaction| get_meta(transaction, key)).await
    }
}

fn get_meta(transaction: &Transaction<'_>, key: &str) -> Result<Option<String>, JournalError> {
    let row = transaction.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0));
    Ok(row.optional()?)
}

fn set_meta(transaction: &Transaction<'_>, key: &str, value: &str) -> Result<(), JournalError> {
    let sql = "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2";
    transaction.execute(sql, [key, value])?;
    Ok(())
}

/// The smallest number below `count` that is not in `taken`, which is sorted.
fn lowest_free(taken: &[u32], count: u32) -> Option<u32> {
    let hole = taken.iter().zip(0..).find(|(taken, index)| *taken != index).map(|(_, index)| index);
    let free = hole.unwrap_or(u32::try_from(taken.len()).ok()?);
    (free < count).then_some(free)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_lowest_free_number_is_free_and_lowest(taken in proptest::collection::btree_set(0_u32..20, 0..20)) {
            let sorted: Vec<u32> = taken.iter().copied().collect();
            if let Some(free) = lowest_free(&sorted, 20) {
                prop_assert!(!taken.contains(&free));
                prop_assert!((0..free).all(|below| taken.contains(&below)));
            } else {
                prop_assert_eq!(taken.len(), 20);
            }
        }
    }

    #[tokio::test]
    async fn a_fence_never_falls() {
        let journal = Journal::in_memory().unwrap();
        for fence in [3, 9, 4] {
            journal.raise_fence(fence).await.unwrap();
        }
        assert_eq!(journal.fence().await.unwrap(), 9);
    }

    #[tokio::test]
    async fn the_last_boot_is_remembered() {
        let journal = Journal::in_memory().unwrap();
        assert_eq!(journal.exchange_boot_id("a".to_owned()).await.unwrap(), None);
        assert_eq!(journal.exchange_boot_id("b".to_owned()).await.unwrap().as_deref(), Some("a"));
    }
}
