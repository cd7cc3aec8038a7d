//! What the node asks control.

use std::time::Duration;

use space_enrol::{ControlChannel, ControlConfig, Identity, LinkError};
use space_node_proto::registry::{
    HeartbeatReply, HeartbeatRequest, RenewRequest, ReportReply, ReportRequest, SignWorkerReply,
    SignWorkerRequest, registry_client::RegistryClient,
};
use tokio::sync::watch;
use tonic::transport::Channel;

/// Cheap to clone. Every call ends by the deadline.
#[derive(Debug, Clone)]
pub(crate) struct ControlLink(ControlChannel);

impl ControlLink {
    pub(crate) fn new(
        config: ControlConfig,
        deadline: Duration,
        identity: watch::Receiver<Identity>,
    ) -> Self {
        Self(ControlChannel::new(config, deadline, identity))
    }

    pub(crate) async fn sign_worker(&self, call: SignWorkerRequest) -> Result<SignWorkerReply, LinkError> {
        Ok(self.client()?.sign_worker(call).await?.into_inner())
    }

    /// The new certificate, PEM.
    pub(crate) async fn renew(&self, csr_der: Vec<u8>) -> Result<String, LinkError> {
        Ok(self.client()?.renew(RenewRequest { csr_der }).await?.into_inner().certificate_pem)
    }

    pub(crate) async fn heartbeat(&self, call: HeartbeatRequest) -> Result<HeartbeatReply, LinkError> {
        Ok(self.client()?.heartbeat(call).await?.into_inner())
    }

    pub(crate) async fn report(&self, call: ReportRequest) -> Result<ReportReply, LinkError> {
        Ok(self.client()?.report(call).await?.into_inner())
    }

    fn client(&self) -> Result<RegistryClient<Channel>, LinkError> {
        Ok(RegistryClient::new(self.0.get()?))
    }
}
