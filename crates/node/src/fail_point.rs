//! The instants at which the node can be made to die; [`space_fail_point`] says how.

space_fail_point::fail_points! {
    /// Control has made this node and answered; nothing of the answer is on disk.
    ENROL_ANSWERED = "enrol.answered";
    /// A slot's row is in the journal, nothing else exists.
    SLOT_JOURNALED = "slot.journaled";
    /// Its namespace and TAP exist.
    SLOT_NAMESPACE_MADE = "slot.namespace_made";
    /// Its cgroup, FIFO, spool and jail exist.
    SLOT_JAIL_MADE = "slot.jail_made";
    /// The jailer was started, its pid is not yet journaled.
    SLOT_SPAWNED = "slot.spawned";
    /// Firecracker answers and is pooled.
    SLOT_READY = "slot.ready";
    /// The sandbox is in the journal as booting.
    ENSURE_RECORDED = "ensure.recorded";
    /// The image is on the node.
    ENSURE_IMAGE_READY = "ensure.image_ready";
    /// A slot was taken out of the pool, the journal does not know.
    ENSURE_SLOT_CLAIMED = "ensure.slot_claimed";
    /// The journal maps the sandbox to its VM.
    ENSURE_VM_MAPPED = "ensure.vm_mapped";
    /// The disk lies in the jail.
    ENSURE_DISK_CLONED = "ensure.disk_cloned";
    /// Firecracker is configured.
    ENSURE_CONFIGURED = "ensure.configured";
    /// The guest runs, nobody was told.
    ENSURE_STARTED = "ensure.started";
    /// The worker has the sandbox.
    ENSURE_ASSIGNED = "ensure.assigned";
    /// The agent answered, the journal still says booting.
    ENSURE_AGENT_READY = "ensure.agent_ready";
    /// The journal says running, the caller has no answer.
    ENSURE_RUNNING = "ensure.running";
    /// A worker's row is in the journal.
    WORKER_JOURNALED = "worker.journaled";
    /// A worker was started, its pid is not journaled.
    WORKER_SPAWNED = "worker.spawned";
    /// A VM ended, the journal does not know.
    END_SEEN = "end.seen";
    /// Its end is in the journal, its namespace and cgroup are still there.
    END_RECORDED = "end.recorded";
    /// Removal was journaled.
    REMOVE_RECORDED = "remove.recorded";
    /// The worker was told to forget it.
    REMOVE_RELEASED = "remove.released";
    /// Its processes are gone.
    REMOVE_KILLED = "remove.killed";
    /// Its namespace, FIFO and spool are gone.
    REMOVE_NAMESPACE_GONE = "remove.namespace_gone";
    /// Its jail is gone, its rows are not.
    REMOVE_JAIL_GONE = "remove.jail_gone";
    /// Nothing is left, the caller has no answer.
    REMOVE_FORGOTTEN = "remove.forgotten";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_fail_points_is_as_documented() {
        let names: Vec<_> = ALL.iter().map(|point| point.name()).collect();
        insta::assert_snapshot!(names.join("\n"));
    }
}
