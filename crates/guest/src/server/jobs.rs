//! The processes that carry out jobs, as PID 1 sees them: it accepts a connection, forks, and waits for either
//! to end. It reads nothing from the connection; it only watches for its end, which cancels the job.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use rustix::{
    net::{SendFlags, SocketFlags},
    process::Pid,
};
use space_guest_proto::{
    job::{Done, Failure, FailureKind, GuestJobFrame},
    limits,
};

use super::{Agent, poll::Source};
use crate::{
    command::cgroup::{self, Group},
    job::{self, Refusal},
    sys::process::{Forked, signal_process},
};

/// Between SIGTERM and SIGKILL of a job whose connection ended: a job holds SIGTERM off while it puts a file
/// in its place.
const CANCEL_TIME: Duration = Duration::from_secs(5);

/// At most [`limits::JOBS`].
#[derive(Default)]
pub(super) struct Jobs {
    running: BTreeMap<u64, Job>,
    next: u64,
}

struct Job {
    pid: Pid,
    connection: OwnedFd,
    /// Cancelled; when to use force.
    kill_at: Option<Instant>,
}

impl Jobs {
    /// The connection of the job whose process this was. The pid means nothing afterwards.
    pub(super) fn reaped(&mut self, pid: Pid) -> Option<OwnedFd> {
        let serial = self.running.iter().find(|(_, job)| job.pid == pid).map(|(serial, _)| *serial)?;
        self.running.remove(&serial).map(|job| job.connection)
    }

    pub(super) fn signal(&self, signal: i32) {
        for job in self.running.values() {
            // It ended already: what was wanted.
            signal_process(job.pid, signal).ok();
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.running.values().filter_map(|job| job.kill_at).min()
    }

    /// Kills cancelled jobs that hold on.
    pub(super) fn expire(&mut self, now: Instant) {
        for job in self.running.values_mut() {
            if job.kill_at.take_if(|at| *at <= now).is_some() {
                signal_process(job.pid, libc::SIGKILL).ok();
            }
        }
    }
}

impl Agent {
    pub(super) fn accept_job(&mut self) {
        // Blocking, which is the child's wish: this process sends one frame at most, and that with a flag.
        let Ok(connection) = rustix::net::accept_with(&self.setup.job_listener, SocketFlags::CLOEXEC) else {
            return;
        };
        if self.jobs.running.len() >= limits::JOBS {
            return refuse(&connection, "too many jobs");
        }
        let group = self.setup.cgroups.as_ref().and_then(cgroup::Commands::jobs);
        match Group::fork_into(group) {
            Ok(Forked::Child) => job::run(connection, self.job_refusal()),
            Ok(Forked::Parent(pid)) => self.job_started(pid, connection),
            Err(error) => refuse(&connection, &format!("cannot start a process: {error}")),
        }
    }

    /// Why no job is carried out now.
    fn job_refusal(&self) -> Option<Refusal> {
        let refusal = |kind, text: &str| Some(Refusal { kind, text: text.to_owned() });
        if self.generation == 0 {
            refusal(FailureKind::NotPersonalised, "the guest is not personalised")
        } else if !self.setup.root_error.is_empty() {
            refusal(FailureKind::Unspecified, &self.setup.root_error)
        } else if self.going_down.is_some() {
            refusal(FailureKind::Unspecified, "the guest is going down")
        } else {
            None
        }
    }

    fn job_started(&mut self, pid: Pid, connection: OwnedFd) {
        let serial = self.jobs.next;
        self.jobs.next += 1;
        if let Err(error) = self.poll.add_end(&connection, Source::Job(serial)) {
            // It goes on, and can't be cancelled while it waits for something else than its connection.
            crate::log::error(format_args!("cannot watch a job: {error}"));
        }
        self.jobs.running.insert(serial, Job { pid, connection, kill_at: None });
    }

    /// The host closed the connection.
    pub(super) fn cancel_job(&mut self, serial: u64) {
        let Some(job) = self.jobs.running.get_mut(&serial) else { return };
        self.poll.remove(&job.connection);
        signal_process(job.pid, libc::SIGTERM).ok();
        job.kill_at = Some(Instant::now() + CANCEL_TIME);
    }
}

/// Says why and closes, without waiting for anybody.
fn refuse(connection: impl AsFd, text: &str) {
    let failure = Failure { kind: FailureKind::Exhausted.into(), message: text.to_owned() };
    let done = Done { failure: Some(failure), ..Done::default() };
    let mut bytes = BytesMut::new();
    if GuestJobFrame::Done(Box::new(done)).encode(&mut bytes).is_ok() {
        // A fresh connection has room for it; a host that is gone needs no answer.
        rustix::net::send(connection, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).ok();
    }
}
