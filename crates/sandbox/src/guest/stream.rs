//! The queue between a guest and one reader of a command's events.
//!
//! The guest sends only what it has credit for, and gets more as the reader consumes. So the queue never holds
//! more than a window of bytes; what it holds of events is bounded by its length, see `readers`.

use std::{
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use futures::Stream;
use space_node_proto::commands::{CommandEvent, command_event::Kind};
use tokio::sync::{Notify, mpsc};

use super::client::CallError;
use crate::limits;

/// Consumed bytes that are worth a frame with new credit. At least one output frame's data always remains
/// allowed beside them, or the guest could stall.
const WORTH_A_FRAME: u64 = limits::READER_WINDOW / 4;

#[derive(Debug, Default)]
struct Flow {
    /// Bytes of output that the reader has taken, ever.
    consumed: AtomicU64,
    /// The reader was too slow and has no subscription at the moment.
    parked: AtomicBool,
    /// Why the stream ends early.
    verdict: OnceLock<CallError>,
}

/// The owner's end.
#[derive(Debug)]
pub(crate) struct Feed {
    events: mpsc::Sender<CommandEvent>,
    flow: Arc<Flow>,
    /// Bytes put in, ever.
    delivered: u64,
}

impl Feed {
    /// False: the queue is full, and the event was not taken.
    pub(super) fn push(&mut self, event: CommandEvent) -> bool {
        let bytes = output_bytes(&event);
        match self.events.try_send(event) {
            // A reader that has gone misses nothing.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {
                self.delivered += bytes;
                true
            }
            Err(mpsc::error::TrySendError::Full(_)) => false,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.events.is_closed()
    }

    /// Bytes that may still be put in.
    pub(super) fn room(&self) -> u64 {
        let unconsumed = self.delivered - self.flow.consumed.load(Ordering::Acquire).min(self.delivered);
        limits::READER_WINDOW.saturating_sub(unconsumed)
    }

    /// Credit worth giving to a subscription that has `credit` left.
    pub(super) fn grant(&self, credit: u64) -> Option<u64> {
        self.room().checked_sub(credit).filter(|grant| *grant >= WORTH_A_FRAME)
    }

    /// Says that the reader lost its subscription because it was too slow; it will say when it has caught up.
    pub(super) fn park(&self) {
        self.flow.parked.store(true, Ordering::Release);
    }

    /// Whether a parked reader has caught up.
    pub(super) fn has_caught_up(&self) -> bool {
        let caught_up = self.events.capacity() >= limits::READER_EVENTS / 2;
        if caught_up {
            self.flow.parked.store(false, Ordering::Release);
        }
        caught_up
    }

    /// Ends the stream with an error, behind what is queued.
    pub(super) fn fail(self, error: CallError) {
        // Only one owner of a feed exists, so nothing was set before.
        drop(self.flow.verdict.set(error));
    }
}

/// The reader's end: events in order, then the end, or an error first.
#[derive(Debug)]
pub(crate) struct CommandStream {
    events: mpsc::Receiver<CommandEvent>,
    flow: Arc<Flow>,
    wake: Arc<Notify>,
    since_wake: u64,
    ended: bool,
}

impl CommandStream {
    pub(super) fn new(wake: Arc<Notify>) -> (Feed, Self) {
        let (sender, events) = mpsc::channel(limits::READER_EVENTS);
        let flow = Arc::new(Flow::default());
        let feed = Feed { events: sender, flow: Arc::clone(&flow), delivered: 0 };
        (feed, Self { events, flow, wake, since_wake: 0, ended: false })
    }

    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.events.len()
    }

    fn consume(&mut self, event: &CommandEvent) {
        let bytes = output_bytes(event);
        self.flow.consumed.fetch_add(bytes, Ordering::AcqRel);
        self.since_wake += bytes;
        let caught_up =
            self.flow.parked.load(Ordering::Acquire) && self.events.len() <= limits::READER_EVENTS / 2;
        if caught_up || self.since_wake >= WORTH_A_FRAME {
            self.since_wake = 0;
            self.wake.notify_one();
        }
    }
}

impl Stream for CommandStream {
    type Item = Result<CommandEvent, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match self.events.poll_recv(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(event)) => {
                self.consume(&event);
                Poll::Ready(Some(Ok(event)))
            }
            Poll::Ready(None) => {
                self.ended = true;
                Poll::Ready(self.flow.verdict.get().cloned().map(Err))
            }
        }
    }
}

impl Drop for CommandStream {
    /// The owner detaches then, so that a guest sends nothing that nobody reads.
    fn drop(&mut self) {
        self.events.close();
        self.wake.notify_one();
    }
}

fn output_bytes(event: &CommandEvent) -> u64 {
    match &event.kind {
        Some(Kind::Output(output)) => output.data.len() as u64,
        Some(Kind::Started(_) | Kind::Exit(_) | Kind::Gap(_)) | None => 0,
    }
}
