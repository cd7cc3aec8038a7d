//! Channels to workers: mTLS, one a worker, made when first used, kept while used.
//!
//! The worker must present the certificate of exactly the tenant and node that is meant; the name to verify is made
//! from their ids, never from the address.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use space_enrol::Identity;
use space_node_proto::{attach::attach_client::AttachClient, ports::ports_client::PortsClient};
use tokio::sync::watch;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::routes::Target;

const IDLE: Duration = Duration::from_mins(10);
/// From so many channels on, idle ones are looked for at each new one.
const MANY: usize = 64;
const STREAM_WINDOW: u32 = 256 * 1024;
/// As many streams as a worker serves on one connection: readers that stand still, all of them, hold up nobody else.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 1024;
const PING: Duration = Duration::from_secs(10);

/// Who a channel leads to, and the edge's certificate that it was made with.
type Key = (String, String, String);

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Workers {
    identity: watch::Receiver<Identity>,
    deadline: Duration,
    open: Arc<Mutex<HashMap<Key, (Instant, Channel)>>>,
}

impl Workers {
    pub(crate) fn new(identity: watch::Receiver<Identity>, deadline: Duration) -> Self {
        Self { identity, deadline, open: Arc::default() }
    }

    pub(crate) fn ports(&self, target: &Target) -> Result<PortsClient<Channel>, tonic::transport::Error> {
        self.channel(target).map(PortsClient::new)
    }

    pub(crate) fn attach(&self, target: &Target) -> Result<AttachClient<Channel>, tonic::transport::Error> {
        self.channel(target).map(AttachClient::new)
    }

    /// Connects when it is used, and again after each loss.
    fn channel(&self, target: &Target) -> Result<Channel, tonic::transport::Error> {
        let identity = self.identity.borrow().clone();
        let key = key(target, &identity);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((used_at, channel)) = open.get_mut(&key) {
            *used_at = Instant::now();
            return Ok(channel.clone());
        }
        if open.len() >= MANY {
            open.retain(|_, (used_at, _)| used_at.elapsed() < IDLE);
        }
        let channel = self.endpoint(target, &identity)?.connect_lazy();
        open.insert(key, (Instant::now(), channel.clone()));
        Ok(channel)
    }

    /// Forgets a channel that did not work, so that the next call connects anew at once.
    pub(crate) fn forget(&self, target: &Target) {
        let key = key(target, &self.identity.borrow());
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    fn endpoint(&self, target: &Target, identity: &Identity) -> Result<Endpoint, tonic::transport::Error> {
        let own = tonic::transport::Identity::from_pem(&identity.certificate_pem, &identity.key_pem);
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&identity.authority_pem))
            .identity(own)
            .domain_name(target.dns_name());
        Ok(Endpoint::from_shared(format!("https://{}", target.address))?
            .tls_config(tls)?
            .connect_timeout(self.deadline)
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .keep_alive_while_idle(true))
    }
}

fn key(target: &Target, identity: &Identity) -> Key {
    (target.dns_name(), target.address.clone(), identity.certificate_pem.clone())
}
