//! A route, as control sent it.

use space_node_proto::edge::ResolvePortReply;
use space_types::{NodeId, ParseIdError, TenantId};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Reachable without a token.
    pub(crate) public: bool,
    /// Tokens of older epochs are void.
    pub(crate) epoch: u32,
    /// As the API shows it.
    pub(crate) state: String,
    /// While the sandbox is running.
    pub(crate) target: Option<Target>,
}

/// The worker that serves the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub(crate) tenant: TenantId,
    pub(crate) node: NodeId,
    /// `host:port`.
    pub(crate) address: String,
    pub(crate) generation: u64,
}

impl Target {
    /// What the worker's certificate is verified for, whatever its address.
    pub(crate) fn dns_name(&self) -> String {
        format!("worker.{}.{}.space.internal", self.tenant.label(), self.node.label())
    }
}

impl Route {
    pub(super) fn parse(reply: ResolvePortReply) -> Result<Self, ParseIdError> {
        let target = reply.route.map(|route| {
            Ok(Target {
                tenant: route.tenant_id.parse()?,
                node: route.node_id.parse()?,
                address: route.worker_address,
                generation: route.generation,
            })
        });
        Ok(Self { public: reply.public, epoch: reply.epoch, state: reply.state, target: target.transpose()? })
    }
}
