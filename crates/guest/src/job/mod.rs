//! Jobs: one file operation or tunnel each, carried out by a process of its own.
//!
//! ```text
//! PID 1 (server/jobs.rs): accept, fork ──▶ this module, in the child:
//!   close what is PID 1's ─▶ read OpenJob (10 s) ─▶ become the user ─▶ carry out ─▶ Done ─▶ exit
//! ```
//! The child may block: on its connection, which is the backpressure, and on whatever filesystem it meets. PID 1
//! ends it when the host closes the connection. The kernel decides what the user may do; nothing here does.
//!
//! - `link`: the connection. `failure`: errors of the kernel in the protocol's words. `info`: what a file is.
//! - `target`: from a path to the directory and name that are written to.
//! - one module for each job.

mod archive;
mod failure;
mod info;
mod link;
mod list;
mod make_directory;
mod move_file;
mod read;
mod remove;
mod stat;
mod target;
mod tunnel;
mod watch;
mod write;

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    fs::Mode,
    process::{setsid, umask},
};
use space_guest_proto::{
    PROTOCOL_MAX, PROTOCOL_MIN,
    job::{Done, FailureKind, HostJobFrame, Job, OpenJob},
    validate,
};

use self::{failure::JobError, info::Infos, link::Link};
use crate::{
    sys::process::{close_from, exit_now, move_descriptor, reset_signals},
    user::{self, Accounts, BecomeError},
};

/// Where the connection lies in the child. Everything above is closed.
const CONNECTION_DESCRIPTOR: i32 = 3;
/// For the first frame.
const OPEN_TIME: Duration = Duration::from_secs(10);

/// Why no job is carried out, whatever it is.
pub(crate) struct Refusal {
    pub(crate) kind: FailureKind,
    pub(crate) text: String,
}

/// What every job has.
struct Context {
    link: Link,
    infos: Infos,
}

/// The result of a job; the error becomes `Done.failure`.
type Outcome = Result<Done, JobError>;

/// Carries out the job of a connection, in a process that was forked for it.
pub(crate) fn run(connection: OwnedFd, refusal: Option<Refusal>) -> ! {
    let Ok(connection) = move_descriptor(connection, CONNECTION_DESCRIPTOR) else { exit_now(1) };
    close_from(CONNECTION_DESCRIPTOR.unsigned_abs() + 1);
    let mut link = Link::new(connection);
    let outcome = match open(&mut link, refusal) {
        Ok(open) => carry_out(link, &open),
        Err(error) => (link, Err(error)),
    };
    let (mut link, outcome) = outcome;
    let done = match outcome {
        Ok(done) => done,
        // Nobody is there to be told.
        Err(JobError::Gone) => exit_now(0),
        Err(error) => error.into_done(),
    };
    exit_now(i32::from(link.send_done(done).is_err()))
}

fn open(link: &mut Link, refusal: Option<Refusal>) -> Result<OpenJob, JobError> {
    // A leader of a group can't make a session; a process that was just forked is none.
    setsid().map_err(|error| JobError::of(error, "cannot make a session"))?;
    reset_signals();
    // Modes are given with each job.
    umask(Mode::empty());
    let HostJobFrame::Open(open) = link.receive_until(Instant::now() + OPEN_TIME)? else {
        return Err(JobError::new(FailureKind::Invalid, "the first frame is not OpenJob"));
    };
    if let Some(refusal) = refusal {
        return Err(JobError::new(refusal.kind, refusal.text));
    }
    if !(PROTOCOL_MIN..=PROTOCOL_MAX).contains(&open.protocol) {
        let text = format!("this agent speaks protocol {PROTOCOL_MIN} to {PROTOCOL_MAX}");
        return Err(JobError::new(FailureKind::Unsupported, text));
    }
    if open.job.is_none() {
        return Err(JobError::new(FailureKind::Unsupported, "this agent does not know the job"));
    }
    validate::job(&open).map_err(|error| JobError::new(FailureKind::Invalid, error.to_string()))?;
    Ok(*open)
}

/// What a write of an archive does, here and as this user.
#[cfg(feature = "fuzz")]
pub(crate) fn unpack(connection: OwnedFd, path: &[u8]) -> Result<Done, String> {
    let infos = Infos::new(Accounts::read(), Vec::new());
    let mut context = Context { link: Link::new(connection), infos };
    let job = space_guest_proto::job::WriteArchive { path: path.to_vec().into() };
    context.write_archive(&job).map_err(|error| error.into_done().failure.unwrap_or_default().message)
}

fn carry_out(link: Link, open: &OpenJob) -> (Link, Outcome) {
    let infos = match become_user(&open.user) {
        Ok(infos) => infos,
        Err(error) => return (link, Err(error)),
    };
    let mut context = Context { link, infos };
    let outcome = match &open.job {
        Some(job) => context.dispatch(job),
        None => Err(JobError::new(FailureKind::Unsupported, "")),
    };
    (context.link, outcome)
}

fn become_user(wanted: &str) -> Result<Infos, JobError> {
    user::forget_protection()?;
    let accounts = Accounts::read();
    let account = accounts.find(wanted)?;
    user::become_user(&account)?;
    let home = user::enter_home(&account).map_err(|error| JobError::of(error, "cannot enter /"))?;
    let home = home.as_bytes().to_vec();
    Ok(Infos::new(accounts, home))
}

impl From<BecomeError> for JobError {
    fn from(error: BecomeError) -> Self {
        let kind = match error {
            BecomeError::NoUser(_) => FailureKind::NoUser,
            BecomeError::NotRoot => FailureKind::Permission,
            BecomeError::Credentials(_) | BecomeError::Protection(_) => FailureKind::Unspecified,
        };
        Self::new(kind, error.to_string())
    }
}

impl Context {
    fn dispatch(&mut self, job: &Job) -> Outcome {
        match job {
            Job::Stat(job) => self.stat(job),
            Job::List(job) => self.list(job),
            Job::Read(job) => self.read(job),
            Job::Write(job) => self.write(job),
            Job::MakeDirectory(job) => self.make_directory(job),
            Job::Move(job) => self.move_file(job),
            Job::Remove(job) => remove::remove(job),
            Job::Watch(job) => self.watch(job),
            Job::ReadArchive(job) => self.read_archive(job),
            Job::WriteArchive(job) => self.write_archive(job),
            Job::Tunnel(job) => self.tunnel(job),
        }
    }
}
