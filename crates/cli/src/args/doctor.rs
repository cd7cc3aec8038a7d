//! Arguments of `space doctor`.

use camino::Utf8PathBuf;
use clap::Args;

#[derive(Debug, Clone, Args)]
pub(crate) struct DoctorArgs {
    /// The data directory that `space up` would use
    #[arg(long, value_name = "DIR", default_value = "/var/lib/space")]
    pub(crate) data: Utf8PathBuf,
    /// Kernel, agent and Firecracker for the probe guest [default: share/space beside the programs' directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) assets: Option<Utf8PathBuf>,
    /// How long the probe guest may take
    #[arg(long, value_name = "SECONDS", default_value_t = 90)]
    pub(crate) deadline: u64,
}
