//! The `Node` service.

use std::sync::Arc;

use space_node_proto::{
    common::{ObservedSandbox, Phase},
    node::{
        EnsureSandboxRequest, ListSandboxesReply, ListSandboxesRequest, RemoveSandboxReply,
        RemoveSandboxRequest, node_server::Node,
    },
};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::state::{Behaviour, State};

pub(super) struct NodeService {
    state: Arc<State>,
    stop: CancellationToken,
}

impl NodeService {
    pub(super) fn new(state: Arc<State>, stop: CancellationToken) -> Self {
        Self { state, stop }
    }
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn ensure_sandbox(
        &self,
        request: Request<EnsureSandboxRequest>,
    ) -> Result<Response<ObservedSandbox>, Status> {
        let request = request.into_inner();
        let behaviour = self.state.begin_ensure();
        if let Some(report) = self.state.find(&request.sandbox_id) {
            return Ok(Response::new(report));
        }
        match behaviour {
            Behaviour::Run => {
                let address = self.state.worker(&request.tenant_id, &self.stop).await?;
                Ok(Response::new(self.state.insert(&request, Phase::Running, "", &address)))
            }
            Behaviour::Fail(reason) => {
                Ok(Response::new(self.state.insert(&request, Phase::Failed, reason, "")))
            }
            Behaviour::Exhausted => Err(Status::resource_exhausted("no room")),
            Behaviour::Unavailable => Err(Status::unavailable("shutting down")),
            Behaviour::Hang => std::future::pending().await,
        }
    }

    async fn remove_sandbox(
        &self,
        request: Request<RemoveSandboxRequest>,
    ) -> Result<Response<RemoveSandboxReply>, Status> {
        let request = request.into_inner();
        if self.state.find(&request.sandbox_id).is_some_and(|report| report.generation > request.generation) {
            return Err(Status::failed_precondition("an older generation"));
        }
        self.state.remove(&request.sandbox_id);
        self.state.count_removal();
        Ok(Response::new(RemoveSandboxReply {}))
    }

    async fn list_sandboxes(
        &self,
        _: Request<ListSandboxesRequest>,
    ) -> Result<Response<ListSandboxesReply>, Status> {
        Ok(Response::new(ListSandboxesReply { sandboxes: self.state.reports() }))
    }
}
