//! The agent's event loop: one thread, one epoll, everything bounded.
//!
//! - `poll`: epoll with names.
//! - `connection`: a host's connection, its buffers and subscriptions.
//! - `requests`: what each request does.
//! - `running`: processes starting, putting out, exiting, running out of time.
//! - `jobs`: the processes that carry out jobs.
//! - `going_down`: the way to power-off and reboot.
//!
//! Each turn takes at most 64 events and reads at most 32 KiB for each, so neither a chatty command nor a
//! chatty host keeps the others waiting. Nothing in the loop blocks: steps that might are a child's.

mod connection;
mod going_down;
mod jobs;
mod poll;
mod requests;
mod running;

use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::net::SocketFlags;
use space_guest_proto::{limits, message::NoticeKind};

use self::{
    connection::{Connection, Link},
    going_down::GoingDown,
    jobs::Jobs,
    poll::{Interest, Poll, Source},
};
use crate::{
    command::{cgroup, table::Table, terminal::Terminals},
    sys::signals::SignalFd,
};

/// Signals that the agent takes. What those other than SIGCHLD mean is in `going_down`.
pub(crate) const SIGNALS: [i32; 9] = [
    libc::SIGCHLD,
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGPWR,
    going_down::HALT_SIGNAL,
    going_down::POWER_OFF_SIGNAL,
    going_down::REBOOT_SIGNAL,
];

/// What the agent is made of when it begins to serve.
pub(crate) struct Setup {
    pub(crate) listener: OwnedFd,
    /// For the connections of jobs.
    pub(crate) job_listener: OwnedFd,
    pub(crate) signals: SignalFd,
    pub(crate) cgroups: Option<cgroup::Commands>,
    pub(crate) terminals: Option<Terminals>,
    /// Whether this is a guest's PID 1, which sets clocks and names, or a process on a developer's machine.
    pub(crate) is_init: bool,
    pub(crate) root_error: String,
    pub(crate) warnings: Vec<String>,
    /// Bytes of output that all commands together may keep.
    pub(crate) output_limit: usize,
}

pub(crate) struct Agent {
    setup: Setup,
    poll: Poll,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    commands: Table,
    jobs: Jobs,
    generation: u64,
    /// For every command.
    env: BTreeMap<String, String>,
    going_down: Option<GoingDown>,
    scratch: Vec<u8>,
}

impl Agent {
    pub(crate) fn new(setup: Setup) -> io::Result<Self> {
        let poll = Poll::new()?;
        poll.add(&setup.listener, Source::Listener, Interest::READ)?;
        poll.add(&setup.job_listener, Source::JobListener, Interest::READ)?;
        poll.add(&setup.signals, Source::Signals, Interest::READ)?;
        Ok(Self {
            commands: Table::new(setup.output_limit),
            jobs: Jobs::default(),
            setup,
            poll,
            connections: BTreeMap::new(),
            next_connection: 1,
            generation: 0,
            env: BTreeMap::new(),
            going_down: None,
            scratch: vec![0; limits::DATA_BYTES],
        })
    }

    /// Serves until the guest is to go down; how.
    pub(crate) fn run(mut self) -> io::Result<NoticeKind> {
        loop {
            let timeout = self.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
            let resumed = self.resumed_connections();
            for source in self.poll.wait(if resumed.is_empty() { timeout } else { Some(Duration::ZERO) })? {
                self.dispatch(source);
            }
            for serial in resumed {
                self.handle_frames(serial);
            }
            let now = Instant::now();
            self.expire_commands(now);
            self.jobs.expire(now);
            if let Some(kind) = self.go_down_further(now) {
                return Ok(kind);
            }
            self.serve_connections(now);
            if let Some(cgroups) = &mut self.setup.cgroups {
                cgroups.tidy();
            }
        }
    }

    fn dispatch(&mut self, source: Source) {
        match source {
            Source::Listener => self.accept(),
            Source::Signals => self.take_signals(),
            Source::Connection(serial) => self.receive(serial),
            Source::Launch(serial) => self.poll_launch(serial),
            Source::Output(serial, stream) => {
                self.read_output(serial, stream);
                self.resume_terminal(serial);
            }
            Source::Stdin(serial) => self.resume_stdin(serial),
            Source::JobListener => self.accept_job(),
            Source::Job(serial) => self.cancel_job(serial),
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let commands = self.commands.iter().filter_map(|command| command.process.as_ref()?.deadline());
        let connections = self.connections.values().filter_map(Connection::deadline);
        let going_down = self.going_down.as_ref().map(GoingDown::deadline);
        commands.chain(connections).chain(self.jobs.deadline()).chain(going_down).min()
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = rustix::net::accept_with(&self.setup.listener, flags) else { return };
        if self.connections.len() >= limits::CONNECTIONS {
            crate::log::info(format_args!("too many connections: closing a new one"));
            return;
        }
        let serial = self.next_connection;
        self.next_connection += 1;
        match self.poll.add(&socket, Source::Connection(serial), Interest::READ) {
            Ok(()) => drop(self.connections.insert(serial, Connection::new(socket))),
            Err(error) => crate::log::error(format_args!("cannot watch a connection: {error}")),
        }
    }

    fn receive(&mut self, serial: u64) {
        let Some(connection) = self.connections.get_mut(&serial) else { return };
        // Also reached for a socket that only became writable: reading then gives nothing.
        if !connection.reads() {
            return;
        }
        if connection.receive(&mut self.scratch) == Link::Closed {
            self.close(serial);
            return;
        }
        self.handle_frames(serial);
    }

    fn handle_frames(&mut self, serial: u64) {
        while let Some(frame) = self.connections.get_mut(&serial).and_then(Connection::next_frame) {
            self.handle(serial, frame);
        }
    }

    fn resumed_connections(&self) -> Vec<u64> {
        let resumed = self.connections.iter().filter(|(_, connection)| connection.resumes());
        resumed.map(|(serial, _)| *serial).collect()
    }

    /// Sends what there is to send on every connection. There are few.
    fn serve_connections(&mut self, now: Instant) {
        let mut closed = Vec::new();
        for (serial, connection) in &mut self.connections {
            loop {
                let pumped = connection.pump(&self.commands);
                for command in pumped.ended {
                    unsubscribe(&mut self.commands, command);
                }
                if connection.flush(now) == Link::Closed {
                    closed.push(*serial);
                    break;
                }
                if !pumped.full || !connection.is_sent() {
                    break;
                }
            }
            if let Some(interest) = connection.changed_interest() {
                self.poll.change(&connection.socket, Source::Connection(*serial), interest);
            }
            connection.settle();
        }
        for serial in closed {
            self.close(serial);
        }
    }

    fn close(&mut self, serial: u64) {
        let Some(connection) = self.connections.remove(&serial) else { return };
        self.poll.remove(&connection.socket);
        for command in connection.subscribed() {
            unsubscribe(&mut self.commands, command);
        }
        self.cancel_stdin(|writer| writer.connection == serial);
    }
}

fn unsubscribe(commands: &mut Table, serial: u64) {
    if let Some(command) = commands.get_mut(serial) {
        command.subscribers = command.subscribers.saturating_sub(1);
    }
}

/// Long enough for a host that is alive, short enough for one that waits for the machine's end.
const NOTICE_TIME: Duration = Duration::from_millis(500);
