//! A place that can reflink: the data directory itself where it lies on btrfs, else a sparse file with btrfs in
//! it, mounted over a loop device at the node's directory.
//!
//! It stays mounted when `space up` ends, since sandboxes run on. After a reboot it is mounted again here.

use std::{fs, process::Stdio, time::Duration};

use anyhow::{Context, bail};
use camino::Utf8Path;
use space_types::ByteSize;
use tokio::{process::Command, time::timeout};

use super::{layout::Layout, postgres::find_in_path};
use crate::doctor::is_btrfs;

const DEADLINE: Duration = Duration::from_mins(1);

/// Answers whether something had to be mounted.
pub(super) async fn ensure(layout: &Layout, size: ByteSize) -> anyhow::Result<bool> {
    if is_btrfs(&layout.node()) {
        return Ok(false);
    }
    if !layout.pool().exists() {
        make(&layout.pool(), size).await?;
    }
    let (pool, node) = (layout.pool(), layout.node());
    run("mount", &["-t", "btrfs", "-o", "loop,noatime", pool.as_str(), node.as_str()]).await?;
    if !is_btrfs(&node) {
        bail!("{pool} was mounted at {node}, and yet that is no btrfs");
    }
    Ok(true)
}

/// Made under another name first, so that an interruption leaves no half-made pool behind.
async fn make(pool: &Utf8Path, size: ByteSize) -> anyhow::Result<()> {
    let new = pool.with_extension("new");
    let file = fs::File::create(&new).with_context(|| format!("cannot make {new}"))?;
    file.set_len(size.as_bytes()).with_context(|| format!("{new} can't have {size}"))?;
    run("mkfs.btrfs", &["--quiet", "--force", new.as_str()]).await?;
    fs::rename(&new, pool).with_context(|| format!("cannot rename {new}"))
}

/// Loads kernel modules that may be needed. One that is built in, or missing, is found out about later.
pub(super) async fn load_modules() {
    if let Err(error) = run("modprobe", &["--quiet", "--all", "loop", "btrfs", "tun"]).await {
        eprintln!("space: {error:#}; going on");
    }
}

async fn run(name: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let program = find_in_path(name).with_context(|| format!("{name} is not installed"))?;
    let child = Command::new(program).args(arguments).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(DEADLINE, child).await.with_context(|| format!("{name} does not end"))??;
    if !output.status.success() {
        bail!("{name} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
