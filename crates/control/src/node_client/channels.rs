//! A map of channels that forgets those nobody has used for a while.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::authority::{Certificates, Peer};

const IDLE: Duration = Duration::from_mins(10);
/// From so many channels on, idle ones are looked for at each new one.
const MANY: usize = 64;
/// Output and files stream through here; a small window would make each 64 KiB wait for a round trip.
const STREAM_WINDOW: u32 = 256 * 1024;
/// As many streams as a worker serves on one connection: readers that stand still, all of them, hold up nobody else.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 1024;

pub(super) struct Channels<K> {
    tls: ClientTlsConfig,
    connect_timeout: Duration,
    open: Mutex<HashMap<K, (Instant, Channel)>>,
}

impl<K: Hash + Eq + Clone> Channels<K> {
    pub(super) fn new(certificates: &Certificates, connect_timeout: Duration) -> Self {
        let control = certificates.control();
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(certificates.authority_pem()))
            .identity(Identity::from_pem(&control.certificate_pem, &control.private_key_pem));
        Self { tls, connect_timeout, open: Mutex::default() }
    }

    /// The channel to `peer` at `address`. Connects when it is used, and again after each loss.
    pub(super) fn get(&self, key: &K, peer: Peer, address: &str) -> Result<Channel, tonic::transport::Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((used_at, channel)) = open.get_mut(key) {
            *used_at = Instant::now();
            return Ok(channel.clone());
        }
        if open.len() >= MANY {
            open.retain(|_, (used_at, _)| used_at.elapsed() < IDLE);
        }
        let channel = Endpoint::from_shared(format!("https://{address}"))?
            .tls_config(self.tls.clone().domain_name(peer.dns_name()))?
            .connect_timeout(self.connect_timeout)
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(10))
            .keep_alive_while_idle(true)
            .connect_lazy();
        open.insert(key.clone(), (Instant::now(), channel.clone()));
        Ok(channel)
    }

    /// Forgets a channel that did not work, so that the next call connects anew at once.
    pub(super) fn forget(&self, key: &K) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}
