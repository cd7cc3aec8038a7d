//! Who may send what when, as two small machines without I/O: one for each side's view of one connection.
//!
//! ```text
//! connection   new ── Hello from the host ──▶ open ── broken rule, Refusal with id 0 ──▶ closed
//! call id      free ── request ──▶ waiting ── reply, refusal ──▶ free
//!                                     └─ reply to AttachCommand ──▶ streaming ── End ──▶ free
//! ```
//! - The host speaks first and may send requests behind its `Hello` at once. The guest answers the `Hello`
//!   before anything else.
//! - Ids of requests are the host's choice, not 0, and not in use on the connection.
//! - `Credit` and `Detach` are silently without effect for an id that is not streaming: the end of the
//!   subscription and these cross on the way.
//! - Events come with sequence numbers without holes, output with offsets without holes, and a `Gap` says
//!   exactly which numbers are missing; never more output than there is credit; nothing behind `Exit` but
//!   `End`.
//!
//! The guest is hostile, so [`HostConnection`] checks all of that for what it receives. [`GuestConnection`]
//! checks the host's frames because a bug there must not turn into a wrong command.

use std::collections::HashMap;

use crate::{
    limits,
    message::{EndReason, Event, EventKind, Exit},
    wire::{GuestFrame, HostFrame, Output, Reply, Request},
};

/// The other side broke a rule: close the connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("a frame before the hello, or a second hello")]
    Hello,
    #[error("id 0 on a request")]
    ZeroId,
    #[error("id {0} is in use")]
    IdInUse(u32),
    #[error("more than {limit} calls at a time", limit = limits::CALLS_PER_CONNECTION)]
    TooManyCalls,
    #[error("a frame for id {0}, which asked for nothing like it")]
    Unasked(u32),
    #[error("event {found} where {expected} was due on id {id}")]
    Sequence { id: u32, expected: u64, found: u64 },
    #[error("a gap on id {0} that is none")]
    Gap(u32),
    #[error("an event without a kind on id {0}")]
    NoEvent(u32),
    #[error("output on id {0} does not continue its stream")]
    Offset(u32),
    #[error("more output than credit on id {0}")]
    Credit(u32),
    #[error("an event behind the exit on id {0}")]
    BehindExit(u32),
    #[error("id {0} ended without an exit and without having been detached")]
    EarlyEnd(u32),
    #[error("an exit on id {0} with a code or signal that no process has")]
    Exit(u32),
    #[error("the credit of id {0} is above {limit}", limit = limits::CREDIT_BYTES)]
    CreditTooLarge(u32),
    #[error("the peer closed the connection with a refusal")]
    Refused,
}

/// This side was about to break a rule: a bug here. The frame must not be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the frame would break the protocol: {0}")]
pub struct Misuse(#[from] pub Violation);

/// The host's view of one connection. Pass every frame through [`send`](Self::send) before it is written and
/// through [`receive`](Self::receive) before it is believed.
#[derive(Debug, Default)]
pub struct HostConnection {
    said_hello: bool,
    heard_hello: bool,
    calls: HashMap<u32, Call>,
    last_id: u32,
    /// What the guest broke. Nothing of it counts from then on.
    broken: Option<Violation>,
}

#[derive(Debug)]
enum Call {
    Waiting { kind: u8, attach: Option<Subscription> },
    Streaming(Subscription),
}

#[derive(Debug)]
struct Subscription {
    sequence: u64,
    /// Next offset of each stream, where it is known.
    offsets: [Option<u64>; 2],
    credit: u64,
    exited: bool,
    detached: bool,
}

impl HostConnection {
    pub fn new() -> Self {
        Self::default()
    }

    /// An id that is free now. Ids are reused late, so that logs stay readable.
    pub fn free_id(&mut self) -> u32 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            if !self.calls.contains_key(&self.last_id) {
                return self.last_id;
            }
        }
    }

    /// Requests without a reply and open subscriptions.
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Both hellos were exchanged.
    pub fn is_open(&self) -> bool {
        self.said_hello && self.heard_hello
    }

    pub fn send(&mut self, frame: &HostFrame) -> Result<(), Misuse> {
        if let Some(violation) = &self.broken {
            return Err(violation.clone().into());
        }
        match frame {
            HostFrame::Hello(_) if self.said_hello => return Err(Violation::Hello.into()),
            HostFrame::Hello(_) => self.said_hello = true,
            _ if !self.said_hello => return Err(Violation::Hello.into()),
            HostFrame::Request { id, request } => {
                admit(&self.calls, *id)?;
                let call = Call::Waiting { kind: request.kind(), attach: Subscription::of(*id, request)? };
                self.calls.insert(*id, call);
            }
            HostFrame::UnknownRequest { id, kind } => {
                admit(&self.calls, *id)?;
                self.calls.insert(*id, Call::Waiting { kind: *kind, attach: None });
            }
            HostFrame::Credit { id, bytes } => {
                if let Some(subscription) = self.subscription(*id) {
                    subscription.credit = more_credit(*id, subscription.credit, *bytes)?;
                }
            }
            HostFrame::Detach { id } => {
                if let Some(subscription) = self.subscription(*id) {
                    subscription.detached = true;
                }
            }
            HostFrame::NoticeTaken => {}
        }
        Ok(())
    }

    /// After the first error every frame is refused, with that error.
    pub fn receive(&mut self, frame: &GuestFrame) -> Result<(), Violation> {
        if let Some(violation) = &self.broken {
            return Err(violation.clone());
        }
        let taken = self.take(frame);
        self.broken = taken.as_ref().err().cloned();
        taken
    }

    fn take(&mut self, frame: &GuestFrame) -> Result<(), Violation> {
        match frame {
            GuestFrame::Hello(_) if self.heard_hello || !self.said_hello => return Err(Violation::Hello),
            GuestFrame::Hello(_) => self.heard_hello = true,
            GuestFrame::Refusal { id: 0, .. } => return Err(Violation::Refused),
            _ if !self.heard_hello => return Err(Violation::Hello),
            GuestFrame::Reply { id, reply } => self.receive_reply(*id, reply)?,
            GuestFrame::Refusal { id, .. } => match self.calls.remove(id) {
                Some(Call::Waiting { .. }) => {}
                Some(Call::Streaming(_)) | None => return Err(Violation::Unasked(*id)),
            },
            GuestFrame::Event { id, event } => self.streaming(*id)?.receive_event(*id, event)?,
            GuestFrame::Output { id, output } => self.streaming(*id)?.receive_output(*id, output)?,
            GuestFrame::End { id, end } => {
                let subscription = self.streaming(*id)?;
                let due = match end.reason() {
                    EndReason::Exited => subscription.exited,
                    EndReason::Detached => subscription.detached,
                    EndReason::Unspecified => false,
                };
                if !due {
                    return Err(Violation::EarlyEnd(*id));
                }
                self.calls.remove(id);
            }
            GuestFrame::Notice(_) => {}
        }
        Ok(())
    }

    fn receive_reply(&mut self, id: u32, reply: &Reply) -> Result<(), Violation> {
        match self.calls.remove(&id) {
            Some(Call::Waiting { kind, attach }) if kind == reply.request_kind() => {
                if let Some(subscription) = attach {
                    self.calls.insert(id, Call::Streaming(subscription));
                }
                Ok(())
            }
            Some(Call::Waiting { .. } | Call::Streaming(_)) | None => Err(Violation::Unasked(id)),
        }
    }

    fn streaming(&mut self, id: u32) -> Result<&mut Subscription, Violation> {
        match self.calls.get_mut(&id) {
            Some(Call::Streaming(subscription)) => Ok(subscription),
            Some(Call::Waiting { .. }) | None => Err(Violation::Unasked(id)),
        }
    }

    fn subscription(&mut self, id: u32) -> Option<&mut Subscription> {
        match self.calls.get_mut(&id)? {
            Call::Streaming(subscription) => Some(subscription),
            Call::Waiting { attach, .. } => attach.as_mut(),
        }
    }
}

impl Subscription {
    /// What an attach asks for; `None` for every other request.
    fn of(id: u32, request: &Request) -> Result<Option<Self>, Violation> {
        let Request::AttachCommand(attach) = request else {
            return Ok(None);
        };
        let start = (attach.after_sequence == 0).then_some(0);
        Ok(Some(Self {
            sequence: attach.after_sequence,
            offsets: [start, start],
            credit: more_credit(id, 0, attach.credit)?,
            exited: false,
            detached: false,
        }))
    }

    fn receive_event(&mut self, id: u32, event: &Event) -> Result<(), Violation> {
        match &event.kind {
            Some(EventKind::Gap(gap)) => {
                let is_gap = self.sequence.checked_add(1) == Some(gap.first_lost)
                    && gap.last_lost >= gap.first_lost
                    && event.sequence == gap.last_lost;
                if !is_gap || self.exited {
                    return Err(Violation::Gap(id));
                }
                self.sequence = gap.last_lost;
                // The next output says where its stream goes on.
                self.offsets = [None, None];
            }
            Some(EventKind::Started(_)) => self.advance(id, event.sequence)?,
            Some(EventKind::Exit(exit)) => {
                self.advance(id, event.sequence)?;
                check_exit(id, exit)?;
                self.exited = true;
            }
            None => return Err(Violation::NoEvent(id)),
        }
        Ok(())
    }

    fn receive_output(&mut self, id: u32, output: &Output) -> Result<(), Violation> {
        let head = &output.head;
        self.advance(id, head.sequence)?;
        let data_bytes = output.data.len() as u64;
        self.credit = self.credit.checked_sub(data_bytes).ok_or(Violation::Credit(id))?;
        let offset = &mut self.offsets[head.stream.index()];
        if offset.is_some_and(|offset| offset != head.offset) {
            return Err(Violation::Offset(id));
        }
        *offset = Some(head.offset.checked_add(data_bytes).ok_or(Violation::Offset(id))?);
        Ok(())
    }

    fn advance(&mut self, id: u32, found: u64) -> Result<(), Violation> {
        if self.exited {
            return Err(Violation::BehindExit(id));
        }
        let expected = self.sequence.checked_add(1).ok_or(Violation::Sequence { id, expected: 0, found })?;
        if found != expected {
            return Err(Violation::Sequence { id, expected, found });
        }
        self.sequence = found;
        Ok(())
    }
}

fn check_exit(id: u32, exit: &Exit) -> Result<(), Violation> {
    let possible = (0..=255).contains(&exit.code) && (0..=64).contains(&exit.signal);
    let short = exit.error.len() <= limits::TEXT_BYTES;
    if possible && short { Ok(()) } else { Err(Violation::Exit(id)) }
}

fn more_credit(id: u32, credit: u64, bytes: u64) -> Result<u64, Violation> {
    match credit.checked_add(bytes) {
        Some(sum) if sum <= limits::CREDIT_BYTES => Ok(sum),
        Some(_) | None => Err(Violation::CreditTooLarge(id)),
    }
}

fn admit<T>(calls: &HashMap<u32, T>, id: u32) -> Result<(), Violation> {
    if id == 0 {
        return Err(Violation::ZeroId);
    }
    if calls.contains_key(&id) {
        return Err(Violation::IdInUse(id));
    }
    if calls.len() >= limits::CALLS_PER_CONNECTION {
        return Err(Violation::TooManyCalls);
    }
    Ok(())
}

/// The guest's view of one connection.
#[derive(Debug, Default)]
pub struct GuestConnection {
    heard_hello: bool,
    said_hello: bool,
    /// The credit of each call; meaningful for subscriptions.
    calls: HashMap<u32, u64>,
}

impl GuestConnection {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_open(&self) -> bool {
        self.heard_hello && self.said_hello
    }

    pub fn receive(&mut self, frame: &HostFrame) -> Result<(), Violation> {
        match frame {
            HostFrame::Hello(_) if self.heard_hello => return Err(Violation::Hello),
            HostFrame::Hello(_) => self.heard_hello = true,
            _ if !self.heard_hello => return Err(Violation::Hello),
            HostFrame::Request { id, request } => {
                admit(&self.calls, *id)?;
                let credit = Subscription::of(*id, request)?.map_or(0, |subscription| subscription.credit);
                self.calls.insert(*id, credit);
            }
            HostFrame::UnknownRequest { id, .. } => {
                admit(&self.calls, *id)?;
                self.calls.insert(*id, 0);
            }
            HostFrame::Credit { id, bytes } => {
                if let Some(credit) = self.calls.get_mut(id) {
                    *credit = more_credit(*id, *credit, *bytes)?;
                }
            }
            HostFrame::Detach { .. } | HostFrame::NoticeTaken => {}
        }
        Ok(())
    }

    /// Bytes of output that may be sent on the subscription now.
    pub fn credit(&self, id: u32) -> u64 {
        self.calls.get(&id).copied().unwrap_or(0)
    }

    /// The hello was sent.
    pub fn hello_sent(&mut self) {
        self.said_hello = true;
    }

    /// A reply (other than to an attach), a refusal or an end was sent: the id is free.
    pub fn finished(&mut self, id: u32) {
        self.calls.remove(&id);
    }

    /// Takes the credit for an output frame that is about to be sent; false: it must wait.
    pub fn spend(&mut self, id: u32, bytes: usize) -> bool {
        let Some(credit) = self.calls.get_mut(&id) else {
            return false;
        };
        match credit.checked_sub(bytes as u64) {
            Some(rest) => {
                *credit = rest;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests;
