//! What a sandbox leaves behind on a node when it should leave nothing: processes, namespaces, jails, cgroups,
//! FIFOs, tap devices, rows. The pool of waiting slots is not a leftover, but it must have its own size.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use anyhow::{Result, ensure};

use crate::{Server, daemons, wait};

/// How many of each resource there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftovers(pub BTreeMap<&'static str, usize>);

impl Leftovers {
    pub fn count() -> Result<Self> {
        Ok(Self(BTreeMap::from([
            ("firecracker processes", daemons::processes("firecracker")?.len()),
            ("network namespaces", entries("/run/space/netns")?),
            ("jails", entries("/var/lib/space/node/jails/firecracker")?),
            ("cgroups", directories("/sys/fs/cgroup/space.slice")?),
            ("console fifos", entries("/run/space/console")?),
        ])))
    }

    /// Waits until there is nothing but `slots` waiting slots, and no sandbox that isn't deleted.
    pub async fn none_but_pool(server: &Server, slots: usize) -> Result<()> {
        wait::until("nothing left over", Duration::from_mins(2), || async {
            let living = server.sandboxes().await?;
            ensure!(living.is_empty(), "still there: {living:?}");
            let counted = Self::count()?;
            ensure!(counted.0.values().all(|count| *count == slots), "expected {slots} of each: {counted:?}");
            Ok(())
        })
        .await
    }
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
