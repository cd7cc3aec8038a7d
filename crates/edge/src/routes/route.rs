//! Routes, as control sent them.

use space_node_proto::edge::{ResolvePortReply, ResolveSandboxReply, Route};
use space_types::{NodeId, ParseIdError, TenantId};

/// To the commands of a sandbox.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SandboxRoute {
    /// As the API shows it.
    pub(crate) state: String,
    /// While the sandbox is running.
    pub(crate) target: Option<Target>,
}

/// To a port.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PortRoute {
    /// Reachable without a token.
    pub(crate) public: bool,
    /// Tokens of older epochs are void.
    pub(crate) epoch: u32,
    pub(crate) sandbox: SandboxRoute,
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

    fn parse(route: Route) -> Result<Self, ParseIdError> {
        Ok(Self {
            tenant: route.tenant_id.parse()?,
            node: route.node_id.parse()?,
            address: route.worker_address,
            generation: route.generation,
        })
    }
}

impl SandboxRoute {
    pub(super) fn parse(reply: ResolveSandboxReply) -> Result<Self, ParseIdError> {
        Ok(Self { state: reply.state, target: reply.route.map(Target::parse).transpose()? })
    }
}

impl PortRoute {
    pub(super) fn parse(reply: ResolvePortReply) -> Result<Self, ParseIdError> {
        let ResolvePortReply { public, epoch, state, route } = reply;
        let sandbox = SandboxRoute::parse(ResolveSandboxReply { state, route })?;
        Ok(Self { public, epoch, sandbox })
    }
}
