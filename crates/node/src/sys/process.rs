//! Processes that are told apart safely: a pid alone may have been taken over by another process, a pidfd and
//! the pair (pid, start time) may not.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid},
};
use tokio::io::{Interest, unix::AsyncFd};

use super::watch;

/// What identifies one process for as long as the machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessIdentity {
    pub(crate) pid: i32,
    /// Clock ticks since boot: field 22 of `/proc/<pid>/stat`.
    pub(crate) start_time: u64,
}

impl ProcessIdentity {
    /// Of a child that has not been waited for.
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let start_time = parse_start_time(&stat).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { pid, start_time })
    }
}

/// The command name in the second field may hold blanks and brackets, so fields count from its last `)`.
fn parse_start_time(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// How a process ended. `Unknown` for one that was not our child (adopted after a restart).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    Code(i32),
    Signal(i32),
    Unknown,
}

/// A process that can be waited for and killed without racing for its pid.
#[derive(Debug)]
pub(crate) struct Pidfd {
    descriptor: AsyncFd<OwnedFd>,
    identity: ProcessIdentity,
    /// A child whose status nobody has taken yet.
    unreaped: AtomicBool,
}

impl Pidfd {
    /// Of a fresh child.
    pub(crate) fn of_child(pid: i32) -> io::Result<Self> {
        let descriptor = open(pid)?;
        Self::new(descriptor, ProcessIdentity::of(pid)?, true)
    }

    /// Of a process known from before. `None` if it is gone, whoever has its pid now.
    pub(crate) fn find(identity: ProcessIdentity) -> io::Result<Option<Self>> {
        let descriptor = match open(identity.pid) {
            Ok(descriptor) => descriptor,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            Err(error) => return Err(error),
        };
        // The start time is read after the pidfd was opened: if it matches, the pidfd is of that process.
        match ProcessIdentity::of(identity.pid) {
            Ok(found) if found == identity => Self::new(descriptor, identity, false).map(Some),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn new(descriptor: OwnedFd, identity: ProcessIdentity, child: bool) -> io::Result<Self> {
        let descriptor = watch(descriptor, Interest::READABLE)?;
        Ok(Self { descriptor, identity, unreaped: AtomicBool::new(child) })
    }

    pub(crate) fn identity(&self) -> ProcessIdentity {
        self.identity
    }

    /// Answers when the process has ended. Cancel safe.
    pub(crate) async fn ended(&self) -> ExitStatus {
        // Readiness of a pidfd is level-triggered and never goes away; an error of the reactor means that it
        // is shutting down, and then nobody needs the answer.
        drop(self.descriptor.readable().await);
        self.reap()
    }

    pub(crate) fn has_ended(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut set = [PollFd::new(self.descriptor.get_ref(), PollFlags::IN)];
        poll(&mut set, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    pub(crate) fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(self.descriptor.get_ref(), Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn reap(&self) -> ExitStatus {
        self.unreaped.store(false, Ordering::Relaxed);
        let id = WaitId::PidFd(self.descriptor.get_ref().as_fd());
        match waitid(id, WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => ExitStatus::Code(code),
                (None, Some(signal)) => ExitStatus::Signal(signal),
                (None, None) => ExitStatus::Unknown,
            },
            Ok(None) | Err(_) => ExitStatus::Unknown,
        }
    }
}

/// A child that was let go of is still waited for, or it would stay as a zombie.
impl Drop for Pidfd {
    fn drop(&mut self) {
        if !*self.unreaped.get_mut() {
            return;
        }
        let Ok(descriptor) = rustix::io::fcntl_dupfd_cloexec(self.descriptor.get_ref(), 0) else { return };
        let reaper = std::thread::Builder::new().name("reaper".to_owned());
        drop(reaper.spawn(move || waitid(WaitId::PidFd(descriptor.as_fd()), WaitIdOptions::EXITED)));
    }
}

fn open(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_a_hostile_command_name() {
        let fields: Vec<String> = (3..=52).map(|n: u32| n.to_string()).collect();
        let stat = format!("17 (a) 1 (b c) {}", fields.join(" "));
        assert_eq!(parse_start_time(&stat), Some(22));
    }

    #[tokio::test]
    async fn a_pid_with_another_start_time_is_another_process() {
        let me = ProcessIdentity::of(std::process::id().cast_signed()).unwrap();
        assert!(Pidfd::find(me).unwrap().is_some());
        let other = ProcessIdentity { start_time: me.start_time + 1, ..me };
        assert!(Pidfd::find(other).unwrap().is_none());
    }

    #[tokio::test]
    async fn the_end_of_a_child_tells_its_code() {
        #[expect(clippy::zombie_processes, reason = "reaped through its pidfd")]
        let child = std::process::Command::new("/bin/sh").args(["-c", "exit 7"]).spawn().unwrap();
        let pidfd = Pidfd::of_child(child.id().cast_signed()).unwrap();
        assert_eq!(pidfd.ended().await, ExitStatus::Code(7));
        assert!(pidfd.has_ended());
    }
}
