//! The way to control: one lazily made connection with this node's current certificate.

use std::sync::{Arc, Mutex, PoisonError};

use space_node_proto::registry::{
    HeartbeatReply, HeartbeatRequest, RenewReply, RenewRequest, ReportReply, ReportRequest, SignWorkerReply,
    SignWorkerRequest, registry_client::RegistryClient,
};
use tokio::sync::watch;
use tonic::{
    Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};

use super::Identity;
use crate::config::{ControlConfig, DeadlineConfig};

#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("control's address is not usable")]
    Address(#[source] tonic::transport::Error),
    #[error("control refused or could not be reached")]
    Call(#[from] Box<Status>),
}

impl From<Status> for LinkError {
    fn from(status: Status) -> Self {
        Self::Call(Box::new(status))
    }
}

/// Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ControlLink {
    config: ControlConfig,
    deadlines: DeadlineConfig,
    identity: watch::Receiver<Identity>,
    /// The connection, and the certificate that it was made with.
    channel: Arc<Mutex<Option<(String, Channel)>>>,
}

impl ControlLink {
    pub(crate) fn new(
        config: ControlConfig,
        deadlines: DeadlineConfig,
        identity: watch::Receiver<Identity>,
    ) -> Self {
        Self { config, deadlines, identity, channel: Arc::default() }
    }

    pub(crate) async fn sign_worker(&self, call: SignWorkerRequest) -> Result<SignWorkerReply, LinkError> {
        Ok(self.client()?.sign_worker(call).await?.into_inner())
    }

    pub(crate) async fn renew(&self, call: RenewRequest) -> Result<RenewReply, LinkError> {
        Ok(self.client()?.renew(call).await?.into_inner())
    }

    pub(crate) async fn heartbeat(&self, call: HeartbeatRequest) -> Result<HeartbeatReply, LinkError> {
        Ok(self.client()?.heartbeat(call).await?.into_inner())
    }

    pub(crate) async fn report(&self, call: ReportRequest) -> Result<ReportReply, LinkError> {
        Ok(self.client()?.report(call).await?.into_inner())
    }

    fn client(&self) -> Result<RegistryClient<Channel>, LinkError> {
        let identity = self.identity.borrow().clone();
        let mut kept = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((certificate, channel)) = kept.as_ref()
            && *certificate == identity.certificate_pem
        {
            return Ok(RegistryClient::new(channel.clone()));
        }
        let own = tonic::transport::Identity::from_pem(&identity.certificate_pem, &identity.key_pem);
        let channel = endpoint(&self.config, &self.deadlines, &identity.authority_pem, Some(own))
            .map_err(LinkError::Address)?
            .connect_lazy();
        *kept = Some((identity.certificate_pem, channel.clone()));
        Ok(RegistryClient::new(channel))
    }
}

/// Control's address, trusted by `authority_pem` alone.
pub(super) fn endpoint(
    config: &ControlConfig,
    deadlines: &DeadlineConfig,
    authority_pem: &str,
    own: Option<tonic::transport::Identity>,
) -> Result<Endpoint, tonic::transport::Error> {
    let mut tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(authority_pem))
        .domain_name(config.server_name.clone());
    if let Some(own) = own {
        tls = tls.identity(own);
    }
    Endpoint::from_shared(config.url.clone())?
        .connect_timeout(deadlines.control())
        .timeout(deadlines.control())
        .tls_config(tls)
}
