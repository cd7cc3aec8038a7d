//! What a sandbox leaves behind when it should leave nothing: processes, user ids, mounts, namespaces, jails (with the
//! disks in them), spools, cgroups, FIFOs, workers, and rows on both sides. The pool of waiting slots is not a leftover, but it must
//! have its own size.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    time::Duration,
};

use anyhow::{Result, ensure};
use space_api::PageQuery;
use space_types::VM_UIDS;

use crate::{
    Server,
    daemons::{self, Daemon},
    journal, wait,
};

/// Slots that a node keeps waiting, unless it is told otherwise.
const POOL: usize = 2;

/// How many of each resource there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftovers(pub BTreeMap<&'static str, usize>);

impl Leftovers {
    pub fn count() -> Result<Self> {
        let processes = daemons::processes("firecracker")?;
        let uids: BTreeSet<_> = processes.iter().filter_map(|pid| uid(*pid)).collect();
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let of_ours = |line: &&str| line.contains(" /run/space/") || line.contains(" /var/lib/space/node/");
        Ok(Self(BTreeMap::from([
            ("firecracker processes", processes.len()),
            ("user ids", uids.len()),
            ("mounts", mounts.lines().filter(of_ours).count()),
            ("rows of microVMs", journal::rows()?.1 as usize),
            ("network namespaces", entries("/run/space/netns")?),
            ("jails", entries("/var/lib/space/node/jails/firecracker")?),
            ("spools", entries("/var/lib/space/node/spools")?),
            ("cgroups", directories("/sys/fs/cgroup/space.slice")?),
            ("console fifos", entries("/run/space/console")?),
        ])))
    }

    /// Waits until there is nothing but the waiting slots, and no sandbox that isn't deleted.
    pub async fn none_but_pool(server: &Server) -> Result<()> {
        wait::until("nothing left over", Duration::from_mins(2), || async {
            let living = server.sandboxes().await?;
            ensure!(living.is_empty(), "still there: {living:?}");
            let rows = journal::rows()?.0;
            ensure!(rows == 0, "the node remembers {rows} sandboxes");
            for node in server.client.node_list(&PageQuery::default()).await?.items {
                ensure!(node.used.memory_mib == 0 && node.used.vcpus == 0, "still reserved: {node:?}");
            }
            let counted = Self::count()?;
            ensure!(counted.0.values().all(|count| *count == POOL), "expected {POOL} of each: {counted:?}");
            Ok(())
        })
        .await
    }

    /// As `none_but_pool`, and no worker either: a tenant without sandboxes loses its own after ten seconds, so this
    /// is for the end of a suite.
    pub async fn none_at_all(server: &Server) -> Result<()> {
        Self::none_but_pool(server).await?;
        wait::until("no workers", Duration::from_mins(1), || async {
            let workers = daemons::processes(Daemon::Worker.program())?.len();
            let cgroups = directories("/sys/fs/cgroup/space-workers.slice")?;
            ensure!(workers == 0 && cgroups == 0, "{workers} workers in {cgroups} cgroups");
            Ok(())
        })
        .await
    }
}

/// `None`: it ended meanwhile, or is root's, as while the jailer still works.
fn uid(pid: u32) -> Option<u32> {
    let uid = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    (uid >= VM_UIDS.first).then_some(uid)
}

fn entries(path: &str) -> Result<usize> {
    Ok(if Path::new(path).exists() { fs::read_dir(path)?.count() } else { 0 })
}

fn directories(path: &str) -> Result<usize> {
    if !Path::new(path).exists() {
        return Ok(0);
    }
    Ok(fs::read_dir(path)?.filter_map(Result::ok).filter(|entry| entry.path().is_dir()).count())
}
