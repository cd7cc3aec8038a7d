//! The three calls.

use std::sync::Arc;

use space_node_proto::{
    common::ObservedSandbox,
    node::{
        EnsureSandboxRequest, ListSandboxesReply, ListSandboxesRequest, RemoveSandboxReply,
        RemoveSandboxRequest, node_server::Node,
    },
};
use tonic::{Request, Response, Status, async_trait};

use super::{
    authorise::require_control,
    parse::{parse_ensure, parse_sandbox},
};
use crate::{
    fence::Fence,
    vm::{Fleet, NodeContext, VmError},
};

#[derive(Debug, Clone)]
pub(crate) struct NodeService {
    pub(crate) node: Arc<NodeContext>,
    pub(crate) fleet: Fleet,
    pub(crate) fence: Fence,
}

#[async_trait]
impl Node for NodeService {
    async fn ensure_sandbox(
        &self,
        request: Request<EnsureSandboxRequest>,
    ) -> Result<Response<ObservedSandbox>, Status> {
        require_control(&request)?;
        let request = request.into_inner();
        let fence = request.fence;
        let ensure = parse_ensure(request, &self.node.config.capacity)?;
        self.pass_fence(fence).await?;
        self.fleet.ensure(ensure).await.map(Response::new).map_err(|error| status(&error))
    }

    async fn remove_sandbox(
        &self,
        request: Request<RemoveSandboxRequest>,
    ) -> Result<Response<RemoveSandboxReply>, Status> {
        require_control(&request)?;
        let request = request.into_inner();
        let sandbox = parse_sandbox(&request.sandbox_id)?;
        self.pass_fence(request.fence).await?;
        let removed = self.fleet.remove(sandbox, request.generation).await;
        removed.map(|()| Response::new(RemoveSandboxReply {})).map_err(|error| status(&error))
    }

    async fn list_sandboxes(
        &self,
        request: Request<ListSandboxesRequest>,
    ) -> Result<Response<ListSandboxesReply>, Status> {
        require_control(&request)?;
        Ok(Response::new(ListSandboxesReply { sandboxes: self.fleet.all() }))
    }
}

impl NodeService {
    async fn pass_fence(&self, fence: u64) -> Result<(), Status> {
        match self.fence.pass(fence).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(Status::failed_precondition("the command's fence is older than what this node has seen"))
            }
            Err(error) => {
                tracing::error!(error = %space_runtime::telemetry::chain(&error), "cannot keep the fence");
                Err(Status::internal("the node failed; its log says why"))
            }
        }
    }
}

/// Why nothing was done, as codes: `RESOURCE_EXHAUSTED` begins with the reason's code and a colon.
fn status(error: &VmError) -> Status {
    let message = error.to_string();
    match error {
        VmError::Denied(_) => Status::failed_precondition(message),
        VmError::Exhausted { .. } => Status::resource_exhausted(message),
        VmError::Cancelled => Status::aborted(message),
        VmError::Busy | VmError::Stopping => Status::unavailable(message),
        VmError::Internal => Status::internal(message),
    }
}
