//! The `Node` service.

use std::sync::Arc;

use space_node_proto::{
    common::{ObservedSandbox, Phase},
    node::{
        EnsureSandboxRequest, ListSandboxesReply, ListSandboxesRequest, RemoveSandboxReply,
        RemoveSandboxRequest, node_server::Node,
    },
};
use space_types::{SandboxId, TenantId};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::{
    chaos::Fate,
    state::{Behaviour, State},
};

pub(super) struct NodeService {
    state: Arc<State>,
    stop: CancellationToken,
}

impl NodeService {
    pub(super) fn new(state: Arc<State>, stop: CancellationToken) -> Self {
        Self { state, stop }
    }
}

impl NodeService {
    async fn ensure(&self, request: &EnsureSandboxRequest) -> Result<ObservedSandbox, Status> {
        if let Some(report) = self.state.admit_ensure(request)? {
            return Ok(report);
        }
        match self.state.begin_ensure() {
            Behaviour::Run => {
                let address = self.state.worker(&request.tenant_id, &self.stop).await?;
                self.state.insert(request, Phase::Running, "", &address)
            }
            Behaviour::Fail(reason) => self.state.insert(request, Phase::Failed, reason, ""),
            Behaviour::Exhausted => Err(Status::resource_exhausted("no room")),
            Behaviour::Unavailable => Err(Status::unavailable("shutting down")),
            Behaviour::Hang => std::future::pending().await,
        }
    }
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn ensure_sandbox(
        &self,
        request: Request<EnsureSandboxRequest>,
    ) -> Result<Response<ObservedSandbox>, Status> {
        let request = request.into_inner();
        check_names(&request.sandbox_id, Some(&request.tenant_id))?;
        let fate = self.state.fate();
        fate.arrive().await?;
        if fate == Fate::Twice {
            self.ensure(&request).await?;
        }
        let report = self.ensure(&request).await;
        fate.leave()?;
        report.map(Response::new)
    }

    async fn remove_sandbox(
        &self,
        request: Request<RemoveSandboxRequest>,
    ) -> Result<Response<RemoveSandboxReply>, Status> {
        let request = request.into_inner();
        check_names(&request.sandbox_id, None)?;
        let fate = self.state.fate();
        fate.arrive().await?;
        if fate == Fate::Twice {
            self.state.remove_for(&request)?;
        }
        self.state.remove_for(&request)?;
        fate.leave()?;
        Ok(Response::new(RemoveSandboxReply {}))
    }

    async fn list_sandboxes(
        &self,
        _: Request<ListSandboxesRequest>,
    ) -> Result<Response<ListSandboxesReply>, Status> {
        Ok(Response::new(ListSandboxesReply { sandboxes: self.state.reports() }))
    }
}

fn check_names(sandbox: &str, tenant: Option<&str>) -> Result<(), Status> {
    let named =
        sandbox.parse::<SandboxId>().is_ok() && tenant.is_none_or(|id| id.parse::<TenantId>().is_ok());
    if named { Ok(()) } else { Err(Status::invalid_argument("an id that is none")) }
}
