//! What the node sees of each sandbox, for whoever asks and for reports to control.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use space_node_proto::common::{ObservedSandbox, Phase};
use space_types::SandboxId;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Observations {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    latest: HashMap<SandboxId, ObservedSandbox>,
    unreported: HashSet<SandboxId>,
}

impl Observations {
    pub(crate) fn publish(&self, sandbox: SandboxId, observed: ObservedSandbox) {
        let mut state = self.lock();
        state.latest.insert(sandbox, observed);
        state.unreported.insert(sandbox);
        drop(state);
        self.changed.notify_one();
    }

    /// As if it had never been seen.
    pub(crate) fn forget(&self, sandbox: SandboxId) {
        let mut state = self.lock();
        state.latest.remove(&sandbox);
        state.unreported.remove(&sandbox);
    }

    /// All sandboxes that are here.
    pub(crate) fn all(&self) -> Vec<ObservedSandbox> {
        self.lock().latest.values().filter(|seen| seen.phase() != Phase::Absent).cloned().collect()
    }

    /// Waits until something is unreported, and takes it. Cancel safe.
    pub(crate) async fn take_unreported(&self) -> Vec<ObservedSandbox> {
        loop {
            let taken = self.take();
            if !taken.is_empty() {
                return taken;
            }
            self.changed.notified().await;
        }
    }

    /// A report that failed: what is newer by now stays as it is.
    pub(crate) fn put_back(&self, reports: Vec<ObservedSandbox>) {
        let mut state = self.lock();
        for report in reports {
            let Ok(sandbox) = report.sandbox_id.parse() else { continue };
            state.latest.entry(sandbox).or_insert(report);
            state.unreported.insert(sandbox);
        }
        drop(state);
        self.changed.notify_one();
    }

    fn take(&self) -> Vec<ObservedSandbox> {
        let mut state = self.lock();
        let ids: Vec<SandboxId> = state.unreported.drain().collect();
        let mut taken = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(seen) = state.latest.get(&id).cloned() else { continue };
            if seen.phase() == Phase::Absent {
                state.latest.remove(&id);
            }
            taken.push(seen);
        }
        taken
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(sandbox: SandboxId, sequence: u64, phase: Phase) -> ObservedSandbox {
        ObservedSandbox {
            sandbox_id: sandbox.to_string(),
            sequence,
            phase: phase.into(),
            ..ObservedSandbox::default()
        }
    }

    #[tokio::test]
    async fn a_failed_report_does_not_undo_a_newer_state() {
        let (observations, sandbox) = (Observations::default(), SandboxId::new());
        observations.publish(sandbox, seen(sandbox, 1, Phase::Booting));
        let taken = observations.take_unreported().await;
        observations.publish(sandbox, seen(sandbox, 2, Phase::Running));
        observations.put_back(taken);
        assert_eq!(observations.take_unreported().await[0].sequence, 2);
    }

    #[tokio::test]
    async fn absence_is_reported_once_and_forgotten() {
        let (observations, sandbox) = (Observations::default(), SandboxId::new());
        observations.publish(sandbox, seen(sandbox, 3, Phase::Absent));
        assert!(observations.all().is_empty());
        assert_eq!(observations.take_unreported().await.len(), 1);
        assert!(observations.lock().latest.is_empty());
    }
}
