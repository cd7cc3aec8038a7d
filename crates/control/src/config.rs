//! Configuration of `space-controld`: a TOML file, with environment variables over it (prefix
//! `SPACE_CONTROLD`). Everything has a default but the database and the data directory.

use std::{net::SocketAddr, time::Duration};

use camino::Utf8PathBuf;
use jiff::SignedDuration;
use serde::Deserialize;
use space_api::quotas::Quota;
use space_runtime::telemetry::TelemetryConfig;

pub const ENVIRONMENT_PREFIX: &str = "SPACE_CONTROLD";

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Holds `authority/`: the CA's key and the key that signs tokens. Private to the daemon.
    pub data_dir: Utf8PathBuf,
    /// Where the first start writes the first admin key, 0600. `<data_dir>/admin.key` when absent.
    #[serde(default)]
    pub admin_key_file: Option<Utf8PathBuf>,
    /// Where each start writes a fresh join token, 0600. None: join tokens come from the API alone.
    #[serde(default)]
    pub join_token_file: Option<Utf8PathBuf>,
    /// Where each start writes a fresh join token for an edge, 0600.
    #[serde(default)]
    pub edge_join_token_file: Option<Utf8PathBuf>,
    pub database: DatabaseConfig,
    #[serde(default)]
    pub http: HttpConfig,
    /// What the sandboxes of a tenant may hold together, unless something else was set for it. No limits by default.
    #[serde(default)]
    pub quota: Quota,
    #[serde(default)]
    pub rate_limits: RateLimitsConfig,
    #[serde(default)]
    pub registry: RegistryConfig,
    #[serde(default)]
    pub internal: InternalConfig,
    #[serde(default)]
    pub nodes: NodesConfig,
    #[serde(default)]
    pub commands: CommandsConfig,
    #[serde(default)]
    pub ports: PortsConfig,
    #[serde(default)]
    pub controllers: ControllersConfig,
    #[serde(default)]
    pub telemetry: TelemetryConfig,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseConfig {
    /// `postgres://user:password@host/database`, or with `?host=/path` a Unix socket.
    pub url: String,
    #[serde(default = "default_connections")]
    pub max_connections: u32,
    /// A request waits for a connection this long before it is told that the database is away.
    #[serde(default = "default_acquire")]
    pub acquire_timeout: SignedDuration,
    #[serde(default = "default_statement")]
    pub statement_timeout: SignedDuration,
}

fn default_connections() -> u32 {
    16
}

fn default_acquire() -> SignedDuration {
    SignedDuration::from_secs(2)
}

fn default_statement() -> SignedDuration {
    SignedDuration::from_secs(10)
}

/// The public API.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    pub listen: SocketAddr,
    /// Serves TLS with this certificate chain and key (PEM). Without it: plain HTTP.
    pub certificate_file: Option<Utf8PathBuf>,
    pub private_key_file: Option<Utf8PathBuf>,
    /// For every request but streams; `?wait=` comes on top.
    pub request_timeout: SignedDuration,
    /// For the headers of each request on a connection; the connection is closed then.
    pub header_timeout: SignedDuration,
    /// How often a stream looks whether the key that opened it is still valid.
    pub key_recheck: SignedDuration,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8700)),
            certificate_file: None,
            private_key_file: None,
            request_timeout: SignedDuration::from_secs(30),
            header_timeout: SignedDuration::from_secs(30),
            key_recheck: SignedDuration::from_secs(15),
        }
    }
}

/// How fast requests may come to this replica. A rate of 0: no limit. A burst is what may come at once after a pause.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimitsConfig {
    /// Requests of one key.
    pub key_per_second: u32,
    pub key_burst: u32,
    /// Requests of all keys of a tenant.
    pub tenant_per_second: u32,
    pub tenant_burst: u32,
    /// Requests of a tenant that create a sandbox.
    pub creates_per_second: u32,
    pub creates_burst: u32,
    /// Requests without a valid key or token, from one IPv4 address or one /64 of IPv6. Behind a proxy all callers have
    /// its address: 0 there, or one caller's failures stop all.
    pub failed_authentications_per_minute: u32,
    pub failed_authentications_burst: u32,
}

impl Default for RateLimitsConfig {
    fn default() -> Self {
        Self {
            key_per_second: 200,
            key_burst: 400,
            tenant_per_second: 1000,
            tenant_burst: 2000,
            creates_per_second: 50,
            creates_burst: 200,
            failed_authentications_per_minute: 10,
            failed_authentications_burst: 20,
        }
    }
}

/// The gRPC server for nodes.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegistryConfig {
    pub listen: SocketAddr,
    /// How long a node's heartbeat is good for.
    pub lease: SignedDuration,
    /// How much longer control waits before it takes a silent node for lost.
    pub lease_margin: SignedDuration,
}

impl Default for RegistryConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8701)),
            lease: SignedDuration::from_secs(15),
            lease_margin: SignedDuration::from_secs(15),
        }
    }
}

/// `/metrics`, `/healthz`, `/readyz`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InternalConfig {
    pub listen: SocketAddr,
}

impl Default for InternalConfig {
    fn default() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 8709)) }
    }
}

/// Calls to nodes.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodesConfig {
    pub connect_timeout: SignedDuration,
    /// A node has this long to make a sandbox answer.
    pub ensure_timeout: SignedDuration,
    pub remove_timeout: SignedDuration,
    /// A sandbox that could not be started on a live node for so long has failed.
    pub create_deadline: SignedDuration,
}

impl Default for NodesConfig {
    fn default() -> Self {
        Self {
            connect_timeout: SignedDuration::from_secs(5),
            ensure_timeout: SignedDuration::from_secs(90),
            remove_timeout: SignedDuration::from_mins(1),
            create_deadline: SignedDuration::from_mins(3),
        }
    }
}

/// Calls to the workers that serve commands.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CommandsConfig {
    pub call_timeout: SignedDuration,
    /// When a worker's connection breaks under a stream, control looks for it again for so long.
    pub reattach_for: SignedDuration,
    /// How long an attach token is good.
    pub token_lifetime: SignedDuration,
    /// Where edges are reached for command streams: `https://streams.sandbox.example.com`, a name under the edges' domain
    /// or any other that leads to them. Readers are sent there, and a restart of control is none of their concern then.
    /// None: they read from control.
    pub attach_base_url: Option<String>,
}

impl Default for CommandsConfig {
    fn default() -> Self {
        Self {
            call_timeout: SignedDuration::from_secs(10),
            reattach_for: SignedDuration::from_secs(30),
            token_lifetime: SignedDuration::from_hours(24),
            attach_base_url: None,
        }
    }
}

/// Ports of sandboxes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PortsConfig {
    /// Under which names edges serve them: `https://sandbox.example.com`, or `http://localhost:8710`. None: there is no
    /// edge.
    pub base_url: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ControllersConfig {
    /// How often each controller looks without being nudged.
    pub interval: SignedDuration,
    /// Sandboxes that are worked on at the same time.
    pub concurrency: usize,
    /// How long events are kept.
    pub event_retention: SignedDuration,
    /// How long deleted sandboxes can still be read.
    pub deleted_retention: SignedDuration,
}

impl Default for ControllersConfig {
    fn default() -> Self {
        Self {
            interval: SignedDuration::from_secs(5),
            concurrency: 64,
            event_retention: SignedDuration::from_hours(7 * 24),
            deleted_retention: SignedDuration::from_hours(24),
        }
    }
}

impl Config {
    pub fn admin_key_file(&self) -> Utf8PathBuf {
        self.admin_key_file.clone().unwrap_or_else(|| self.data_dir.join("admin.key"))
    }
}

/// A configured duration; a negative one counts as its magnitude.
pub fn duration(value: SignedDuration) -> Duration {
    value.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_people_say_them() {
        let text = "data_dir = '/x'\n[database]\nurl = 'postgres:///x'\n[registry]\nlease = '1m 30s'\n";
        let dir = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::from_path_buf(dir.path().join("c.toml")).unwrap();
        std::fs::write(&path, text).unwrap();
        let config: Config = space_runtime::config::load_with(Some(&path), ENVIRONMENT_PREFIX, []).unwrap();
        assert_eq!(duration(config.registry.lease), Duration::from_secs(90));
        assert_eq!(config.admin_key_file(), "/x/admin.key");
    }
}
