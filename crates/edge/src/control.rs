//! The way to control: one lazily made connection with the edge's current certificate.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use space_node_proto::edge::{
    GetTokenKeysRequest, RenewEdgeRequest, ResolvePortReply, ResolvePortRequest, ResolveSandboxReply,
    ResolveSandboxRequest, edge_client::EdgeClient,
};
use space_types::{ParseIdError, PortHost, SandboxId};
use tokio::sync::watch;
use tonic::{
    Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};

use crate::{config::ControlConfig, enrol::Identity, parse::token::PublicKey};

#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    #[error("control's address is not usable")]
    Address(#[source] tonic::transport::Error),
    #[error("control refused or could not be reached")]
    Call(#[source] Box<Status>),
    #[error("control sent a key of {0} bytes")]
    Key(usize),
    #[error("control sent an id that is none")]
    Id(#[from] ParseIdError),
}

impl From<Status> for ControlError {
    fn from(status: Status) -> Self {
        Self::Call(Box::new(status))
    }
}

/// Cheap to clone. Every call ends by the deadline.
#[derive(Clone)]
pub(crate) struct ControlLink {
    config: ControlConfig,
    deadline: Duration,
    identity: watch::Receiver<Identity>,
    /// The connection, and the certificate that it was made with.
    channel: Arc<Mutex<Option<(String, Channel)>>>,
}

impl ControlLink {
    pub(crate) fn new(
        config: ControlConfig,
        deadline: Duration,
        identity: watch::Receiver<Identity>,
    ) -> Self {
        Self { config, deadline, identity, channel: Arc::default() }
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

    fn client(&self) -> Result<EdgeClient<Channel>, ControlError> {
        let identity = self.identity.borrow().clone();
        let mut kept = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((certificate, channel)) = kept.as_ref()
            && *certificate == identity.certificate_pem
        {
            return Ok(EdgeClient::new(channel.clone()));
        }
        let own = tonic::transport::Identity::from_pem(&identity.certificate_pem, &identity.key_pem);
        let channel = endpoint(&self.config, self.deadline, &identity.authority_pem, Some(own))
            .map_err(ControlError::Address)?
            .connect_lazy();
        *kept = Some((identity.certificate_pem, channel.clone()));
        Ok(EdgeClient::new(channel))
    }
}

fn found<T>(answer: Result<tonic::Response<T>, Status>) -> Result<Option<T>, ControlError> {
    match answer {
        Ok(reply) => Ok(Some(reply.into_inner())),
        Err(status) if status.code() == tonic::Code::NotFound => Ok(None),
        Err(status) => Err(status.into()),
    }
}

/// Control's address, trusted by `authority_pem` alone.
pub(crate) fn endpoint(
    config: &ControlConfig,
    deadline: Duration,
    authority_pem: &str,
    own: Option<tonic::transport::Identity>,
) -> Result<Endpoint, tonic::transport::Error> {
    let mut tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(authority_pem))
        .domain_name(config.server_name.clone());
    if let Some(own) = own {
        tls = tls.identity(own);
    }
    Endpoint::from_shared(config.url.clone())?.connect_timeout(deadline).timeout(deadline).tls_config(tls)
}
