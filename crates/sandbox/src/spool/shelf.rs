//! A sandbox's spools together: where they lie, and what all of them may cost.

use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    sync::{Arc, atomic::AtomicU64, atomic::Ordering},
};

use tokio::sync::Notify;

use super::{
    SpoolLimits,
    directory::SpoolDirectory,
    log::{Shared, Spool},
    position::Position,
    recover,
};

/// Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Shelf {
    shared: Arc<Shared>,
}

impl Shelf {
    pub(crate) fn new(directory: Option<OwnedFd>, limits: SpoolLimits, wake: Arc<Notify>) -> Self {
        let directory = directory.map(|descriptor| SpoolDirectory::new(descriptor, limits.free_percent));
        Self { shared: Arc::new(Shared { directory, limits, disk: AtomicU64::new(0), wake }) }
    }

    /// What a predecessor left. Blocks; call once.
    pub(crate) fn recover(&self) -> HashMap<String, Arc<Spool>> {
        recover::spools(&self.shared)
    }

    /// An empty spool.
    pub(crate) fn spool(&self, command_id: &str) -> Arc<Spool> {
        let shared = Arc::clone(&self.shared);
        Arc::new(Spool::new(
            command_id.to_owned(),
            shared,
            std::collections::BTreeMap::new(),
            Position::START,
            false,
        ))
    }

    pub(crate) fn limits(&self) -> &SpoolLimits {
        &self.shared.limits
    }

    /// Whether the spools have more on disk than they may together.
    pub(crate) fn is_over_budget(&self) -> bool {
        self.bytes() > self.shared.limits.sandbox
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.shared.disk.load(Ordering::Relaxed)
    }

    /// Drops the oldest segments of whichever is largest until the budget is kept or nothing more can go.
    pub(crate) fn shrink<'a>(&self, spools: &(impl Iterator<Item = &'a Arc<Spool>> + Clone)) {
        while self.is_over_budget() {
            let sizes = spools.clone().map(|spool| (spool.shrinkable(), spool));
            match sizes.max_by_key(|(bytes, _spool)| *bytes) {
                Some((1.., largest)) => largest.shrink(),
                Some((0, _)) | None => return,
            }
        }
    }
}
