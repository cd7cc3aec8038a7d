//! Named instants at which the daemon can be made to die, so that tests can prove that dying there leaks
//! nothing and loses nothing acknowledged.
//!
//! `SPACE_FAIL_POINT=<name>` (or `fail_point` in the configuration) makes the daemon abort when it comes
//! past that point: no destructor runs, nothing is flushed, exactly as with `kill -9`. `space-noded
//! fail-points` prints the names.

use std::sync::OnceLock;

macro_rules! fail_points {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// One instant.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum FailPoint {
            $($(#[$doc])* $name,)*
        }

        impl FailPoint {
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

fail_points! {
    /// A slot's row is in the journal, nothing else exists.
    SlotJournaled = "slot.journaled";
    /// Its namespace and TAP exist.
    SlotNamespaceMade = "slot.namespace_made";
    /// Its cgroup, FIFO and jail exist.
    SlotJailMade = "slot.jail_made";
    /// The jailer was started, its pid is not yet journaled.
    SlotSpawned = "slot.spawned";
    /// Firecracker answers and is pooled.
    SlotReady = "slot.ready";
    /// The sandbox is in the journal as booting.
    EnsureRecorded = "ensure.recorded";
    /// The image is on the node.
    EnsureImageReady = "ensure.image_ready";
    /// A slot was taken out of the pool, the journal does not know.
    EnsureSlotClaimed = "ensure.slot_claimed";
    /// The journal maps the sandbox to its VM.
    EnsureVmMapped = "ensure.vm_mapped";
    /// The disk lies in the jail.
    EnsureDiskCloned = "ensure.disk_cloned";
    /// Firecracker is configured.
    EnsureConfigured = "ensure.configured";
    /// The guest runs, nobody was told.
    EnsureStarted = "ensure.started";
    /// The worker has the sandbox.
    EnsureAssigned = "ensure.assigned";
    /// The agent answered, the journal still says booting.
    EnsureAgentReady = "ensure.agent_ready";
    /// The journal says running, the caller has no answer.
    EnsureRunning = "ensure.running";
    /// A worker's row is in the journal.
    WorkerJournaled = "worker.journaled";
    /// A worker was started, its pid is not journaled.
    WorkerSpawned = "worker.spawned";
    /// A VM ended, the journal does not know.
    EndSeen = "end.seen";
    /// Its end is in the journal, its namespace and cgroup are still there.
    EndRecorded = "end.recorded";
    /// Removal was journaled.
    RemoveRecorded = "remove.recorded";
    /// The worker was told to forget it.
    RemoveReleased = "remove.released";
    /// Its processes are gone.
    RemoveKilled = "remove.killed";
    /// Its namespace and FIFO are gone.
    RemoveNamespaceGone = "remove.namespace_gone";
    /// Its jail is gone, its rows are not.
    RemoveJailGone = "remove.jail_gone";
    /// Nothing is left, the caller has no answer.
    RemoveForgotten = "remove.forgotten";
}

static ARMED: OnceLock<FailPoint> = OnceLock::new();

#[derive(Debug, thiserror::Error)]
#[error("no fail point is called `{0}`")]
pub struct UnknownFailPoint(String);

/// Arms the fail point called `name` for the life of this process.
pub fn arm(name: &str) -> Result<(), UnknownFailPoint> {
    let point = FailPoint::ALL.iter().copied().find(|point| point.name() == name);
    let point = point.ok_or_else(|| UnknownFailPoint(name.to_owned()))?;
    let armed = ARMED.get_or_init(|| point);
    tracing::warn!(fail_point = armed.name(), "armed: this process will abort there");
    Ok(())
}

impl FailPoint {
    /// Aborts if this is the one that is armed.
    pub(crate) fn pass(self) {
        if ARMED.get() == Some(&self) {
            tracing::warn!(fail_point = self.name(), "aborting");
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_fail_points_is_as_documented() {
        let names: Vec<_> = FailPoint::ALL.iter().map(|point| point.name()).collect();
        insta::assert_snapshot!(names.join("\n"));
    }

    #[test]
    fn an_unknown_name_is_refused() {
        assert!(arm("no.such").is_err());
    }
}
