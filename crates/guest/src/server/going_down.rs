//! The way to power-off and reboot.
//!
//! ```text
//! signal or request ─▶ announce (until a host has taken the notice, 500 ms at most)
//!                   ─▶ SIGTERM to everything (until nothing is left, 2 s at most) ─▶ SIGKILL
//!                   ─▶ write back (a child syncs, 10 s at most) ─▶ reboot(2), by the caller
//! ```
//! Signals mean what they mean to busybox's and systemd's init: SIGUSR1, SIGUSR2, SIGPWR, RTMIN+3 and RTMIN+4
//! power off; SIGTERM, SIGINT and RTMIN+5 reboot. A guest that calls reboot(2) itself is not heard of; the
//! host then sees the VM end.

use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use space_guest_proto::message::NoticeKind;

use super::{Agent, NOTICE_TIME};
use crate::sys::process::{Forked, exit_now, fork, signal_everyone};

/// systemd's `RTMIN+3`, `+4` and `+5`; the C library there keeps the first two real-time signals for itself.
pub(crate) const HALT_SIGNAL: i32 = 37;
pub(crate) const POWER_OFF_SIGNAL: i32 = 38;
pub(crate) const REBOOT_SIGNAL: i32 = 39;

const TERMINATION_TIME: Duration = Duration::from_secs(2);
const WRITE_BACK_TIME: Duration = Duration::from_secs(10);

pub(crate) struct GoingDown {
    kind: NoticeKind,
    phase: Phase,
    until: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Announcing { taken: bool },
    Terminating,
    WritingBack { child: Option<Pid> },
}

impl GoingDown {
    pub(crate) fn deadline(&self) -> Instant {
        self.until
    }
}

impl Agent {
    pub(super) fn take_signals(&mut self) {
        while let Some(signal) = self.setup.signals.next() {
            match signal {
                libc::SIGCHLD => self.reap(),
                libc::SIGTERM | libc::SIGINT | REBOOT_SIGNAL => self.go_down(NoticeKind::Reboot),
                libc::SIGUSR1 | libc::SIGUSR2 | libc::SIGPWR | HALT_SIGNAL | POWER_OFF_SIGNAL => {
                    self.go_down(NoticeKind::PowerOff);
                }
                other => crate::log::info(format_args!("signal {other} means nothing here")),
            }
        }
    }

    /// Begins to go down. What was begun first stays.
    pub(super) fn go_down(&mut self, kind: NoticeKind) {
        if self.going_down.is_some() {
            return;
        }
        crate::log::info(format_args!("going down: {kind:?}"));
        let phase = Phase::Announcing { taken: self.connections.is_empty() };
        self.going_down = Some(GoingDown { kind, phase, until: Instant::now() + NOTICE_TIME });
        for connection in self.connections.values_mut() {
            connection.notify(kind);
        }
    }

    /// What a new connection is to be told.
    pub(super) fn notice(&self) -> Option<NoticeKind> {
        self.going_down.as_ref().map(|going_down| going_down.kind)
    }

    pub(super) fn notice_taken(&mut self) {
        if let Some(GoingDown { phase: Phase::Announcing { taken }, .. }) = &mut self.going_down {
            *taken = true;
        }
    }

    /// The next step, if its time has come. `Some`: everything is done.
    pub(super) fn go_down_further(&mut self, now: Instant) -> Option<NoticeKind> {
        loop {
            let going_down = self.going_down.as_ref()?;
            let expired = going_down.until <= now;
            match going_down.phase {
                Phase::Announcing { taken } if taken || expired => {
                    self.signal_commands(libc::SIGTERM);
                    self.jobs.signal(libc::SIGTERM);
                    signal_everyone(libc::SIGTERM);
                    self.enter(Phase::Terminating, now + TERMINATION_TIME);
                }
                Phase::Terminating if expired || !has_children() => {
                    self.signal_commands(libc::SIGKILL);
                    self.jobs.signal(libc::SIGKILL);
                    signal_everyone(libc::SIGKILL);
                    self.enter(Phase::WritingBack { child: write_back() }, now + WRITE_BACK_TIME);
                }
                Phase::WritingBack { child } if expired || child.is_none() => return Some(going_down.kind),
                Phase::Announcing { .. } | Phase::Terminating | Phase::WritingBack { .. } => return None,
            }
        }
    }

    /// For an agent that is not PID 1 and can't reach everyone.
    fn signal_commands(&self, signal: i32) {
        for command in self.commands.iter().filter(|command| command.exit.is_none()) {
            if let Some(process) = &command.process {
                drop(process.signal(signal));
            }
        }
    }

    fn enter(&mut self, phase: Phase, until: Instant) {
        crate::log::info(format_args!("going down: {phase:?}"));
        if let Some(going_down) = &mut self.going_down {
            (going_down.phase, going_down.until) = (phase, until);
        }
    }

    /// A child that is no command's was reaped.
    pub(super) fn helper_reaped(&mut self, pid: Pid) {
        if let Some(GoingDown { phase: Phase::WritingBack { child }, .. }) = &mut self.going_down {
            child.take_if(|child| *child == pid);
        }
    }
}

/// Whether anything is left to end. Of PID 1 every process in the guest is a descendant.
fn has_children() -> bool {
    waitid(WaitId::All, WaitIdOptions::NOHANG | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).is_ok()
}

/// Writes the filesystems back, in a child: a filesystem that a guest made may never answer.
fn write_back() -> Option<Pid> {
    match fork(None) {
        Ok(Forked::Parent(pid)) => Some(pid),
        Ok(Forked::Child) => {
            rustix::fs::sync();
            exit_now(0)
        }
        Err(error) => {
            crate::log::error(format_args!("cannot fork to write back: {error}"));
            rustix::fs::sync();
            None
        }
    }
}
