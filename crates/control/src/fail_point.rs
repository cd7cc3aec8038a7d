//! The places at which the control plane can be made to die; between any two effects of create, exec and delete there
//! is one. [`space_fail_point`] says how.

space_fail_point::fail_points! {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let unique: std::collections::BTreeSet<_> = ALL.iter().map(|point| point.name()).collect();
        assert_eq!(unique.len(), ALL.len());
    }
}
