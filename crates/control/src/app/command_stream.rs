//! A command's events, from its worker to a reader, by the way that the database and the nodes' reports tell.

use std::sync::Arc;

use space_api::{Problem, sse::Position};
use space_attach::{Ended, Way, is_transport};
use space_node_proto::commands as proto;
use space_types::{CommandId, SandboxId};
use tonic::{Status, Streaming};

use super::{
    App, AppError,
    changes::{Interest, Watch},
};
use crate::grants::Reach;
use crate::store::sandboxes::Route;

pub(crate) type CommandStream = space_attach::CommandStream<WorkerWay>;

/// What to attach to, and from where.
pub(crate) struct Target {
    pub(crate) reach: Option<Reach>,
    pub(crate) sandbox: SandboxId,
    pub(crate) command: CommandId,
    pub(crate) after: Option<Position>,
    /// Makes the command if it is not there.
    pub(crate) create: Option<proto::CommandSpec>,
}

pub(crate) struct WorkerWay {
    app: Arc<App>,
    target: Target,
    route: Route,
    watch: Watch,
}

impl App {
    /// Attaches, and starts the command if it was not started.
    pub(crate) async fn command_attach(self: &Arc<Self>, target: Target) -> Result<CommandStream, AppError> {
        let watch = self.changes.watch(Interest::Sandbox(target.sandbox));
        let route = self.route(target.reach, target.sandbox).await?;
        let after = target.after;
        let way = WorkerWay { app: Arc::clone(self), target, route, watch };
        CommandStream::attach(way, after, self.limits.reattach_for, self.shutdown.clone()).await
    }
}

impl From<Ended> for AppError {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::ShuttingDown => Self::ShuttingDown,
            Ended::OtherGeneration => Self::NotFound("command"),
            Ended::Unavailable => Self::GuestUnavailable,
        }
    }
}

impl Way for WorkerWay {
    type Error = AppError;

    fn generation(&self) -> u64 {
        self.route.generation
    }

    async fn attach(&mut self, after: Position) -> Result<Streaming<proto::CommandEvent>, AppError> {
        let asked = proto::AttachCommandRequest {
            sandbox_id: self.target.sandbox.to_string(),
            generation: self.route.generation,
            command_id: self.target.command.to_string(),
            after_sequence: after.sequence,
            create: self.target.create.clone(),
        };
        let mut client = self.app.worker(&self.route)?;
        self.app.call(&self.route, client.attach_command(asked)).await
    }

    fn lost(&mut self, status: Option<&Status>) {
        if status.is_some_and(is_transport) {
            self.app.workers.forget(&self.route);
        }
        self.app.routes.forget(self.target.sandbox);
    }

    async fn find(&mut self) -> Result<(), AppError> {
        match self.app.route(self.target.reach, self.target.sandbox).await {
            Ok(route) => self.route = route,
            // An outage of the database ends no stream.
            Err(AppError::Store(error)) => {
                tracing::debug!(
                    error = space_runtime::telemetry::chain(&error),
                    "reattaching by the last known route"
                );
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn changed(&mut self) {
        self.watch.changed().await;
    }

    fn is_final(error: &AppError) -> bool {
        matches!(error, AppError::SandboxNotRunning { .. } | AppError::NotFound("sandbox"))
    }

    fn problem(error: &AppError) -> Problem {
        error.problem()
    }
}
