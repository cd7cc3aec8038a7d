//! The agent in a guest, `space-guestd`: PID 1, and the guest's end of the protocol in `space-guest-proto`.
//!
//! - `boot`: from the initramfs to a running guest.
//! - `server`: the event loop.
//! - `command`: processes and their output.
//! - `job`: file operations and tunnels, each in a process of its own.
//! - `user`: accounts, and becoming one of them.
//! - `sys`: the kernel's calls; the only `unsafe` code.
//!
//! The agent never ends by itself: as PID 1 its end is a kernel panic. So it is one thread without blocking
//! calls in its loop, what may hang or fail is left to forked children, memory is bounded, and a step of the
//! boot that fails becomes a warning or `root_error` in the agent's own words. It is trusted by nobody: root
//! in the guest can do with it what it likes.

mod boot;
mod clock;
mod command;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod job;
mod log;
mod memory;
mod server;
mod sys;
mod user;

use std::{io, os::unix::net::UnixListener, path::Path};

use space_guest_proto::message::NoticeKind;

use crate::{
    command::terminal::Terminals,
    server::{Agent, SIGNALS, Setup},
    sys::signals::SignalFd,
};

/// Output of all commands together: a sixteenth of the memory, but never less than this.
const LEAST_OUTPUT_BYTES: u64 = 8 << 20;

/// Sets the guest up, serves until it goes down, and takes it down.
pub fn run_as_init() -> ! {
    boot::run()
}

/// Serves on a Unix socket at `path`, and jobs on another one at `path` with `.jobs` behind it, leaving clock, name and entropy of the machine alone. Returns when a
/// host asked for a shutdown, or on SIGTERM.
pub fn serve_unix(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    let mut jobs_path = path.as_os_str().to_owned();
    jobs_path.push(".jobs");
    // The one for jobs first, as in a guest: who gets an answer on the other one can rely on it.
    let job_listener = UnixListener::bind(jobs_path)?;
    job_listener.set_nonblocking(true)?;
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    // Orphans of commands come to this process, as they come to PID 1 in a guest.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let setup = Setup {
        listener: listener.into(),
        job_listener: job_listener.into(),
        signals: SignalFd::new(&SIGNALS)?,
        cgroups: None,
        terminals: Some(Terminals::open("/dev/pts")?),
        is_init: false,
        root_error: String::new(),
        warnings: Vec::new(),
        output_limit: output_limit(),
    };
    let kind = Agent::new(setup)?.run()?;
    match kind {
        NoticeKind::PowerOff | NoticeKind::Reboot | NoticeKind::Unspecified => Ok(()),
    }
}

fn output_limit() -> usize {
    usize::try_from((memory::read().total / 16).max(LEAST_OUTPUT_BYTES)).unwrap_or(usize::MAX)
}
