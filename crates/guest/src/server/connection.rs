//! One connection from the host: bytes in, frames out, and the subscriptions that live on it.
//!
//! Both directions are bounded. What the host doesn't read stops output (there is a replay ring) and, above
//! [`REPLIES_WAITING`], stops this side from reading requests.

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use rustix::{io::Errno, net::SendFlags};
use space_guest_proto::{
    GuestConnection, GuestFrame, HostFrame, OutputHead, Reply, limits,
    message::{End, EndReason, Event, EventKind, Gap, Notice, NoticeKind, Refusal, RefusalCode, Started},
};

use super::poll::Interest;
use crate::command::{
    Command,
    ring::{Entry, Next, Stamp},
    table::Table,
};

/// Events are put out only while less than this waits to be sent.
const EVENTS_WAITING: usize = 128 * 1024;
/// Requests are read only while less than this waits to be sent.
const REPLIES_WAITING: usize = 256 * 1024;
/// How long news that nobody waits for (a command was started) may wait for company, so that a short command
/// costs two sends and not three: a send is an exit from the virtual machine.
const COMPANY: Duration = Duration::from_millis(20);

pub(crate) struct Connection {
    pub(crate) socket: OwnedFd,
    pub(crate) rules: GuestConnection,
    inbound: BytesMut,
    outbound: BytesMut,
    subscriptions: Vec<Subscription>,
    /// Nothing is read any more; once `outbound` is sent the connection is closed.
    closing: bool,
    /// Requests were received that wait until replies were sent.
    backlog: bool,
    urgent: bool,
    wait_until: Option<Instant>,
    watched: Interest,
}

pub(crate) struct Subscription {
    id: u32,
    command: u64,
    /// Sequence number of the last event that was sent.
    after: u64,
    /// Where the streams stood then, if known.
    offsets: Option<[u64; 2]>,
}

/// What [`Connection::pump`] did.
pub(crate) struct Pumped {
    /// The commands whose subscriptions came to their end.
    pub(crate) ended: Vec<u64>,
    /// There may be more to send once something was sent.
    pub(crate) full: bool,
}

/// What became of reading or sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Open,
    Closed,
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            rules: GuestConnection::new(),
            inbound: BytesMut::new(),
            outbound: BytesMut::new(),
            subscriptions: Vec::new(),
            closing: false,
            backlog: false,
            urgent: false,
            wait_until: None,
            watched: Interest::READ,
        }
    }

    /// Reads once. The buffer holds a frame in parts and what one read gives, no more.
    pub(crate) fn receive(&mut self, scratch: &mut [u8]) -> Link {
        match rustix::io::read(&self.socket, &mut *scratch) {
            Ok(0) => Link::Closed,
            Ok(read) => {
                self.inbound.extend_from_slice(scratch.get(..read).unwrap_or_default());
                Link::Open
            }
            Err(Errno::AGAIN | Errno::INTR) => Link::Open,
            Err(_) => Link::Closed,
        }
    }

    /// The next frame that was received whole, unless too many replies wait to be sent. One that breaks the
    /// protocol ends the connection.
    pub(crate) fn next_frame(&mut self) -> Option<HostFrame> {
        if self.closing {
            return None;
        }
        self.backlog = self.outbound.len() >= REPLIES_WAITING;
        if self.backlog {
            return None;
        }
        let frame = match HostFrame::decode(&mut self.inbound) {
            Ok(frame) => frame?,
            Err(error) => {
                self.fail(RefusalCode::Protocol, &error);
                return None;
            }
        };
        match self.rules.receive(&frame) {
            Ok(()) => Some(frame),
            Err(violation) => {
                self.fail(RefusalCode::Protocol, &violation);
                None
            }
        }
    }

    /// Gives memory back that a burst of requests left.
    pub(crate) fn settle(&mut self) {
        if self.inbound.is_empty() {
            self.inbound = BytesMut::new();
        }
        if self.outbound.is_empty() {
            self.outbound = BytesMut::new();
        }
    }

    /// Says why and closes.
    pub(crate) fn fail(&mut self, code: RefusalCode, why: &dyn std::fmt::Display) {
        crate::log::info(format_args!("closing a connection: {why}"));
        self.refuse(0, code, why.to_string());
        self.closing = true;
    }

    pub(crate) fn queue(&mut self, frame: &GuestFrame) {
        self.urgent = true;
        self.append(frame);
    }

    fn append(&mut self, frame: &GuestFrame) {
        // Whatever the agent says fits a frame; if it doesn't, that is a bug, and a host that waits for ever
        // would be its worst outcome.
        if let Err(error) = frame.encode(&mut self.outbound) {
            crate::log::error(format_args!("cannot send a frame: {error}"));
            self.closing = true;
        }
    }

    pub(crate) fn reply(&mut self, id: u32, reply: impl Into<Reply>) {
        self.queue(&GuestFrame::reply(id, reply));
        self.rules.finished(id);
    }

    pub(crate) fn refuse(&mut self, id: u32, code: RefusalCode, mut message: String) {
        while message.len() > limits::TEXT_BYTES {
            message.pop();
        }
        self.queue(&GuestFrame::Refusal { id, refusal: Refusal { code: code.into(), message } });
        self.rules.finished(id);
    }

    pub(crate) fn notify(&mut self, kind: NoticeKind) {
        if self.rules.is_open() {
            self.queue(&GuestFrame::Notice(Notice { kind: kind.into() }));
        }
    }

    /// Answers an attach and opens its subscription. `started`: the command was started by it, so there is
    /// more to say soon.
    pub(crate) fn subscribe(&mut self, id: u32, command: &Command, after: u64, reply: &Reply, started: bool) {
        if started && !self.urgent {
            self.wait_until = Some(Instant::now() + COMPANY);
        } else {
            self.urgent = true;
        }
        self.append(&GuestFrame::Reply { id, reply: reply.clone() });
        let offsets = command.ring.offsets_behind(after);
        self.subscriptions.push(Subscription { id, command: command.serial, after, offsets });
    }

    /// Ends a subscription on the host's wish; its command.
    pub(crate) fn detach(&mut self, id: u32) -> Option<u64> {
        let index = self.subscriptions.iter().position(|subscription| subscription.id == id)?;
        let command = self.subscriptions.swap_remove(index).command;
        self.queue(&GuestFrame::End { id, end: End { reason: EndReason::Detached.into() } });
        self.rules.finished(id);
        Some(command)
    }

    /// The commands that it subscribed to, for when it closes.
    pub(crate) fn subscribed(&self) -> impl Iterator<Item = u64> {
        self.subscriptions.iter().map(|subscription| subscription.command)
    }

    /// Moves events from the rings to the outbound buffer, one per subscription at a time, until there are no
    /// more, or no credit, or enough waits.
    pub(crate) fn pump(&mut self, commands: &Table) -> Pumped {
        let mut ended = Vec::new();
        let mut progress = true;
        while progress && !self.closing {
            progress = false;
            let mut index = 0;
            while index < self.subscriptions.len() {
                if self.outbound.len() >= EVENTS_WAITING {
                    return Pumped { ended, full: true };
                }
                match self.step(index, commands) {
                    Step::Idle => index += 1,
                    Step::Sent => {
                        progress = true;
                        index += 1;
                    }
                    Step::Ended => ended.push(self.subscriptions.swap_remove(index).command),
                }
            }
        }
        Pumped { ended, full: false }
    }

    fn step(&mut self, index: usize, commands: &Table) -> Step {
        let Some(subscription) = self.subscriptions.get_mut(index) else { return Step::Idle };
        let id = subscription.id;
        let Some(command) = commands.get(subscription.command) else { return Step::Idle };
        let (sequence, stamp, entry) = match command.ring.next(subscription.after) {
            Next::Wait => return Step::Idle,
            Next::Gap { first, last, offsets } => {
                // The gap goes out with what follows it, and has its stamp.
                let Some(stamp) = sendable(&self.rules, id, &command.ring.next(last)) else {
                    return Step::Idle;
                };
                let known = subscription.offsets.unwrap_or(offsets);
                let gap = Gap {
                    first_lost: first,
                    last_lost: last,
                    stdout_bytes: offsets[0].saturating_sub(known[0]),
                    stderr_bytes: offsets[1].saturating_sub(known[1]),
                };
                subscription.after = last;
                subscription.offsets = Some(offsets);
                let event = Event {
                    sequence: last,
                    generation: stamp.generation,
                    at_ms: stamp.at_ms,
                    kind: Some(EventKind::Gap(gap)),
                };
                self.queue(&GuestFrame::Event { id, event });
                return Step::Sent;
            }
            Next::Event { sequence, stamp, entry } => (sequence, stamp, entry),
        };
        let event =
            |kind| Event { sequence, generation: stamp.generation, at_ms: stamp.at_ms, kind: Some(kind) };
        match entry {
            Entry::Started => {
                subscription.after = sequence;
                let started = Started { pid: command.pid };
                self.append(&GuestFrame::Event { id, event: event(EventKind::Started(started)) });
                Step::Sent
            }
            Entry::Output { stream, offset, data } => {
                let length = data[0].len() + data[1].len();
                if !self.rules.spend(id, length) {
                    return Step::Idle;
                }
                subscription.after = sequence;
                if let Some(offsets) = &mut subscription.offsets {
                    offsets[stream.index()] = offset + length as u64;
                }
                let head =
                    OutputHead { sequence, generation: stamp.generation, at_ms: stamp.at_ms, stream, offset };
                self.urgent = true;
                if let Err(error) = head.encode(id, data, &mut self.outbound) {
                    crate::log::error(format_args!("cannot send output: {error}"));
                    self.closing = true;
                }
                Step::Sent
            }
            Entry::Exit => {
                let exit = command.exit.clone().unwrap_or_default();
                self.queue(&GuestFrame::Event { id, event: event(EventKind::Exit(exit)) });
                self.queue(&GuestFrame::End { id, end: End { reason: EndReason::Exited.into() } });
                self.rules.finished(id);
                Step::Ended
            }
        }
    }

    /// Sends what waits, unless it may wait for company.
    pub(crate) fn flush(&mut self, now: Instant) -> Link {
        if !self.urgent && self.wait_until.is_some_and(|until| until > now) {
            return Link::Open;
        }
        while !self.outbound.is_empty() {
            match rustix::net::send(&self.socket, &self.outbound, SendFlags::NOSIGNAL) {
                Ok(0) => return Link::Closed,
                Ok(sent) => drop(self.outbound.split_to(sent.min(self.outbound.len()))),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Link::Open,
                Err(_) => return Link::Closed,
            }
        }
        self.urgent = false;
        self.wait_until = None;
        if self.closing { Link::Closed } else { Link::Open }
    }

    /// When to flush although nothing happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.wait_until.filter(|_| !self.outbound.is_empty() && !self.urgent)
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.outbound.is_empty()
    }

    /// May more be read now?
    pub(crate) fn reads(&self) -> bool {
        !self.closing && !self.backlog && self.outbound.len() < REPLIES_WAITING
    }

    /// Are there requests in the buffer that can be taken up again?
    pub(crate) fn resumes(&self) -> bool {
        !self.closing && self.backlog && self.outbound.len() < REPLIES_WAITING
    }

    /// What to watch the socket for from now on, if that changed. Writing only behind a flush that did not
    /// get rid of everything.
    pub(crate) fn changed_interest(&mut self) -> Option<Interest> {
        let write = !self.outbound.is_empty() && self.deadline().is_none();
        let wanted = Interest { read: self.reads(), write };
        let changed = wanted != std::mem::replace(&mut self.watched, wanted);
        changed.then_some(wanted)
    }
}

enum Step {
    /// Nothing to send, or no credit for it.
    Idle,
    Sent,
    Ended,
}

/// The stamp of the next event if it can be sent now.
fn sendable(rules: &GuestConnection, id: u32, next: &Next<'_>) -> Option<Stamp> {
    let Next::Event { stamp, entry, .. } = next else { return None };
    let paid = match entry {
        Entry::Output { data, .. } => rules.credit(id) >= (data[0].len() + data[1].len()) as u64,
        Entry::Started | Entry::Exit => true,
    };
    paid.then_some(*stamp)
}
