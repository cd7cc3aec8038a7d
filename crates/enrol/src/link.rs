//! The way to control: one lazily made connection with the daemon's current certificate.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::watch;
use tonic::{
    Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};

use crate::{ControlConfig, Identity};

#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("control's address is not usable")]
    Address(#[source] tonic::transport::Error),
    #[error("control refused or could not be reached")]
    Call(#[source] Box<Status>),
}

impl From<Status> for LinkError {
    fn from(status: Status) -> Self {
        Self::Call(Box::new(status))
    }
}

/// Cheap to clone. Every call over it ends by the deadline.
#[derive(Debug, Clone)]
pub struct ControlChannel {
    config: ControlConfig,
    deadline: Duration,
    identity: watch::Receiver<Identity>,
    /// The connection, and the certificate that it was made with.
    channel: Arc<Mutex<Option<(String, Channel)>>>,
}

impl ControlChannel {
    pub fn new(config: ControlConfig, deadline: Duration, identity: watch::Receiver<Identity>) -> Self {
        Self { config, deadline, identity, channel: Arc::default() }
    }

    /// The connection that there is, or a new one if the certificate is another by now. Connects with the first call.
    pub fn get(&self) -> Result<Channel, LinkError> {
        let identity = self.identity.borrow().clone();
        let mut kept = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((certificate, channel)) = kept.as_ref()
            && *certificate == identity.certificate_pem
        {
            return Ok(channel.clone());
        }
        let own = tonic::transport::Identity::from_pem(&identity.certificate_pem, &identity.key_pem);
        let channel = endpoint(&self.config, self.deadline, &identity.authority_pem, Some(own))
            .map_err(LinkError::Address)?
            .connect_lazy();
        *kept = Some((identity.certificate_pem, channel.clone()));
        Ok(channel)
    }
}

/// A host that vanished without a word is noticed in so long, and the next call goes to another.
const PING: Duration = Duration::from_secs(10);

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
    Endpoint::from_shared(config.url.clone())?
        .connect_timeout(deadline)
        .timeout(deadline)
        .http2_keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .keep_alive_while_idle(true)
        .tls_config(tls)
}
