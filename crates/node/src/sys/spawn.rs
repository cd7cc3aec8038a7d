//! Children: put into their cgroup, stripped and told apart before their first own instruction.
//!
//! All of them are forked by one thread that lives as long as the daemon, because `PR_SET_PDEATHSIG` follows
//! the death of the *thread* that forked, and the runtime's threads come and go.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    process::Command,
    sync::mpsc,
    thread,
};

use rustix::process::{Resource, Rlimit, Signal};
use tokio::sync::oneshot;

/// The descriptor number under which a worker finds its channel.
pub(crate) const CHANNEL_DESCRIPTOR: RawFd = 3;

/// What happens between `fork` and `exec`.
#[derive(Debug)]
pub(crate) struct ChildSetup {
    /// An open `cgroup.procs`: the child is in its cgroup before it runs anything, so that killing the cgroup
    /// always finds it.
    pub(crate) cgroup: File,
    /// Dropped to, with no groups, no capabilities and no way back. `None` for the jailer, which drops by
    /// itself.
    pub(crate) user: Option<u32>,
    /// Passed as [`CHANNEL_DESCRIPTOR`].
    pub(crate) channel: Option<OwnedFd>,
    /// Killed when this daemon dies.
    pub(crate) die_with_parent: bool,
}

type Job = Box<dyn FnOnce() + Send>;

/// The thread that forks.
#[derive(Debug, Clone)]
pub(crate) struct Spawner {
    jobs: mpsc::Sender<Job>,
}

impl Spawner {
    pub(crate) fn start() -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::Builder::new().name("spawner".to_owned()).spawn(move || {
            for job in queue {
                job();
            }
        })?;
        Ok(Self { jobs })
    }

    /// Starts `command`; answers its pid. The child is to be waited for by its pidfd.
    pub(crate) async fn spawn(&self, command: Command, setup: ChildSetup) -> io::Result<i32> {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(move || {
            // The requester may have given up; its pid is then in the cgroup that it is about to kill.
            drop(reply.send(start(command, setup)));
        });
        self.jobs.send(job).map_err(|_gone| io::Error::other("the spawning thread has ended"))?;
        answer.await.map_err(io::Error::other)?
    }
}

fn start(mut command: Command, setup: ChildSetup) -> io::Result<i32> {
    let parent = std::process::id().cast_signed();
    let last_capability = last_capability();
    // SAFETY: the closure runs in the forked child and makes system calls only: no allocation, no lock, and
    // it touches nothing but what it captured.
    #[expect(unsafe_code, reason = "work between fork and exec has no safe interface")]
    unsafe {
        command.pre_exec(move || prepare_child(&setup, parent, last_capability));
    }
    Ok(command.spawn()?.id().cast_signed())
}

fn prepare_child(setup: &ChildSetup, parent: i32, last_capability: i32) -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::io::write(&setup.cgroup, b"0")?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    if let Some(channel) = &setup.channel {
        pass_channel(channel.as_raw_fd())?;
    }
    if let Some(user) = setup.user {
        drop_to(user, last_capability)?;
    }
    if setup.die_with_parent {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the line above.
        if rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
    }
    Ok(())
}

#[expect(unsafe_code, reason = "raw descriptor numbers and credentials of the forked child")]
fn pass_channel(channel: RawFd) -> io::Result<()> {
    // SAFETY: plain system calls on descriptor numbers. In the forked child nothing else owns number 3 that
    // is still needed: every descriptor of ours is close-on-exec, and a copy made on itself only clears that.
    let answer = unsafe {
        if channel == CHANNEL_DESCRIPTOR {
            libc::fcntl(channel, libc::F_SETFD, 0)
        } else {
            libc::dup2(channel, CHANNEL_DESCRIPTOR)
        }
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[expect(unsafe_code, reason = "raw descriptor numbers and credentials of the forked child")]
fn drop_to(user: u32, last_capability: i32) -> io::Result<()> {
    for capability in 0..=last_capability {
        // SAFETY: PR_CAPBSET_DROP takes an integer and changes this process alone.
        check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) })?;
    }
    // SAFETY: plain system calls; raw ones, because the child has one thread and libc's wrappers would take
    // locks to signal the others. Leaving uid 0 clears the permitted, effective and ambient capabilities.
    unsafe {
        check(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()))?;
        check(libc::syscall(libc::SYS_setresgid, user, user, user))?;
        check(libc::syscall(libc::SYS_setresuid, user, user, user))?;
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    }
}

fn check(answer: impl Into<i64>) -> io::Result<()> {
    if answer.into() < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The highest capability that this kernel knows.
fn last_capability() -> i32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap_or_default();
    text.trim().parse().unwrap_or(40)
}
