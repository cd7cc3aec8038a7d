//! Named places at which the process can be made to die, to prove that nothing is lost or left behind there.
//!
//! `SPACE_FAIL_POINT=<name>` aborts the process when it gets to that place. The list is closed and printed by
//! `space-controld fail-points`; between any two effects of create, exec and delete there is one.

use std::sync::OnceLock;

/// One place.
#[derive(Debug, PartialEq, Eq)]
pub struct FailPoint(&'static str);

impl FailPoint {
    pub const fn name(&self) -> &'static str {
        self.0
    }
}

macro_rules! fail_points {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub static $name: &FailPoint = &FailPoint($text);)*

        /// All of them, in the order in which a sandbox's life meets them.
        pub const ALL: &[&str] = &[$($text),*];
    };
}

fail_points! {
    /// Everything of a create is written, nothing is committed.
    CREATE_BEFORE_COMMIT = "create.before_commit";
    /// Committed; the controller has not been nudged, and the caller has no answer.
    CREATE_AFTER_COMMIT = "create.after_commit";
    /// The controller has read the sandbox and is about to call the node.
    CREATE_BEFORE_NODE_CALL = "create.before_node_call";
    /// The node has answered; nothing of that is written.
    CREATE_AFTER_NODE_CALL = "create.after_node_call";
    /// What the node saw is written, but not committed.
    OBSERVE_BEFORE_COMMIT = "observe.before_commit";
    /// It is committed; nobody who waits for it knows.
    OBSERVE_AFTER_COMMIT = "observe.after_commit";
    /// An exec or a new command is checked and routed, the worker not called.
    EXEC_BEFORE_WORKER_CALL = "exec.before_worker_call";
    /// The worker has accepted the command; the caller knows nothing of it.
    EXEC_AFTER_WORKER_CALL = "exec.after_worker_call";
    /// The first event of the command is about to be sent to the caller.
    EXEC_BEFORE_FIRST_EVENT = "exec.before_first_event";
    /// Deletion is written, but not committed.
    DELETE_BEFORE_COMMIT = "delete.before_commit";
    /// It is committed; the controller has not been nudged, and the caller has no answer.
    DELETE_AFTER_COMMIT = "delete.after_commit";
    /// The controller is about to have the node remove the sandbox.
    DELETE_BEFORE_NODE_CALL = "delete.before_node_call";
    /// The node has removed it; nothing of that is written.
    DELETE_AFTER_NODE_CALL = "delete.after_node_call";
    /// That nothing is left is written, but not committed.
    CONCLUDE_BEFORE_COMMIT = "conclude.before_commit";
    /// It is committed; nobody who waits for it knows.
    CONCLUDE_AFTER_COMMIT = "conclude.after_commit";
}

/// Dies here if that was asked for.
pub fn hit(point: &FailPoint) {
    static WANTED: OnceLock<Option<String>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| std::env::var("SPACE_FAIL_POINT").ok());
    if wanted.as_deref() == Some(point.name()) {
        tracing::error!(fail_point = point.name(), "aborting as asked");
        std::process::abort();
    }
}

/// Whether `SPACE_FAIL_POINT` names something that does not exist: a test that waits for it would prove nothing.
pub fn unknown() -> Option<String> {
    std::env::var("SPACE_FAIL_POINT").ok().filter(|wanted| !ALL.contains(&wanted.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let unique: std::collections::BTreeSet<_> = ALL.iter().collect();
        assert_eq!(unique.len(), ALL.len());
    }
}
