//! Hints that a sandbox is worth a look. Losing one costs time and nothing else.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use space_types::SandboxId;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Nudges {
    waiting: Mutex<HashSet<SandboxId>>,
    ready: Notify,
}

impl Nudges {
    pub(crate) fn nudge(&self, id: SandboxId) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        self.ready.notify_one();
    }

    /// All that were nudged since; waits for the first. Cancel safe.
    pub(crate) async fn take(&self) -> HashSet<SandboxId> {
        loop {
            let taken = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            if !taken.is_empty() {
                return taken;
            }
            self.ready.notified().await;
        }
    }
}
