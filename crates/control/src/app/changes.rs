//! What changed, for those who wait for it: requests with `?wait=`, event streams, and the other replicas.

use std::sync::{Mutex, PoisonError};

use space_types::{SandboxId, TenantId};
use tokio::sync::{Notify, broadcast};

use crate::store::sandbox_changes::Changed;

/// Changes that a slow waiter may be behind; beyond that it takes everything for changed.
const BACKLOG: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    One(Changed),
    Everything,
}

pub(crate) struct Changes {
    sender: broadcast::Sender<Change>,
    outgoing: Mutex<Vec<Changed>>,
    outgoing_ready: Notify,
}

/// What a waiter cares about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    Sandbox(SandboxId),
    Tenant(TenantId),
}

impl Interest {
    fn meets(self, change: Change) -> bool {
        match (self, change) {
            (_, Change::Everything) => true,
            (Self::Sandbox(id), Change::One(changed)) => changed.sandbox_id == id,
            (Self::Tenant(id), Change::One(changed)) => changed.tenant_id == id,
        }
    }
}

/// Begins to listen when it is made: what changes from then on is not missed.
pub(crate) struct Watch {
    receiver: broadcast::Receiver<Change>,
    interest: Interest,
}

impl Watch {
    /// Returns when something of interest may have changed. Cancel safe.
    pub(crate) async fn changed(&mut self) {
        loop {
            match self.receiver.recv().await {
                Ok(change) if self.interest.meets(change) => return,
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(_)) => return,
                // The sender lives as long as the process.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

impl Changes {
    pub(super) fn new() -> Self {
        let (sender, _) = broadcast::channel(BACKLOG);
        Self { sender, outgoing: Mutex::default(), outgoing_ready: Notify::new() }
    }

    /// Of this replica: waiters here and the other replicas learn of it.
    pub(super) fn publish(&self, changed: Changed) {
        // No receiver is no failure.
        self.sender.send(Change::One(changed)).ok();
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner).push(changed);
        self.outgoing_ready.notify_one();
    }

    /// Of another replica.
    pub(crate) fn publish_foreign(&self, changed: Changed) {
        self.sender.send(Change::One(changed)).ok();
    }

    /// Of another replica, and nobody knows what.
    pub(crate) fn publish_everything(&self) {
        self.sender.send(Change::Everything).ok();
    }

    /// What the other replicas have not been told yet; waits until there is something. Cancel safe.
    pub(crate) async fn outgoing(&self) -> Vec<Changed> {
        loop {
            let changes = std::mem::take(&mut *self.outgoing.lock().unwrap_or_else(PoisonError::into_inner));
            if !changes.is_empty() {
                return changes;
            }
            self.outgoing_ready.notified().await;
        }
    }

    pub(crate) fn watch(&self, interest: Interest) -> Watch {
        Watch { receiver: self.sender.subscribe(), interest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn changed() -> Changed {
        Changed { tenant_id: TenantId::new(), sandbox_id: SandboxId::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_wakes_for_its_own_sandbox_alone() {
        let (changes, wanted) = (Changes::new(), changed());
        let mut watch = changes.watch(Interest::Sandbox(wanted.sandbox_id));
        changes.publish(changed());
        assert!(tokio::time::timeout(Duration::from_secs(1), watch.changed()).await.is_err());
        changes.publish(wanted);
        watch.changed().await;
        changes.publish_everything();
        watch.changed().await;
    }

    #[tokio::test]
    async fn outgoing_changes_are_coalesced() {
        let (changes, both) = (Changes::new(), [changed(), changed()]);
        for changed in both {
            changes.publish(changed);
        }
        assert_eq!(changes.outgoing().await, both);
    }
}
