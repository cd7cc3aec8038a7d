//! One cgroup for each command, below one for all of them.
//!
//! ```text
//! /sys/fs/cgroup          the agent itself, and what guests make (containers): all controllers
//! └─ commands             pids.max, memory.max: what keeps the agent alive beside a fork bomb or a leak
//!    ├─ <number>          one command; no controllers, so that making one is cheap. For cgroup.kill
//!    └─ jobs              all jobs: within the same limits, and where nobody is killed with a command
//! ```
//! Everything goes through a descriptor that was opened before the first command ran: what root in the guest
//! mounts or unmounts there later doesn't lead the agent astray. Without cgroups commands run all the same.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, unlinkat},
    io::Errno,
};

use crate::sys::process::{Forked, fork};

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC).union(OFlags::RDONLY);

/// The cgroup that all commands are in.
pub(crate) struct Commands {
    directory: OwnedFd,
    /// `None`, logged, where the kernel refused.
    jobs: Option<Group>,
    next: u64,
    /// Made ahead, so that a start doesn't wait for it.
    spare: Option<Group>,
    /// Of exited commands; some with processes still in them.
    leftovers: Vec<Group>,
    /// Something may have left one of them.
    changed: bool,
}

pub(crate) struct Group {
    name: String,
    directory: OwnedFd,
}

pub(crate) struct Limits {
    pub(crate) processes: u64,
    pub(crate) memory_bytes: u64,
}

impl Commands {
    /// Takes `mount_point`, a cgroup2 mount that holds nothing yet.
    pub(crate) fn create(mount_point: &str, limits: &Limits) -> io::Result<Self> {
        let root = openat(CWD, mount_point, DIRECTORY, Mode::empty())?;
        for controller in ["+cpu", "+io", "+memory", "+pids"] {
            // A kernel without one of them is fine.
            if let Err(error) = write_at(root.as_fd(), "cgroup.subtree_control", controller) {
                crate::log::info(format_args!("cgroup controller {controller}: {error}"));
            }
        }
        ignore_existing(mkdirat(&root, "commands", Mode::from_raw_mode(0o755)))?;
        let directory = openat(&root, "commands", DIRECTORY, Mode::empty())?;
        let files = [("pids.max", limits.processes), ("memory.max", limits.memory_bytes)];
        for (file, value) in files {
            if let Err(error) = write_at(directory.as_fd(), file, &value.to_string()) {
                crate::log::error(format_args!("cannot set {file} of commands: {error}"));
            }
        }
        let jobs = make(&directory, "jobs".to_owned());
        Ok(Self { directory, jobs, next: 1, spare: None, leftovers: Vec::new(), changed: false })
    }

    /// A cgroup for one command. `None`, logged, where the kernel refuses.
    pub(crate) fn take(&mut self) -> Option<Group> {
        self.spare.take().or_else(|| self.make())
    }

    fn make(&mut self) -> Option<Group> {
        let name = self.next.to_string();
        self.next += 1;
        make(&self.directory, name)
    }

    /// The one that all jobs share.
    pub(crate) fn jobs(&self) -> Option<&Group> {
        self.jobs.as_ref()
    }

    /// Takes back the cgroup of an exited command, to be removed once the last process in it has gone.
    pub(crate) fn give_back(&mut self, group: Group) {
        self.leftovers.push(group);
    }

    /// Children were reaped. Orphans end up with PID 1, so every process that leaves is seen.
    pub(crate) fn children_reaped(&mut self) {
        self.changed = true;
    }

    /// What can be done while nobody waits: makes the next command's cgroup and removes those that can be.
    pub(crate) fn tidy(&mut self) {
        if self.spare.is_none() {
            self.spare = self.make();
        }
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let directory = &self.directory;
        self.leftovers.retain(|group| {
            matches!(unlinkat(directory, &group.name, AtFlags::REMOVEDIR), Err(Errno::BUSY | Errno::NOTEMPTY))
        });
    }
}

impl Group {
    fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Forks into it.
    pub(crate) fn fork_into(group: Option<&Self>) -> io::Result<Forked> {
        let error = match fork(group.map(Self::directory)) {
            Ok(forked) => return Ok(forked),
            Err(error) => error,
        };
        // At a limit of the cgroup a start must fail: outside it would be beyond every limit. A cgroup that
        // root in the guest broke is no reason not to start.
        let limit = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM));
        if limit || group.is_none() { Err(error) } else { fork(None) }
    }

    /// SIGKILL to everything in it, all at once: no fork gets away.
    pub(crate) fn kill(&self) {
        if let Err(error) = write_at(self.directory.as_fd(), "cgroup.kill", "1") {
            crate::log::error(format_args!("cannot kill cgroup {}: {error}", self.name));
        }
    }
}

fn make(parent: &OwnedFd, name: String) -> Option<Group> {
    let made = ignore_existing(mkdirat(parent, &name, Mode::from_raw_mode(0o755)))
        .and_then(|()| openat(parent, &name, DIRECTORY, Mode::empty()));
    match made {
        Ok(directory) => Some(Group { name, directory }),
        Err(error) => {
            crate::log::error(format_args!("cannot make a cgroup: {error}"));
            None
        }
    }
}

fn write_at(directory: BorrowedFd<'_>, file: &str, value: &str) -> Result<(), Errno> {
    let file = openat(directory, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, value.as_bytes()).map(|_| ())
}

fn ignore_existing(made: Result<(), Errno>) -> Result<(), Errno> {
    match made {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}
