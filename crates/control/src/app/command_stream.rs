//! A command's events, from its worker to a reader.
//!
//! ```text
//!            event                       break                 reattached
//!   Attached ─────▶ Attached   Attached ─────▶ Reattaching ─────▶ Attached
//!   Attached ─ exit ─▶ Ended   Reattaching ─ the sandbox ended, or the time is over ─▶ one error event, Ended
//! ```
//!
//! A worker that restarts, or a network that hiccups, is not the reader's concern: events are numbered without
//! holes, so the stream goes on behind the last one that was passed on. An outage of the database does not end a
//! stream either: the route that worked is tried again.

use std::{sync::Arc, time::Duration};

use futures::{Stream, stream};
use space_api::sse::{CommandEvent, Gap, Output, Position, Started, StreamError};
use space_node_proto::commands::{self as proto, command_event::Kind};
use space_types::{CommandId, SandboxId};
use tokio::time::{Instant, timeout};
use tonic::Streaming;

use super::{
    App, AppError,
    changes::{Interest, Watch},
    commands::{exit, is_transport},
};
use crate::grants::Reach;
use crate::store::sandboxes::Route;

/// How often a lost worker is looked for.
const PAUSE: Duration = Duration::from_millis(200);
/// A connection that lasted so long counts as one that worked, though no event came.
const GOOD_CONNECTION: Duration = Duration::from_secs(5);

/// One event with its position; events that tell of the stream itself have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Positioned {
    pub(crate) position: Option<Position>,
    pub(crate) event: CommandEvent,
}

/// What to attach to, and from where.
pub(crate) struct Target {
    pub(crate) reach: Option<Reach>,
    pub(crate) sandbox: SandboxId,
    pub(crate) command: CommandId,
    pub(crate) after: Option<Position>,
    /// Makes the command if it is not there.
    pub(crate) create: Option<proto::CommandSpec>,
}

pub(crate) struct CommandStream {
    app: Arc<App>,
    target: Target,
    route: Route,
    events: Option<Streaming<proto::CommandEvent>>,
    last: Position,
    watch: Watch,
    losses: Losses,
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
}

impl App {
    /// Attaches, and starts the command if it was not started.
    pub(crate) async fn command_attach(self: &Arc<Self>, target: Target) -> Result<CommandStream, AppError> {
        let watch = self.changes.watch(Interest::Sandbox(target.sandbox));
        let route = self.route(target.reach, target.sandbox).await?;
        // What was seen of another generation says nothing about this one.
        let sequence = target
            .after
            .filter(|after| after.generation == route.generation)
            .map_or(0, |after| after.sequence);
        let last = Position { generation: route.generation, sequence };
        let mut stream = CommandStream {
            app: Arc::clone(self),
            target,
            route,
            events: None,
            last,
            watch,
            losses: Losses::default(),
            ended: false,
        };
        let events = stream.connect().await?;
        stream.events = Some(events);
        Ok(stream)
    }
}

impl CommandStream {
    pub(crate) fn into_stream(self) -> impl Stream<Item = Positioned> {
        stream::unfold(self, |mut this| async { this.next().await.map(|event| (event, this)) })
    }

    /// The next event; none after the last. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Positioned> {
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
                () = self.app.shutdown.cancelled() => return Some(self.end_with(&AppError::ShuttingDown)),
            };
            match message {
                Ok(Some(event)) => {
                    if let Some(event) = self.pass_on(event) {
                        return Some(event);
                    }
                }
                Ok(None) => self.lose(),
                Err(status) => {
                    tracing::debug!(%status, command = %self.target.command, "a command's stream broke");
                    if is_transport(&status) {
                        self.app.workers.forget(&self.route);
                    }
                    self.lose();
                }
            }
        }
    }

    fn lose(&mut self) {
        self.events = None;
        self.losses.lost();
        self.app.routes.forget(self.target.sandbox);
    }

    /// `None`: seen before, or of a kind that does not exist.
    fn pass_on(&mut self, event: proto::CommandEvent) -> Option<Positioned> {
        if event.sequence <= self.last.sequence {
            return None;
        }
        self.last.sequence = event.sequence;
        self.losses.recovered();
        let event = match event.kind? {
            Kind::Started(started) => CommandEvent::Started(Started { pid: started.pid }),
            Kind::Output(output) => {
                let is_stderr = output.stream() == proto::output::Stream::Stderr;
                let output = Output { offset: output.offset, data: output.data.into() };
                if is_stderr { CommandEvent::Stderr(output) } else { CommandEvent::Stdout(output) }
            }
            Kind::Exit(found) => {
                self.ended = true;
                CommandEvent::Exit(exit(found))
            }
            Kind::Gap(gap) => CommandEvent::Gap(Gap {
                first_lost: gap.first_lost,
                last_lost: gap.last_lost,
                stdout_bytes: gap.stdout_bytes,
                stderr_bytes: gap.stderr_bytes,
            }),
        };
        Some(Positioned { position: Some(self.last), event })
    }

    fn end_with(&mut self, error: &AppError) -> Positioned {
        self.ended = true;
        let event = CommandEvent::Error(StreamError { problem: error.problem() });
        Positioned { position: None, event }
    }

    /// Looks for the worker until it is there again, the sandbox is known to have ended, or time is over.
    async fn reattach(&mut self) -> Result<(), AppError> {
        let end = self.losses.since.unwrap_or_else(Instant::now) + self.app.limits.reattach_for;
        loop {
            // At once the first time; a worker that takes readers and drops them must not be asked in a loop.
            if self.losses.attempts > 0 {
                tokio::select! {
                    // A report may tell the worker's new address, or that the sandbox ended: look at once.
                    result = timeout(PAUSE, self.watch.changed()) => result.unwrap_or_default(),
                    () = self.app.shutdown.cancelled() => return Err(AppError::ShuttingDown),
                }
            }
            self.losses.attempts = self.losses.attempts.saturating_add(1);
            let error = match self.find_again().await {
                Ok(()) => {
                    self.losses.attached_at = Some(Instant::now());
                    return if Instant::now() < end { Ok(()) } else { Err(AppError::GuestUnavailable) };
                }
                Err(error) => error,
            };
            let is_final =
                matches!(error, AppError::SandboxNotRunning { .. } | AppError::NotFound("sandbox"));
            if is_final || Instant::now() >= end {
                return Err(error);
            }
        }
    }

    async fn find_again(&mut self) -> Result<(), AppError> {
        match self.app.route(self.target.reach, self.target.sandbox).await {
            Ok(route) => self.route = route,
            Err(AppError::Store(error)) => {
                tracing::debug!(
                    error = space_runtime::telemetry::chain(&error),
                    "reattaching by the last known route"
                );
            }
            Err(error) => return Err(error),
        }
        if self.route.generation != self.last.generation {
            return Err(AppError::NotFound("command"));
        }
        self.events = Some(self.connect().await?);
        Ok(())
    }

    async fn connect(&self) -> Result<Streaming<proto::CommandEvent>, AppError> {
        let asked = proto::AttachCommandRequest {
            sandbox_id: self.target.sandbox.to_string(),
            generation: self.route.generation,
            command_id: self.target.command.to_string(),
            after_sequence: self.last.sequence,
            create: self.target.create.clone(),
        };
        let mut client = self.app.worker(&self.route)?;
        self.app.call(&self.route, client.attach_command(asked)).await
    }
}
