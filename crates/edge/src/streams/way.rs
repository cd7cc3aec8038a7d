//! The way to a command's worker, as control tells it.

use std::{sync::Arc, time::Duration};

use space_api::{Problem, sse::Position};
use space_attach::{Way, is_transport};
use space_node_proto::{attach::FollowRequest, commands::CommandEvent};
use space_types::SandboxId;
use tokio::time::timeout;
use tonic::{Status, Streaming};

use super::{Streams, error::StreamError};
use crate::{
    parse::attach::AttachPath,
    routes::{Asks, RouteError, Routes, SandboxRoute, Target},
    workers::Workers,
};

#[derive(Clone)]
pub(super) struct WorkerWay {
    routes: Arc<Routes<SandboxId>>,
    workers: Workers,
    deadline: Duration,
    asked: AttachPath,
    route: Arc<SandboxRoute>,
    target: Target,
}

impl WorkerWay {
    pub(super) async fn find(streams: &Streams, asked: AttachPath) -> Result<Self, StreamError> {
        let (route, target) = look(&streams.routes, asked.sandbox).await?;
        Ok(Self {
            routes: Arc::clone(&streams.routes),
            workers: streams.workers.clone(),
            deadline: streams.deadline,
            asked,
            route,
            target,
        })
    }

    /// After it led nowhere.
    pub(super) async fn again(mut self) -> Result<Self, StreamError> {
        self.find_anew().await?;
        Ok(self)
    }

    async fn find_anew(&mut self) -> Result<(), StreamError> {
        self.routes.forget(self.asked.sandbox, &self.route).await;
        (self.route, self.target) = look(&self.routes, self.asked.sandbox).await?;
        Ok(())
    }
}

async fn look(
    routes: &Routes<SandboxId>,
    sandbox: SandboxId,
) -> Result<(Arc<SandboxRoute>, Target), StreamError> {
    let route = routes.find(sandbox, Asks::Bearer).await.map_err(|error| match error {
        RouteError::NotFound => StreamError::NoSandbox,
        RouteError::Unavailable => StreamError::NoControl,
    })?;
    match &route.target {
        Some(target) => Ok((Arc::clone(&route), target.clone())),
        None => Err(StreamError::NotRunning(route.state.clone())),
    }
}

impl Way for WorkerWay {
    type Error = StreamError;

    fn generation(&self) -> u64 {
        self.target.generation
    }

    async fn attach(&mut self, after: Position) -> Result<Streaming<CommandEvent>, StreamError> {
        let asked = FollowRequest {
            sandbox_id: self.asked.sandbox.to_string(),
            generation: self.target.generation,
            command_id: self.asked.command.to_string(),
            after_sequence: after.sequence,
        };
        let mut client = self.workers.attach(&self.target).map_err(|_bad_address| StreamError::Moved)?;
        match timeout(self.deadline, client.follow(asked)).await {
            Ok(Ok(events)) => Ok(events.into_inner()),
            Ok(Err(status)) => {
                self.lost(Some(&status));
                Err(status.into())
            }
            Err(_elapsed) => Err(StreamError::Timeout),
        }
    }

    fn lost(&mut self, status: Option<&Status>) {
        if status.is_some_and(is_transport) {
            self.workers.forget(&self.target);
        }
    }

    async fn find(&mut self) -> Result<(), StreamError> {
        match self.find_anew().await {
            // An outage of control ends no stream.
            Err(StreamError::NoControl) => Ok(()),
            found => found,
        }
    }

    /// Nobody tells.
    async fn changed(&mut self) {
        std::future::pending::<()>().await;
    }

    fn is_final(error: &StreamError) -> bool {
        matches!(error, StreamError::NotRunning(_) | StreamError::NoSandbox)
    }

    fn problem(error: &StreamError) -> Problem {
        error.problem()
    }
}
