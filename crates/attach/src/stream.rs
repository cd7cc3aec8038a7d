//! The events of one command, across lost workers.
//!
//! ```text
//!            event                       break                 reattached
//!   Attached ─────▶ Attached   Attached ─────▶ Reattaching ─────▶ Attached
//!   Attached ─ exit ─▶ Ended   Reattaching ─ the sandbox ended, or the time is over ─▶ one error event, Ended
//! ```
//!
//! A worker that restarts, or a network that hiccups, is not the reader's concern: events are numbered without
//! holes, so the stream goes on behind the last one that was passed on. Nor does it end while nobody can say where the
//! worker is: the way that worked is tried again.

use std::{future::Future, time::Duration};

use futures::{Stream, stream};
use space_api::{
    Problem,
    sse::{CommandEvent, Position, StreamError},
};
use space_node_proto::commands as proto;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use crate::event::{Positioned, convert};

/// Between two looks for a lost worker, at first and after some: many readers lose the same one at the same time.
const PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A connection that lasted so long counts as one that worked, though no event came.
const GOOD_CONNECTION: Duration = Duration::from_secs(5);

/// Why a stream ends that no failed call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    ShuttingDown,
    /// The sandbox is of another generation now, which knows nothing of the command.
    OtherGeneration,
    /// The worker did not come back in time, or comes and goes.
    Unavailable,
}

/// How to get to the worker of one command.
pub trait Way: Send {
    type Error: From<Ended> + Send;

    /// Of the sandbox, as this way leads to it now.
    fn generation(&self) -> u64;

    /// Attaches behind `after`.
    fn attach(
        &mut self,
        after: Position,
    ) -> impl Future<Output = Result<Streaming<proto::CommandEvent>, Self::Error>> + Send;

    /// What was attached is lost: what is known of the way may be out of date.
    fn lost(&mut self, status: Option<&Status>);

    /// Looks for the way anew. That nobody can be asked is no error while an old way is known.
    fn find(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Returns when the way may have changed, if anybody tells; never else. Cancel safe.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;

    /// Whether looking again can't help.
    fn is_final(error: &Self::Error) -> bool;

    /// What a reader is told.
    fn problem(error: &Self::Error) -> Problem;
}

/// The connection failed, not the worker.
pub fn is_transport(status: &Status) -> bool {
    use std::error::Error as _;
    status.source().is_some()
}

pub struct CommandStream<W> {
    way: W,
    events: Option<Streaming<proto::CommandEvent>>,
    last: Position,
    losses: Losses,
    reattach_for: Duration,
    shutdown: CancellationToken,
    ended: bool,
}

/// How often the worker was lost without an event in between, and since when.
#[derive(Debug, Default)]
struct Losses {
    attached_at: Option<Instant>,
    since: Option<Instant>,
    attempts: u32,
}

impl Losses {
    fn lost(&mut self) {
        // A connection that held for a while was a good one: the next attempt starts from scratch.
        if self.attached_at.is_some_and(|at| at.elapsed() > GOOD_CONNECTION) {
            *self = Self::default();
        }
        self.since.get_or_insert_with(Instant::now);
    }

    fn recovered(&mut self) {
        self.since = None;
        self.attempts = 0;
    }

    fn pause(&self) -> Duration {
        PAUSE.saturating_mul(1 << self.attempts.saturating_sub(1).min(4)).min(LONGEST_PAUSE)
    }
}

impl<W: Way> CommandStream<W> {
    /// Attaches behind `after`, and starts the command if it was not started. A worker that is lost later is looked
    /// for during `reattach_for`.
    pub async fn attach(
        mut way: W,
        after: Option<Position>,
        reattach_for: Duration,
        shutdown: CancellationToken,
    ) -> Result<Self, W::Error> {
        let generation = way.generation();
        // What was seen of another generation says nothing about this one.
        let sequence = after.filter(|after| after.generation == generation).map_or(0, |after| after.sequence);
        let last = Position { generation, sequence };
        let events = Some(way.attach(last).await?);
        let losses = Losses::default();
        Ok(Self { way, events, last, losses, reattach_for, shutdown, ended: false })
    }

    pub fn into_stream(self) -> impl Stream<Item = Positioned> {
        stream::unfold(self, |mut this| async { this.next().await.map(|event| (event, this)) })
    }

    /// The next event; none after the last. Cancel safe.
    pub async fn next(&mut self) -> Option<Positioned> {
        loop {
            if self.ended {
                return None;
            }
            let Some(events) = &mut self.events else {
                if let Err(error) = self.reattach().await {
                    return Some(self.end_with(&error));
                }
                continue;
            };
            let message = tokio::select! {
                message = events.message() => message,
                () = self.shutdown.cancelled() => return Some(self.end_with(&Ended::ShuttingDown.into())),
            };
            match message {
                Ok(Some(event)) => {
                    if let Some(event) = self.pass_on(event) {
                        return Some(event);
                    }
                }
                Ok(None) => self.lose(None),
                Err(status) => {
                    tracing::debug!(%status, "a command's stream broke");
                    self.lose(Some(&status));
                }
            }
        }
    }

    fn lose(&mut self, status: Option<&Status>) {
        self.events = None;
        self.losses.lost();
        self.way.lost(status);
    }

    /// `None`: seen before, or of a kind that does not exist.
    fn pass_on(&mut self, event: proto::CommandEvent) -> Option<Positioned> {
        if event.sequence <= self.last.sequence {
            return None;
        }
        self.last.sequence = event.sequence;
        self.losses.recovered();
        let event = convert(event.kind?);
        self.ended = matches!(event, CommandEvent::Exit(_));
        Some(Positioned { position: Some(self.last), event })
    }

    fn end_with(&mut self, error: &W::Error) -> Positioned {
        self.ended = true;
        let event = CommandEvent::Error(StreamError { problem: W::problem(error) });
        Positioned { position: None, event }
    }

    /// Looks for the worker until it is there again, the sandbox is known to have ended, or time is over.
    async fn reattach(&mut self) -> Result<(), W::Error> {
        let end = self.losses.since.unwrap_or_else(Instant::now) + self.reattach_for;
        loop {
            // At once the first time; a worker that takes readers and drops them must not be asked in a loop.
            if self.losses.attempts > 0 {
                tokio::select! {
                    // A report may tell the worker's new address, or that the sandbox ended: look at once.
                    result = timeout(self.losses.pause(), self.way.changed()) => result.unwrap_or_default(),
                    () = self.shutdown.cancelled() => return Err(Ended::ShuttingDown.into()),
                }
            }
            self.losses.attempts = self.losses.attempts.saturating_add(1);
            let error = match self.find_again().await {
                Ok(()) => {
                    self.losses.attached_at = Some(Instant::now());
                    return if Instant::now() < end { Ok(()) } else { Err(Ended::Unavailable.into()) };
                }
                Err(error) => error,
            };
            if W::is_final(&error) || Instant::now() >= end {
                return Err(error);
            }
        }
    }

    async fn find_again(&mut self) -> Result<(), W::Error> {
        self.way.find().await?;
        if self.way.generation() != self.last.generation {
            return Err(Ended::OtherGeneration.into());
        }
        self.events = Some(self.way.attach(self.last).await?);
        Ok(())
    }
}
