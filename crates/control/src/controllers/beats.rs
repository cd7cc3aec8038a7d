//! Heartbeats that say nothing new. A node repeats all that lives there every few seconds, and comparing thousands of
//! sandboxes with what is stored each time is most of what an idle installation does. A list that is the one that was
//! compared last, and found in order then, is not compared again for a while; what changes in between is reported by
//! itself, and what control changed is for controllers to carry out.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use aws_lc_rs::digest::{Context, SHA256};
use space_node_proto::common::ObservedSandbox;
use space_types::NodeId;

/// Then it is compared all the same: the backstop against whatever was overlooked.
const COMPARED_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Which sandboxes a list names, and in which version of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fingerprint(Vec<u8>);

impl Fingerprint {
    pub(crate) fn of(reports: &[ObservedSandbox]) -> Self {
        let mut context = Context::new(&SHA256);
        for report in reports {
            context.update(&report.sandbox_id.len().to_be_bytes());
            context.update(report.sandbox_id.as_bytes());
            context.update(&report.generation.to_be_bytes());
            context.update(&report.sequence.to_be_bytes());
        }
        Self(context.finish().as_ref().to_vec())
    }
}

/// Of each node, the last list that was found in order, and when.
#[derive(Debug, Default)]
pub(crate) struct Beats(Mutex<HashMap<NodeId, (Instant, Fingerprint)>>);

impl Beats {
    pub(crate) fn is_news(&self, node: NodeId, list: &Fingerprint) -> bool {
        let beats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !beats.get(&node).is_some_and(|(at, last)| last == list && at.elapsed() < COMPARED_AGAIN_AFTER)
    }

    /// `at`: when the comparison began.
    pub(crate) fn in_order(&self, node: NodeId, at: Instant, list: Fingerprint) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(node, (at, list));
    }

    pub(crate) fn forget(&self, node: NodeId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use space_types::SandboxId;

    use super::*;

    fn list(sequence: u64) -> Fingerprint {
        let sandbox_id = SandboxId::from_uuid(uuid::Uuid::nil()).to_string();
        Fingerprint::of(&[ObservedSandbox { sandbox_id, sequence, ..ObservedSandbox::default() }])
    }

    #[test]
    fn what_was_found_in_order_is_news_when_it_changes_and_after_a_while() {
        let (beats, node, now) = (Beats::default(), NodeId::new(), Instant::now());
        assert!(beats.is_news(node, &list(1)));
        beats.in_order(node, now, list(1));
        assert!(!beats.is_news(node, &list(1)));
        assert!(beats.is_news(node, &list(2)) && beats.is_news(NodeId::new(), &list(1)));
        beats.in_order(node, now.checked_sub(COMPARED_AGAIN_AFTER).unwrap(), list(1));
        assert!(beats.is_news(node, &list(1)));
        beats.in_order(node, now, list(1));
        beats.forget(node);
        assert!(beats.is_news(node, &list(1)));
    }
}
