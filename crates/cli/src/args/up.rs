//! Arguments of `space up`.

use std::net::SocketAddr;

use camino::Utf8PathBuf;
use clap::Args;

#[derive(Debug, Clone, Args)]
pub(crate) struct UpArgs {
    /// Database, images, disks and keys
    #[arg(long, value_name = "DIR", default_value = "/var/lib/space")]
    pub(crate) data: Utf8PathBuf,
    /// Sockets, namespaces and configuration; need not survive a reboot
    #[arg(long, value_name = "DIR", default_value = "/run/space")]
    pub(crate) run: Utf8PathBuf,
    /// Kernel, agent, Firecracker and templates [default: share/space beside the programs' directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) assets: Option<Utf8PathBuf>,
    /// Where the API listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8700")]
    pub(crate) listen: SocketAddr,
    /// Where the edge listens, which serves ports of sandboxes
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8710")]
    pub(crate) edge_listen: SocketAddr,
    /// The domain under which ports are reached, as `<port>-<id>.<domain>`
    #[arg(long, value_name = "NAME", default_value = "localhost")]
    pub(crate) domain: String,
    /// Size of the pool file, where the data directory is not on btrfs [default: 32, or what the disk can hold]
    #[arg(long, value_name = "GIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(crate) pool_size: Option<u64>,
    /// VMs to keep spawned and waiting
    #[arg(long, value_name = "COUNT")]
    pub(crate) spare_vms: Option<u32>,
    /// Leave out the check of the machine
    #[arg(long)]
    pub(crate) skip_doctor: bool,
}
