//! The readers of a guest's output: which subscription feeds which, and where each of them is.
//!
//! ```text
//!   attach ──▶ subscribed ── exit delivered, or refused ──▶ gone
//!                 │   ▲
//!   queue is full │   │ half of it was consumed
//!                 ▼   │
//!               parked            a lost connection subscribes all but the parked anew
//! ```
//! A subscription that nobody wants any more is left: detached, and its frames dropped until the guest has noticed.
//! A reader that comes back asks for what follows the last event in its queue, so nothing is lost or doubled; what
//! the guest's ring no longer holds by then arrives as a gap.

use std::collections::HashMap;

use space_guest_proto::{HostFrame, Request, message::AttachCommandRequest};
use space_node_proto::commands::{CommandEvent, command_event::Kind, output};
use tokio::sync::oneshot;
use tracing::error;

use super::{
    Fate,
    check::{self, Broken},
    client::CallError,
    link::{Link, QueueError},
    stream::Feed,
};
use crate::limits;

type ReaderId = u64;

#[derive(Debug)]
struct Reader {
    /// `after_sequence` and `credit` are filled in when it is sent; `create` goes once the command exists.
    request: AttachCommandRequest,
    /// Until the guest has answered for the first time.
    opened: Option<oneshot::Sender<Result<(), CallError>>>,
    feed: Feed,
    position: Position,
    subscription: Option<u32>,
    /// What the guest may still send on the subscription.
    credit: u64,
}

/// How far a reader has come. Survives connections, which the protocol's own rules do not.
#[derive(Debug, Clone, Copy)]
struct Position {
    sequence: u64,
    /// The next offset of each stream, and whether it is exact: behind a gap it is only a lower bound.
    offsets: [(u64, bool); 2],
}

#[derive(Debug, Default)]
pub(super) struct Readers {
    open: HashMap<ReaderId, Reader>,
    subscriptions: HashMap<u32, ReaderId>,
    /// Subscriptions that were left, with the frames that came since.
    left: HashMap<u32, u64>,
    last: ReaderId,
}

impl Readers {
    /// A new reader.
    pub(super) fn open(
        &mut self,
        link: &mut Link,
        request: AttachCommandRequest,
        feed: Feed,
        opened: oneshot::Sender<Result<(), CallError>>,
    ) {
        if self.open.len() >= limits::READERS || !link.may_call(limits::CALLS) {
            return answer(opened, Err(CallError::TooMany));
        }
        self.last += 1;
        let position = Position::behind(request.after_sequence);
        let reader = Reader { request, opened: Some(opened), feed, position, subscription: None, credit: 0 };
        self.open.insert(self.last, reader);
        self.subscribe(link, self.last);
    }

    /// A new connection knows no subscription of the old one.
    pub(super) fn resume(&mut self, link: &mut Link) {
        self.subscriptions.clear();
        self.left.clear();
        self.open.retain(|_id, reader| !reader.feed.is_closed());
        let is_parked = |reader: &Reader| reader.subscription.is_none() && !reader.feed.has_caught_up();
        let back = self.open.iter().filter(|(_id, reader)| !is_parked(reader));
        let ids: Vec<ReaderId> = back.map(|(id, _reader)| *id).collect();
        for id in ids {
            self.subscribe(link, id);
        }
    }

    /// Gives credit for what was consumed, brings back who has caught up, leaves for who has gone.
    pub(super) fn tend(&mut self, link: &mut Link) {
        let ids: Vec<ReaderId> = self.open.keys().copied().collect();
        for id in ids {
            let Some(reader) = self.open.get_mut(&id) else { continue };
            match reader.subscription {
                _ if reader.feed.is_closed() => self.close(link, id),
                None if reader.feed.has_caught_up() => self.subscribe(link, id),
                None => {}
                Some(subscription) => {
                    if let Some(bytes) = reader.feed.grant(reader.credit) {
                        reader.credit += bytes;
                        send(link, &HostFrame::Credit { id: subscription, bytes });
                    }
                }
            }
        }
    }

    /// The guest took a subscription.
    pub(super) fn accepted(
        &mut self,
        id: u32,
        reply: &space_guest_proto::message::AttachCommandReply,
    ) -> Result<(), Broken> {
        if let Some(reader) = self.reader(id) {
            check::about(&reader.request.command_id, reply.command.as_ref())?;
            reader.request.create = None;
            if let Some(opened) = reader.opened.take() {
                answer(opened, Ok(()));
            }
        }
        Ok(())
    }

    /// The guest refused one.
    pub(super) fn refused(&mut self, id: u32, error: CallError) {
        self.left.remove(&id);
        if let Some(reader) = self.subscriptions.remove(&id).and_then(|id| self.open.remove(&id)) {
            reader.end(error);
        }
    }

    /// The guest ended one.
    pub(super) fn ended(&mut self, id: u32) {
        self.left.remove(&id);
        self.subscriptions.remove(&id);
    }

    /// An event for whoever subscribed under `id`.
    pub(super) fn event(&mut self, link: &mut Link, id: u32, event: CommandEvent) -> Result<(), Broken> {
        if let Some(frames) = self.left.get_mut(&id) {
            *frames += 1;
            return if *frames > limits::LATE_FRAMES { Err(Broken::Late) } else { Ok(()) };
        }
        let Some(reader) = self.reader(id) else { return Ok(()) };
        let position = reader.position.advanced(&event)?;
        let (bytes, is_exit) = match &event.kind {
            Some(Kind::Output(output)) => (output.data.len() as u64, false),
            Some(Kind::Exit(_)) => (0, true),
            Some(Kind::Started(_) | Kind::Gap(_)) | None => (0, false),
        };
        reader.credit = reader.credit.saturating_sub(bytes);
        if !reader.feed.push(event) {
            reader.feed.park();
            reader.subscription = None;
            self.leave(link, id);
            return Ok(());
        }
        reader.position = position;
        if is_exit {
            // Its end follows by itself.
            let reader = self.subscriptions.remove(&id).and_then(|id| self.open.remove(&id));
            drop(reader);
            self.left.insert(id, 0);
        }
        Ok(())
    }

    /// Ends all of them.
    pub(super) fn end(&mut self, fate: Fate) {
        for (_id, reader) in self.open.drain() {
            reader.end(CallError::Ended(fate));
        }
    }

    fn reader(&mut self, subscription: u32) -> Option<&mut Reader> {
        self.open.get_mut(self.subscriptions.get(&subscription)?)
    }

    fn subscribe(&mut self, link: &mut Link, id: ReaderId) {
        let Some(reader) = self.open.get_mut(&id) else { return };
        let mut request = reader.request.clone();
        request.after_sequence = reader.position.sequence;
        request.credit = reader.feed.room();
        reader.credit = request.credit;
        reader.subscription = None;
        match link.request(Request::AttachCommand(request)) {
            Ok(subscription) => {
                reader.subscription = Some(subscription);
                self.subscriptions.insert(subscription, id);
            }
            Err(error) => {
                if let Some(reader) = self.open.remove(&id) {
                    reader.end(error.into());
                }
            }
        }
    }

    fn close(&mut self, link: &mut Link, id: ReaderId) {
        if let Some(subscription) = self.open.remove(&id).and_then(|reader| reader.subscription) {
            self.leave(link, subscription);
        }
    }

    fn leave(&mut self, link: &mut Link, subscription: u32) {
        self.subscriptions.remove(&subscription);
        self.left.insert(subscription, 0);
        send(link, &HostFrame::Detach { id: subscription });
    }
}

impl Reader {
    fn end(self, error: CallError) {
        match self.opened {
            Some(opened) => answer(opened, Err(error)),
            None => self.feed.fail(error),
        }
    }
}

impl Position {
    const fn behind(sequence: u64) -> Self {
        Self { sequence, offsets: [(0, sequence == 0); 2] }
    }

    /// The position behind `event`, which must continue this one.
    fn advanced(mut self, event: &CommandEvent) -> Result<Self, Broken> {
        let due = self.sequence.checked_add(1).ok_or(Broken::Resumed)?;
        match &event.kind {
            Some(Kind::Gap(gap)) => {
                if gap.first_lost != due || gap.last_lost < due || event.sequence != gap.last_lost {
                    return Err(Broken::Resumed);
                }
                for ((next, exact), lost) in self.offsets.iter_mut().zip([gap.stdout_bytes, gap.stderr_bytes])
                {
                    *next = next.checked_add(lost).ok_or(Broken::Resumed)?;
                    *exact = false;
                }
            }
            Some(Kind::Output(output)) => {
                let stream = usize::from(output.stream() == output::Stream::Stderr);
                let (next, exact) = self.offsets[stream];
                let continues = if exact { output.offset == next } else { output.offset >= next };
                let end = output.offset.checked_add(output.data.len() as u64).ok_or(Broken::Resumed)?;
                if !continues || event.sequence != due {
                    return Err(Broken::Resumed);
                }
                self.offsets[stream] = (end, true);
            }
            Some(Kind::Started(_) | Kind::Exit(_)) | None => {
                if event.sequence != due {
                    return Err(Broken::Resumed);
                }
            }
        }
        self.sequence = event.sequence;
        Ok(self)
    }
}

/// Frames of this side that need no answer. Breaking the rules with one would be a bug here.
fn send(link: &mut Link, frame: &HostFrame) {
    if let Err(error) = link.queue(frame) {
        error!(%error, "a frame was not sent");
    }
}

impl From<QueueError> for CallError {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::TooLarge(_) => Self::TooLarge,
            // The only rule that a well-made request can meet is the number of calls.
            QueueError::Misuse(_) => Self::TooMany,
        }
    }
}

/// A caller that has given up does not hear the answer.
fn answer<T>(caller: oneshot::Sender<Result<T, CallError>>, answer: Result<T, CallError>) {
    drop(caller.send(answer));
}
