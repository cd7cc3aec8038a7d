//! What a forked child does on its way to the command's program: session, user, environment, directory, exec.
//!
//! All of it happens in the child, since any step may block for ever in a guest that wants it so (a home
//! directory on a dead FUSE mount, an `/etc/passwd` that is a FIFO). The agent learns the outcome from a pipe:
//! closed by the exec, or one byte of exit code and a text.

use std::{
    collections::BTreeMap,
    ffi::CString,
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{Gid, Mode, Uid},
    process::{Resource, Rlimit, chdir, geteuid, getrlimit, ioctl_tiocsctty, setrlimit, setsid, umask},
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
};
use space_guest_proto::{limits, message::CommandSpec};

use crate::{
    sys::process::{close_from, execute, exit_now, reset_signals},
    user::{self, Account, Accounts, BecomeError},
};

/// Where the launch pipe lies in the child. Everything above is closed before anything else happens.
const LAUNCH_DESCRIPTOR: i32 = 3;
/// What programs may write to a terminal unless the caller knows better.
const DEFAULT_TERM: &str = "xterm-256color";
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// As shells have it.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// The child's ends of its pipes, or thrice its terminal.
pub(crate) struct ChildEnds {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    pub(crate) launch: OwnedFd,
}

/// Why a command could not be started.
pub(crate) struct LaunchFailure {
    pub(crate) code: u8,
    pub(crate) text: String,
}

impl LaunchFailure {
    pub(crate) fn new(text: String) -> Self {
        Self { code: NOT_EXECUTABLE, text }
    }

    fn because(what: &str, error: impl std::fmt::Display) -> Self {
        Self::new(format!("{what}: {error}"))
    }

    /// What the child writes to the launch pipe, as the parent read it.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (code, text) = bytes.split_first()?;
        let mut text = String::from_utf8_lossy(text).into_owned();
        while text.len() > limits::TEXT_BYTES {
            text.pop();
        }
        Some(Self { code: *code, text })
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.code];
        bytes.extend(self.text.bytes().take(limits::TEXT_BYTES));
        bytes
    }
}

impl From<BecomeError> for LaunchFailure {
    fn from(error: BecomeError) -> Self {
        Self::new(error.to_string())
    }
}

/// Becomes the command's program, in a process that was forked for it.
pub(crate) fn run(spec: &CommandSpec, sandbox_env: &BTreeMap<String, String>, ends: ChildEnds) -> ! {
    let failure = match arrange_descriptors(ends) {
        Ok(launch) => {
            let failure = become_program(spec, sandbox_env);
            // The exit code below tells the parent too, should this not arrive.
            rustix::io::write(&launch, &failure.encode()).ok();
            failure
        }
        Err(failure) => failure,
    };
    exit_now(i32::from(failure.code))
}

fn arrange_descriptors(ends: ChildEnds) -> Result<OwnedFd, LaunchFailure> {
    let failed = |error| LaunchFailure::because("cannot set up descriptors", error);
    dup2_stdin(&ends.stdin).map_err(failed)?;
    dup2_stdout(&ends.stdout).map_err(failed)?;
    dup2_stderr(&ends.stderr).map_err(failed)?;
    let launch = rustix::io::fcntl_dupfd_cloexec(&ends.launch, LAUNCH_DESCRIPTOR).map_err(failed)?;
    // Every descriptor but that one has a number that is in use in the parent too. Destructors must not
    // close numbers that may have been given out anew.
    std::mem::forget(ends);
    let launch = move_down(launch)?;
    close_from(LAUNCH_DESCRIPTOR.unsigned_abs() + 1);
    Ok(launch)
}

/// Makes `launch` descriptor 3, replacing whatever of the agent's was there.
fn move_down(launch: OwnedFd) -> Result<OwnedFd, LaunchFailure> {
    crate::sys::process::move_descriptor(launch, LAUNCH_DESCRIPTOR)
        .map_err(|error| LaunchFailure::because("cannot set up descriptors", error))
}

fn become_program(spec: &CommandSpec, sandbox_env: &BTreeMap<String, String>) -> LaunchFailure {
    match prepare(spec, sandbox_env) {
        Ok(prepared) => search_and_execute(spec.argv.first().map_or("", String::as_str), &prepared),
        Err(failure) => failure,
    }
}

struct Prepared {
    path: String,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

fn prepare(spec: &CommandSpec, sandbox_env: &BTreeMap<String, String>) -> Result<Prepared, LaunchFailure> {
    setsid().map_err(|error| LaunchFailure::because("cannot make a session", error))?;
    if spec.terminal.is_some() {
        ioctl_tiocsctty(rustix::stdio::stdin())
            .map_err(|error| LaunchFailure::because("cannot take the terminal", error))?;
    }
    reset_signals();
    umask(Mode::from_raw_mode(0o022));
    user::forget_protection()?;
    set_limits();
    let account = Accounts::read().find(&spec.user)?;
    give_pipes(&account);
    user::become_user(&account)?;
    let environment = environment(spec, sandbox_env, &account);
    enter_directory(spec, &account)?;
    let c_string =
        |text: &str| CString::new(text).map_err(|error| LaunchFailure::because("bad argument", error));
    Ok(Prepared {
        path: environment.get("PATH").cloned().unwrap_or_default(),
        arguments: spec.argv.iter().map(|text| c_string(text)).collect::<Result<_, _>>()?,
        environment: environment
            .iter()
            .map(|(name, value)| c_string(&format!("{name}={value}")))
            .collect::<Result<_, _>>()?,
    })
}

/// Soft limits that programs expect, hard limits that let them have more.
fn set_limits() {
    let wanted = [
        (Resource::Nofile, 1024, 1_048_576),
        (Resource::Core, 0, u64::MAX),
        (Resource::Memlock, 8 << 20, u64::MAX),
        (Resource::Nproc, u64::MAX, u64::MAX),
    ];
    for (resource, soft, hard) in wanted {
        let ours = getrlimit(resource);
        let finite = |limit: u64| (limit != u64::MAX).then_some(limit);
        let limit = Rlimit { current: finite(soft), maximum: finite(hard) };
        if setrlimit(resource, limit).is_err() {
            // Not root: keep the hard limit.
            setrlimit(resource, Rlimit { current: finite(soft).or(ours.maximum), maximum: ours.maximum })
                .ok();
        }
    }
}

/// So that the command can open /dev/stdout and /dev/stderr, which are these pipes, or its terminal by name.
fn give_pipes(account: &Account) {
    if !geteuid().is_root() {
        return;
    }
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    for descriptor in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        if is_pipe(descriptor) {
            rustix::fs::fchown(descriptor, Some(uid), Some(gid)).ok();
        } else if rustix::termios::isatty(descriptor) {
            // It stays with the group of terminals.
            rustix::fs::fchown(descriptor, Some(uid), None).ok();
        }
    }
}

fn is_pipe(descriptor: impl AsFd) -> bool {
    rustix::fs::fstat(descriptor)
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Fifo)
}

/// Defaults, then the sandbox's own, then the command's.
fn environment(
    spec: &CommandSpec,
    sandbox_env: &BTreeMap<String, String>,
    account: &Account,
) -> BTreeMap<String, String> {
    let defaults = [
        ("PATH", DEFAULT_PATH),
        ("HOME", &account.home),
        ("USER", &account.name),
        ("LOGNAME", &account.name),
        ("SHELL", &account.shell),
        ("LANG", "C.UTF-8"),
    ];
    let mut all: BTreeMap<String, String> =
        defaults.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    if spec.terminal.is_some() {
        all.insert("TERM".to_owned(), DEFAULT_TERM.to_owned());
    }
    for (name, value) in sandbox_env.iter().chain(&spec.env) {
        all.insert(name.clone(), value.clone());
    }
    all
}

fn enter_directory(spec: &CommandSpec, account: &Account) -> Result<(), LaunchFailure> {
    if !spec.cwd.is_empty() {
        return chdir(&spec.cwd)
            .map_err(|error| LaunchFailure::because(&format!("cannot enter {}", spec.cwd), error));
    }
    user::enter_home(account).map(drop).map_err(|error| LaunchFailure::because("cannot enter /", error))
}

/// As execvp(3): every directory of `path` in turn unless the name holds a slash; a file that is no program
/// is a script for the shell.
fn search_and_execute(name: &str, prepared: &Prepared) -> LaunchFailure {
    let mut denied = None;
    let candidates: Vec<String> = if name.contains('/') {
        vec![name.to_owned()]
    } else {
        let directory = |part: &str| if part.is_empty() { ".".to_owned() } else { part.to_owned() };
        prepared.path.split(':').map(|part| format!("{}/{name}", directory(part))).collect()
    };
    for candidate in &candidates {
        let error = try_execute(candidate, prepared);
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => {}
            Some(libc::EACCES) => denied = Some(error),
            Some(_) | None => return LaunchFailure::because(name, error),
        }
    }
    match denied {
        Some(error) => LaunchFailure::because(name, error),
        None => LaunchFailure { code: NOT_FOUND, text: format!("{name}: not found") },
    }
}

fn try_execute(candidate: &str, prepared: &Prepared) -> io::Error {
    let Ok(path) = CString::new(candidate) else {
        return io::Error::from(io::ErrorKind::InvalidInput);
    };
    let error = execute(&path, &prepared.arguments, &prepared.environment);
    if error.raw_os_error() != Some(libc::ENOEXEC) {
        return error;
    }
    let mut arguments = vec![c"/bin/sh".to_owned(), path];
    arguments.extend(prepared.arguments.iter().skip(1).cloned());
    execute(c"/bin/sh", &arguments, &prepared.environment)
}
