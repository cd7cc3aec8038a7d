//! The highest fencing number this node has seen. A control that lost its lease carries an older one and is
//! not obeyed any more; the number is kept, so that a restart forgets nothing.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::journal::{Journal, JournalError};

/// Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Fence {
    journal: Journal,
    highest: Arc<Mutex<u64>>,
}

impl Fence {
    pub(crate) async fn load(journal: Journal) -> Result<Self, JournalError> {
        let highest = Arc::new(Mutex::new(journal.fence().await?));
        Ok(Self { journal, highest })
    }

    /// Whether a command with `fence` may be obeyed. A higher one than ever is on disk before the answer.
    pub(crate) async fn pass(&self, fence: u64) -> Result<bool, JournalError> {
        let mut highest = self.highest.lock().await;
        if fence > *highest {
            self.journal.raise_fence(fence).await?;
            *highest = fence;
        }
        Ok(fence >= *highest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_older_fence_is_refused_also_after_a_restart() {
        let journal = Journal::in_memory().unwrap();
        let fence = Fence::load(journal.clone()).await.unwrap();
        assert!(fence.pass(5).await.unwrap());
        assert!(!fence.pass(4).await.unwrap());
        let again = Fence::load(journal).await.unwrap();
        assert!(!again.pass(4).await.unwrap());
        assert!(again.pass(5).await.unwrap());
    }
}
