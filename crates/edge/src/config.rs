//! Configuration of `space-edged`: a TOML file, with environment variables over it (prefix `SPACE_EDGED`).

use std::net::SocketAddr;

use camino::Utf8PathBuf;
use serde::Deserialize;
use space_enrol::ControlConfig;
use space_runtime::telemetry::TelemetryConfig;

use crate::network::Network;

pub const ENVIRONMENT_PREFIX: &str = "SPACE_EDGED";

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What the operator calls this edge, in control's log.
    #[serde(default = "default_name")]
    pub name: String,
    /// The edge's key and certificate. Private to the daemon.
    pub data_dir: Utf8PathBuf,
    /// Where visitors connect.
    pub listen: SocketAddr,
    /// Ports are reached as `<port>-<id>.<domain>`. Better a registrable domain of its own: what runs under it trusts
    /// nobody else under it.
    pub domain: String,
    /// None: plain HTTP, for one machine or behind something that terminates TLS.
    #[serde(default)]
    pub tls: Option<TlsConfig>,
    /// Something in front terminates TLS: cookies are `Secure` and guests are told `https`, although this edge sees none.
    #[serde(default)]
    pub tls_in_front: bool,
    /// None: whoever connects is the visitor.
    #[serde(default)]
    pub proxy_protocol: Option<ProxyProtocolConfig>,
    pub control: ControlConfig,
    /// `/metrics`, `/healthz` and `/readyz`, in plain HTTP. None where it is not set.
    #[serde(default)]
    pub internal_listen: Option<SocketAddr>,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub telemetry: TelemetryConfig,
}

/// A certificate for `*.<domain>`. The files are looked at every ten seconds and read again when they have changed;
/// ones that don't fit together leave the old certificate in use.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// PEM, the leaf first.
    pub certificate: Utf8PathBuf,
    /// PEM.
    pub key: Utf8PathBuf,
}

/// Behind load balancers that say whom a connection is for, in the PROXY protocol, version 1 or 2.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyProtocolConfig {
    /// Their addresses and networks. Connections from there have to begin with it; from elsewhere nobody is believed.
    pub trusted: Vec<Network>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections of visitors, together.
    pub connections: usize,
    /// Connections of one address, or of a /64 in IPv6, with the tunnels that outlive them. 0: as many as there are.
    /// A proxy in front that stands for all visitors is one address: configure `proxy_protocol`, or set this and the next
    /// to 0.
    pub address_connections: usize,
    /// Requests a second that one address may send in the long run. 0: as many as it likes.
    pub address_requests_per_second: u32,
    /// Requests that it may send at once after a rest.
    pub address_requests_burst: u32,
    /// Tunnels to one port, from this edge. Who finds them all taken waits for up to `upstream_seconds`.
    pub tunnels_per_port: usize,
    /// Tunnels to all sandboxes of one tenant.
    pub tunnels_per_tenant: usize,
    /// All tunnels. Each may hold half a MiB of what nobody reads.
    pub tunnels: usize,
    /// For the head of a request, and for the first request of a connection; for a TLS handshake too, which never gets
    /// more than 10.
    pub header_seconds: u64,
    /// For the wait on control and on a worker.
    pub upstream_seconds: u64,
    /// What requests under way get to finish when the edge is told to stop. Tunnels end then at the latest.
    pub drain_seconds: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            address_connections: 1024,
            address_requests_per_second: 500,
            address_requests_burst: 2000,
            tunnels_per_port: 256,
            tunnels_per_tenant: 2048,
            tunnels: 8192,
            header_seconds: 15,
            upstream_seconds: 10,
            drain_seconds: 15,
        }
    }
}

fn default_name() -> String {
    "edge".to_owned()
}

impl Config {
    /// The domain as host names are compared with it.
    pub(crate) fn normal_domain(&self) -> String {
        self.domain.trim_matches('.').to_ascii_lowercase()
    }

    /// Of the key and the certificate.
    pub(crate) fn identity_dir(&self) -> Utf8PathBuf {
        self.data_dir.join("identity")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_is_enough() {
        let directory = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::from_path_buf(directory.path().join("edged.toml")).unwrap();
        let text = "data_dir = '/x'\nlisten = '127.0.0.1:8710'\ndomain = '.Ports.Example.'\n\
                    [control]\nurl = 'https://127.0.0.1:8701'\n";
        std::fs::write(&path, text).unwrap();
        let config: Config = space_runtime::config::load_with(Some(&path), ENVIRONMENT_PREFIX, []).unwrap();
        assert_eq!(config.normal_domain(), "ports.example");
        assert_eq!(config.limits.connections, 16_384);
    }
}
