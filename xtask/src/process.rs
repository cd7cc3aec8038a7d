//! A process that outlives the xtask that started it, and is found again by a later one.
//!
//! Process ids are used again, after a reboot at the latest; together with the start time one names a process.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::exec;

/// Which process it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// When it began, in the kernel's ticks since the machine did.
    started: u64,
}

impl Process {
    /// The process that runs under this id now.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let pid = i32::try_from(pid).context("a process id out of range")?;
        let started = start_time(pid).context("the process ended at once")?;
        Ok(Self { pid, started })
    }

    /// Whether it is still there, and is the one that was started.
    pub(crate) fn lives(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    /// Its id as long as it lives.
    pub(crate) fn living(&self) -> Option<Pid> {
        Pid::from_raw(self.pid).filter(|_| self.lives())
    }

    /// Waits up to `limit` for it to end. It may be anybody's.
    pub(crate) fn wait_for_end(&self, limit: Duration) -> Result<bool> {
        let Some(pid) = self.living() else {
            return Ok(true);
        };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else {
            return Ok(true);
        };
        exec::readable(&pidfd, limit)
    }
}

/// Start time of a process that runs (a zombie doesn't), as in `proc(5)`, field 22.
fn start_time(pid: i32) -> Option<u64> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &str = "1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9 9";

    #[test]
    fn a_name_with_parentheses_does_not_hide_the_start_time() {
        assert_eq!(parse_stat(&format!("7 (a) b) (c) S {FIELDS}")), Some(4711));
    }

    #[test]
    fn a_zombie_has_ended() {
        assert_eq!(parse_stat(&format!("7 (space) Z {FIELDS}")), None);
    }

    #[test]
    fn another_process_under_the_same_id_is_not_the_one_that_was_started() {
        let ours = Process::of(std::process::id()).unwrap();
        assert!(ours.lives());
        let earlier = Process { started: ours.started + 1, ..ours };
        assert!(!earlier.lives() && earlier.living().is_none());
        assert!(earlier.wait_for_end(Duration::from_mins(1)).unwrap());
    }

    #[test]
    fn the_end_of_a_process_ends_the_wait() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        assert!(!process.wait_for_end(Duration::ZERO).unwrap());
        drop(child.stdin.take());
        assert!(process.wait_for_end(Duration::from_mins(1)).unwrap());
        child.wait().unwrap();
        assert!(!process.lives());
    }
}
