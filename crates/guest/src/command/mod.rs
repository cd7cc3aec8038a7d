//! Commands: processes that a host asked for, with their output kept for replay.
//!
//! ```text
//!   created ── first attach ──▶ running ── leader reaped, output drained ──▶ exited ──▶ forgotten
//!      └──── (never attached, old, room is needed) ───────────────────────────────────────▲
//! ```
//! - `ring`: what a command put out, bounded (pure).
//! - `launch`: the forked child's way to its program.
//! - `process`: the parent's view of a running command: pipes, process group, cgroup, deadline.
//! - `terminal`: the terminal that a command has in place of pipes, if it asks for one.
//! - `cgroup`: one for each command.
//! - `table`: all commands, with the limits on them.

pub(crate) mod cgroup;
pub(crate) mod launch;
pub(crate) mod process;
pub(crate) mod ring;
pub(crate) mod stdin;
pub(crate) mod table;
pub(crate) mod terminal;

use std::time::Instant;

use space_guest_proto::message::{self, CommandSpec, CommandState, Exit};

use self::{launch::LaunchFailure, process::Process, ring::Ring};

/// One command, from its creation until it is forgotten.
pub(crate) struct Command {
    /// Its place in the order of creation, and its name in the event loop.
    pub(crate) serial: u64,
    pub(crate) id: String,
    pub(crate) spec: CommandSpec,
    pub(crate) spec_bytes: usize,
    pub(crate) ring: Ring,
    /// From the start on; kept behind the exit for as long as someone else holds the pipes open.
    pub(crate) process: Option<Process>,
    /// Why the child did not get to its program; becomes the exit when it was reaped.
    pub(crate) launch_failure: Option<LaunchFailure>,
    pub(crate) exit: Option<Exit>,
    pub(crate) subscribers: usize,
    pub(crate) pid: u32,
    pub(crate) created: Instant,
    pub(crate) created_at_ms: u64,
    pub(crate) started_at_ms: u64,
    pub(crate) exited_at_ms: u64,
}

impl Command {
    pub(crate) fn state(&self) -> CommandState {
        match (&self.exit, &self.process) {
            (Some(_), _) => CommandState::Exited,
            (None, Some(_)) => CommandState::Running,
            (None, None) => CommandState::Created,
        }
    }

    pub(crate) fn to_message(&self, with_spec: bool) -> message::Command {
        message::Command {
            command_id: self.id.clone(),
            spec: with_spec.then(|| self.spec.clone()),
            state: self.state().into(),
            pid: self.pid,
            exit: self.exit.clone(),
            last_sequence: self.ring.last_sequence(),
            created_at_ms: self.created_at_ms,
            started_at_ms: self.started_at_ms,
            exited_at_ms: self.exited_at_ms,
        }
    }
}
