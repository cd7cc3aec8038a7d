//! From the initramfs to a running guest.
//!
//! ```text
//! initramfs: /init (this program), /dev/console, /dev/null
//!   ├─ /dev, /proc, /sys
//!   ├─ /dev/vda on /newroot (ext4) ── fails ──▶ stay here: `root_error`, no commands
//!   ├─ move /newroot to /, chroot
//!   ├─ mounts of a running system, cgroups, network
//!   └─ serve on vsock (both ports), grow the root in the background
//! ```
//! Only a listener that can't be opened is fatal; the rest is reported by health.

mod mounts;
mod network;

use std::time::Duration;

use rustix::system::{RebootCommand, reboot};
use space_guest_proto::{AGENT_PORT, JOB_PORT, limits, message::NoticeKind};

use crate::{
    command::{cgroup, terminal::Terminals},
    log, memory,
    server::{Agent, SIGNALS, Setup},
    sys::{
        process::{Forked, exit_now, fork},
        resize,
        signals::SignalFd,
        vsock,
    },
};

/// Lines of warnings that are kept.
const WARNINGS: usize = 16;
/// What the cgroup of all commands leaves free of the memory that is available at boot: a thirty-second of
/// it all, at least this. With less, the whole guest would run out of memory before the cgroup does.
const RESERVED_BYTES: u64 = 8 << 20;

/// Collects what went wrong and is not fatal.
#[derive(Default)]
pub(crate) struct Warnings(Vec<String>);

impl Warnings {
    /// Notes an error with what was attempted; true if there was none.
    pub(crate) fn check<E: std::fmt::Display>(&mut self, what: &str, result: Result<(), E>) -> bool {
        let Err(error) = result else { return true };
        log::error(format_args!("{what}: {error}"));
        if self.0.len() < WARNINGS {
            self.0.push(format!("{what}: {error}"));
        }
        false
    }
}

pub(crate) fn run() -> ! {
    let mut warnings = Warnings::default();
    mounts::mount_early(&mut warnings);
    log::use_kernel_log();
    let root_error = match mounts::enter_root() {
        Ok(()) => String::new(),
        Err(error) => {
            let text = error.to_string();
            log::error(format_args!("{text}"));
            text
        }
    };
    mounts::mount_system(&mut warnings);
    // Ctrl-Alt-Del is to be a signal, so that it goes the orderly way.
    warnings.check("disable Ctrl-Alt-Del", reboot(RebootCommand::CadOff));
    warnings.check("oom_score_adj", std::fs::write("/proc/self/oom_score_adj", "-1000"));
    raise_limits(&mut warnings);
    let cgroups = make_cgroups(&mut warnings);
    let terminals = open_terminals(&mut warnings);
    network::configure(&mut warnings);
    if root_error.is_empty() {
        grow_root(&mut warnings);
    }
    serve(cgroups, terminals, root_error, warnings)
}

fn serve(
    cgroups: Option<cgroup::Commands>,
    terminals: Option<Terminals>,
    root_error: String,
    warnings: Warnings,
) -> ! {
    let signals = SignalFd::new(&SIGNALS);
    // The one for jobs first: who gets an answer from this agent can rely on it.
    let job_listener = vsock::listener(JOB_PORT, backlog(limits::JOBS));
    let listener = vsock::listener(AGENT_PORT, backlog(limits::CONNECTIONS));
    let agent = listener.and_then(|listener| {
        let setup = Setup {
            listener,
            job_listener: job_listener?,
            signals: signals?,
            cgroups,
            terminals,
            is_init: true,
            root_error,
            warnings: warnings.0,
            output_limit: crate::output_limit(),
        };
        Agent::new(setup)
    });
    let kind = match agent.and_then(Agent::run) {
        Ok(kind) => kind,
        Err(error) => {
            // Nobody can reach this guest any more. Its end is at least seen.
            log::error(format_args!("cannot serve: {error}"));
            NoticeKind::Reboot
        }
    };
    end(kind)
}

fn backlog(connections: usize) -> i32 {
    i32::try_from(connections).unwrap_or(i32::MAX)
}

/// Ends the VM. A microVM has no power to switch off: a reset is what ends it, whatever was announced.
fn end(kind: NoticeKind) -> ! {
    log::info(format_args!("{kind:?}"));
    mounts::make_read_only();
    loop {
        if let Err(error) = reboot(RebootCommand::Restart) {
            log::error(format_args!("cannot reset: {error}"));
        }
        // There is nothing to wait for but another try.
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Descriptors for the agent itself. Children get limits of their own.
fn raise_limits(warnings: &mut Warnings) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limit = Rlimit { current: Some(65536), maximum: Some(1_048_576) };
    warnings.check("raise the limit of open files", setrlimit(Resource::Nofile, limit));
}

fn make_cgroups(warnings: &mut Warnings) -> Option<cgroup::Commands> {
    let memory = memory::read();
    let limits = cgroup::Limits {
        processes: process_limit() / 10 * 9,
        memory_bytes: memory.available.saturating_sub((memory.total / 32).max(RESERVED_BYTES)),
    };
    match cgroup::Commands::create("/sys/fs/cgroup", &limits) {
        Ok(commands) => Some(commands),
        Err(error) => {
            warnings.check("make the cgroup of commands", Err(error));
            None
        }
    }
}

fn open_terminals(warnings: &mut Warnings) -> Option<Terminals> {
    match Terminals::open(mounts::TERMINALS) {
        Ok(terminals) => Some(terminals),
        Err(error) => {
            warnings.check("open the terminals", Err(error));
            None
        }
    }
}

/// How many processes the kernel makes at most.
fn process_limit() -> u64 {
    let read = |path| std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let limits = [read("/proc/sys/kernel/pid_max"), read("/proc/sys/kernel/threads-max")];
    limits.into_iter().flatten().min().unwrap_or(4096)
}

/// Grows the root filesystem to its drive, in a child, since it may take a while on a large one.
fn grow_root(warnings: &mut Warnings) {
    match fork(None) {
        Ok(Forked::Child) => {
            if let Err(error) = resize::grow_ext4(mounts::ROOT_DEVICE, "/") {
                log::error(format_args!("cannot grow the root filesystem: {error}"));
            }
            exit_now(0)
        }
        Ok(Forked::Parent(_)) => {}
        Err(error) => {
            warnings.check("grow the root filesystem", Err(error));
        }
    }
}
