//! What an operator can set: a TOML file, and `SPACE_NODED__<KEY>` variables over it.

use std::{net::SocketAddr, time::Duration};

use camino::{Utf8Path, Utf8PathBuf};
use serde::Deserialize;
use space_enrol::ControlConfig;
use space_types::{ByteSize, UidRange, VM_UIDS, WORKER_UIDS};

use crate::disk::Room;

/// Everything the daemon needs to know before it starts.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// What the operator calls this node; unique in the installation.
    pub name: String,
    /// Images, jails, journal and identity. On a file system that can reflink (btrfs).
    #[serde(default = "default_data_dir")]
    pub data_dir: Utf8PathBuf,
    /// A directory of the file system that holds `data_dir`'s, where that is in a file: no sandbox is made when
    /// either has less left than the reserve.
    pub backing_dir: Option<Utf8PathBuf>,
    /// Namespaces and console FIFOs; need not survive a reboot.
    #[serde(default = "default_run_dir")]
    pub run_dir: Utf8PathBuf,
    pub control: ControlConfig,
    pub firecracker: FirecrackerConfig,
    /// Where the Node service listens.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// `host:port` under which control reaches `listen`; by default the same.
    pub advertise: Option<String>,
    /// The address that workers listen on, with a port each; control reaches them at the same one.
    #[serde(default = "default_worker_ip")]
    pub worker_ip: std::net::IpAddr,
    /// `/metrics` and `/healthz`, in plain HTTP. None where it is not set.
    pub metrics_listen: Option<SocketAddr>,
    /// The `space-sandboxd` executable.
    pub worker: Utf8PathBuf,
    /// Users of VMs: one a slot, so there are as many slots as users.
    #[serde(default = "default_vm_uids")]
    pub vm_uids: UidRange,
    /// Users of workers: one a tenant.
    #[serde(default = "default_worker_uids")]
    pub worker_uids: UidRange,
    /// Parent of the VMs' cgroups, relative to the root of the hierarchy.
    #[serde(default = "default_vm_cgroup")]
    pub vm_cgroup: String,
    /// Parent of the workers' cgroups.
    #[serde(default = "default_worker_cgroup")]
    pub worker_cgroup: String,
    /// VMs kept spawned and waiting.
    #[serde(default = "default_pool")]
    pub pool: usize,
    #[serde(default)]
    pub capacity: CapacityConfig,
    #[serde(default)]
    pub deadlines: DeadlineConfig,
    #[serde(default)]
    pub telemetry: space_runtime::telemetry::TelemetryConfig,
}

/// The VMM, pinned by content.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirecrackerConfig {
    /// Its file name must be `firecracker`: the jailer names directories after it.
    pub binary: Utf8PathBuf,
    #[serde(default = "default_firecracker_sha256")]
    pub binary_sha256: String,
    pub jailer: Utf8PathBuf,
    #[serde(default = "default_jailer_sha256")]
    pub jailer_sha256: String,
    /// The guest's kernel and the initramfs that holds the agent.
    pub kernel: Utf8PathBuf,
    pub initramfs: Utf8PathBuf,
}

/// What the node offers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CapacityConfig {
    /// vCPUs, overcommit included; 0: four for each processor.
    pub vcpus: u32,
    /// Memory for sandboxes, overhead included; 0: what the machine has, less an eighth and 512 MiB.
    pub memory_mib: u64,
    /// What Firecracker itself may use on top of a guest's memory.
    pub overhead_mib: u64,
    /// Free space below which no sandbox is made.
    pub disk_reserve_mib: u64,
    /// No disk may be larger.
    pub max_disk_gib: u64,
}

/// How long the node waits for what, in milliseconds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeadlineConfig {
    /// From the guest's start to its agent's first answer.
    pub boot_ms: u64,
    /// One request to Firecracker, or its API socket to answer after the spawn.
    pub firecracker_ms: u64,
    /// A worker to say that it is configured.
    pub worker_ms: u64,
    /// One call to control.
    pub control_ms: u64,
    /// A connection to a guest's vsock.
    pub vsock_ms: u64,
    /// For a worker's hint after a VM ended without one.
    pub hint_ms: u64,
    /// How long a worker without sandboxes stays.
    pub worker_idle_ms: u64,
    /// Between heartbeats.
    pub heartbeat_ms: u64,
    /// For calls in flight when the daemon stops.
    pub shutdown_ms: u64,
}

impl Default for CapacityConfig {
    fn default() -> Self {
        Self { vcpus: 0, memory_mib: 0, overhead_mib: 64, disk_reserve_mib: 1024, max_disk_gib: 64 }
    }
}

impl Default for DeadlineConfig {
    fn default() -> Self {
        Self {
            boot_ms: 60_000,
            firecracker_ms: 30_000,
            worker_ms: 30_000,
            control_ms: 10_000,
            vsock_ms: 2_000,
            hint_ms: 1_000,
            worker_idle_ms: 10_000,
            heartbeat_ms: 3_000,
            shutdown_ms: 10_000,
        }
    }
}

impl DeadlineConfig {
    pub(crate) fn boot(&self) -> Duration {
        Duration::from_millis(self.boot_ms)
    }
    pub(crate) fn firecracker(&self) -> Duration {
        Duration::from_millis(self.firecracker_ms)
    }
    pub(crate) fn worker(&self) -> Duration {
        Duration::from_millis(self.worker_ms)
    }
    pub(crate) fn control(&self) -> Duration {
        Duration::from_millis(self.control_ms)
    }
    pub(crate) fn vsock(&self) -> Duration {
        Duration::from_millis(self.vsock_ms)
    }
    pub(crate) fn hint(&self) -> Duration {
        Duration::from_millis(self.hint_ms)
    }
    pub(crate) fn worker_idle(&self) -> Duration {
        Duration::from_millis(self.worker_idle_ms)
    }
    pub(crate) fn heartbeat(&self) -> Duration {
        Duration::from_millis(self.heartbeat_ms)
    }
}

impl CapacityConfig {
    pub(crate) fn overhead(&self) -> ByteSize {
        ByteSize::mib(self.overhead_mib)
    }
    pub(crate) fn disk_reserve(&self) -> ByteSize {
        ByteSize::mib(self.disk_reserve_mib)
    }
    pub(crate) fn max_disk(&self) -> ByteSize {
        ByteSize::gib(self.max_disk_gib)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(transparent)]
    Load(#[from] space_runtime::config::ConfigError),
    #[error("{field}: {problem}")]
    Invalid { field: &'static str, problem: String },
}

/// Environment variables that set keys begin with this.
const PREFIX: &str = "SPACE_NODED";

impl NodeConfig {
    /// Reads the file at `path` and the environment over it, and checks the result.
    pub fn load(path: Option<&Utf8Path>) -> Result<Self, ConfigError> {
        let config: Self = space_runtime::config::load(path, PREFIX)?;
        config.check()?;
        Ok(config)
    }

    /// Where images and disks go.
    pub(crate) fn room(&self) -> Room {
        Room::new(self.data_dir.clone(), self.backing_dir.clone())
    }

    /// What `advertise` says, or the listening address.
    pub fn advertised(&self) -> String {
        self.advertise.clone().unwrap_or_else(|| self.listen.to_string())
    }

    /// The name or address in it.
    pub(crate) fn advertised_host(&self) -> String {
        let address = self.advertised();
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _port)| host);
        host.trim_matches(['[', ']']).to_owned()
    }

    fn check(&self) -> Result<(), ConfigError> {
        let invalid = |field, problem: &str| Err(ConfigError::Invalid { field, problem: problem.to_owned() });
        for (field, range) in [("vm_uids", self.vm_uids), ("worker_uids", self.worker_uids)] {
            if range.first < 1000 || range.count == 0 || range.first.checked_add(range.count).is_none() {
                return invalid(field, "begins at 1000 or above, and holds at least one user");
            }
        }
        if self.vm_uids.overlaps(self.worker_uids) {
            return invalid("worker_uids", "overlaps vm_uids");
        }
        if self.firecracker.binary.file_name() != Some("firecracker") {
            return invalid("firecracker.binary", "its file name must be `firecracker`");
        }
        for (field, path) in
            [("data_dir", &self.data_dir), ("run_dir", &self.run_dir), ("worker", &self.worker)]
        {
            if !path.is_absolute() {
                return invalid(field, "must be an absolute path");
            }
        }
        if self.backing_dir.as_ref().is_some_and(|path| !path.is_absolute()) {
            return invalid("backing_dir", "must be an absolute path");
        }
        for (field, name) in [("vm_cgroup", &self.vm_cgroup), ("worker_cgroup", &self.worker_cgroup)] {
            if name.is_empty() || name.contains('/') || name.starts_with('.') {
                return invalid(field, "is one directory name");
            }
        }
        if self.vm_cgroup == self.worker_cgroup {
            return invalid("worker_cgroup", "must differ from vm_cgroup");
        }
        Ok(())
    }
}

fn default_data_dir() -> Utf8PathBuf {
    "/var/lib/space/node".into()
}
fn default_run_dir() -> Utf8PathBuf {
    "/run/space".into()
}
fn default_listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 8702))
}
fn default_worker_ip() -> std::net::IpAddr {
    std::net::Ipv4Addr::LOCALHOST.into()
}
fn default_vm_uids() -> UidRange {
    VM_UIDS
}
fn default_worker_uids() -> UidRange {
    WORKER_UIDS
}
fn default_vm_cgroup() -> String {
    "space.slice".to_owned()
}
fn default_worker_cgroup() -> String {
    "space-workers.slice".to_owned()
}
fn default_pool() -> usize {
    2
}
fn default_firecracker_sha256() -> String {
    "b99ea49b8d8b7bfa307d3845585d6a97f7642aa17a985749900370070d8ca930".to_owned()
}
fn default_jailer_sha256() -> String {
    "86622337f91df329cca72bb21cd1324fb8b6fa47931601d65ee4b2c72ef2cae5".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALLEST: &str = r#"
        name = "one"
        worker = "/usr/libexec/space-sandboxd"
        [control]
        url = "https://127.0.0.1:8701"
        [firecracker]
        binary = "/usr/libexec/firecracker"
        jailer = "/usr/libexec/jailer"
        kernel = "/usr/share/space/vmlinux"
        initramfs = "/usr/share/space/initramfs.img"
    "#;

    fn parse(text: &str) -> Result<NodeConfig, ConfigError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        NodeConfig::load(Utf8Path::from_path(file.path()))
    }

    #[test]
    fn the_smallest_configuration_is_enough() {
        let config = parse(SMALLEST).unwrap();
        assert_eq!((config.pool, config.advertised().as_str()), (2, "127.0.0.1:8702"));
    }

    #[test]
    fn an_unknown_field_is_named() {
        let error = parse(&format!("pol = 3\n{SMALLEST}")).unwrap_err();
        assert!(format!("{error:?}").contains("pol"), "{error:?}");
    }

    #[test]
    fn the_file_system_below_the_pool_is_named_by_an_absolute_path() {
        let with = |path: &str| parse(&format!("backing_dir = \"{path}\"\n{SMALLEST}"));
        assert_eq!(
            with("/var/lib/space").unwrap().backing_dir.as_deref(),
            Some(Utf8Path::new("/var/lib/space"))
        );
        assert!(matches!(with("space"), Err(ConfigError::Invalid { field: "backing_dir", .. })));
    }

    #[test]
    fn overlapping_users_are_refused() {
        let first = WORKER_UIDS.first - 1;
        let text = format!("vm_uids = {{ first = {first}, count = 2 }}\n{SMALLEST}");
        assert!(matches!(parse(&text), Err(ConfigError::Invalid { field: "worker_uids", .. })));
    }
}
