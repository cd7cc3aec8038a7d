//! What the edge asks control.

use std::time::Duration;

use space_enrol::{ControlChannel, ControlConfig, Identity, LinkError};
use space_node_proto::edge::{
    GetTokenKeysRequest, RenewEdgeRequest, ResolvePortReply, ResolvePortRequest, ResolveSandboxReply,
    ResolveSandboxRequest, edge_client::EdgeClient,
};
use space_types::{ParseIdError, PortHost, SandboxId};
use tokio::sync::watch;
use tonic::{Status, transport::Channel};

use crate::parse::token::PublicKey;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("control sent a key of {0} bytes")]
    Key(usize),
    #[error("control sent an id that is none")]
    Id(#[from] ParseIdError),
}

impl From<Status> for ControlError {
    fn from(status: Status) -> Self {
        Self::Link(status.into())
    }
}

/// Cheap to clone. Every call ends by the deadline.
#[derive(Clone)]
pub(crate) struct ControlLink(ControlChannel);

impl ControlLink {
    pub(crate) fn new(
        config: ControlConfig,
        deadline: Duration,
        identity: watch::Receiver<Identity>,
    ) -> Self {
        Self(ControlChannel::new(config, deadline, identity))
    }

    /// The new certificate, PEM.
    pub(crate) async fn renew(&self, csr_der: Vec<u8>) -> Result<String, ControlError> {
        Ok(self.client()?.renew_edge(RenewEdgeRequest { csr_der }).await?.into_inner().certificate_pem)
    }

    pub(crate) async fn token_keys(&self) -> Result<Vec<PublicKey>, ControlError> {
        let reply = self.client()?.get_token_keys(GetTokenKeysRequest {}).await?.into_inner();
        let exact = |key: Vec<u8>| PublicKey::try_from(key).map_err(|key| ControlError::Key(key.len()));
        reply.ed25519.into_iter().map(exact).collect()
    }

    /// `None`: there is no such sandbox.
    pub(crate) async fn resolve_port(
        &self,
        host: PortHost,
    ) -> Result<Option<ResolvePortReply>, ControlError> {
        let request =
            ResolvePortRequest { sandbox_id: host.sandbox_id.to_string(), port: host.port.get().into() };
        found(self.client()?.resolve_port(request).await)
    }

    /// `None`: there is no such sandbox.
    pub(crate) async fn resolve_sandbox(
        &self,
        id: SandboxId,
    ) -> Result<Option<ResolveSandboxReply>, ControlError> {
        let request = ResolveSandboxRequest { sandbox_id: id.to_string() };
        found(self.client()?.resolve_sandbox(request).await)
    }

    fn client(&self) -> Result<EdgeClient<Channel>, LinkError> {
        Ok(EdgeClient::new(self.0.get()?))
    }
}

fn found<T>(answer: Result<tonic::Response<T>, Status>) -> Result<Option<T>, ControlError> {
    match answer {
        Ok(reply) => Ok(Some(reply.into_inner())),
        Err(status) if status.code() == tonic::Code::NotFound => Ok(None),
        Err(status) => Err(status.into()),
    }
}
