//! The places at which a worker can be made to die; [`space_fail_point`] says how. A worker's environment comes from
//! noded, which takes the place from the file of `space-sandboxd` and hands it on.

space_fail_point::fail_points! {
    /// noded has handed a sandbox over, the worker does not serve it yet.
    ASSIGN_RECEIVED = "assign.received";
    /// The agent has answered, noded was not told.
    GUEST_READY = "guest.ready";
    /// Control's exec is checked, the guest knows nothing of it.
    EXEC_RECEIVED = "exec.received";
    /// The guest has the command, control has no answer.
    EXEC_ACCEPTED = "exec.accepted";
    /// noded wants a sandbox back, the worker still serves it.
    RELEASE_RECEIVED = "release.received";
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_list_of_fail_points_is_as_documented() {
        let names: Vec<_> = super::ALL.iter().map(|point| point.name()).collect();
        let expected =
            ["assign.received", "guest.ready", "exec.received", "exec.accepted", "release.received"];
        assert_eq!(names, expected);
    }
}
