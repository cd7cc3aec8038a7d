//! A place that can reflink: the data directory itself where it lies on btrfs, else a sparse file with btrfs in
//! it, mounted over a loop device at the node's directory.
//!
//! It stays mounted when `space up` ends, since sandboxes run on. After a reboot it is mounted again here.
//!
//! The file is sparse, and what lies beside it (the database, logs, templates) fails with the sandboxes when the file
//! system below is full. So it is never made larger than that file system can hold, and the node watches both.

use std::{fs, os::unix::fs::MetadataExt, process::Stdio, time::Duration};

use anyhow::{Context, bail};
use camino::Utf8Path;
use nix::sys::statvfs::statvfs;
use space_types::ByteSize;
use tokio::{process::Command, time::timeout};

use super::{layout::Layout, postgres::find_in_path};
use crate::doctor::is_btrfs;

const DEADLINE: Duration = Duration::from_mins(1);

/// What is asked for where nobody says.
const DEFAULT_SIZE: ByteSize = ByteSize::gib(32);
/// For the database, templates and logs beside the pool.
const BESIDE: ByteSize = ByteSize::gib(4);
/// Less holds no base template with a disk or two.
const SMALLEST: ByteSize = ByteSize::gib(4);

/// Sees to the pool, made with `size` if there is none yet. Answers whether something had to be mounted.
pub(super) async fn ensure(layout: &Layout, size: Option<ByteSize>) -> anyhow::Result<bool> {
    if layout.pool().exists() {
        warn_of_shortage(&layout.pool())?;
    }
    if is_btrfs(&layout.node()) {
        return Ok(false);
    }
    if !layout.pool().exists() {
        make(&layout.pool(), fit(size, free(&layout.data)?)?).await?;
    }
    let (pool, node) = (layout.pool(), layout.node());
    run("mount", &["-t", "btrfs", "-o", "loop,noatime", pool.as_str(), node.as_str()]).await?;
    if !is_btrfs(&node) {
        bail!("{pool} was mounted at {node}, and yet that is no btrfs");
    }
    Ok(true)
}

/// How large a pool may be on a file system with so much `free`. A size that was asked for is kept or refused.
fn fit(asked: Option<ByteSize>, free: ByteSize) -> anyhow::Result<ByteSize> {
    let most = ByteSize::bytes(free.as_bytes().saturating_sub(BESIDE.as_bytes()));
    match asked {
        Some(size) if size > most => bail!(
            "a pool of {size} does not fit: {free} are free, and {BESIDE} of them are for what lies beside it. \
             Free some, choose another --data, or a smaller --pool-size"
        ),
        Some(size) => Ok(size),
        None if most < SMALLEST => bail!(
            "there is no room for a pool: {free} are free, and it takes {SMALLEST}, and {BESIDE} for what lies \
             beside it. Free some, or choose another --data"
        ),
        None if most < DEFAULT_SIZE => {
            eprintln!("space: the pool gets {most} rather than {DEFAULT_SIZE}: {free} are free");
            Ok(most)
        }
        None => Ok(DEFAULT_SIZE),
    }
}

/// What a pool can't grow by although it may: its file has `size`, of which `allocated` are on the disk.
fn shortage(size: ByteSize, allocated: ByteSize, free: ByteSize) -> ByteSize {
    let growth = size.as_bytes().saturating_sub(allocated.as_bytes());
    ByteSize::bytes(growth.saturating_sub(free.as_bytes()))
}

/// An older pool, beside which something else has grown. Sandboxes are in it, so it is no reason not to start.
fn warn_of_shortage(pool: &Utf8Path) -> anyhow::Result<()> {
    let meta = fs::metadata(pool).with_context(|| format!("cannot look at {pool}"))?;
    let (size, allocated) = (ByteSize::bytes(meta.len()), ByteSize::bytes(meta.blocks().saturating_mul(512)));
    let free = free(pool)?;
    let lacking = shortage(size, allocated, free);
    if lacking > ByteSize::default() {
        eprintln!(
            "space: {pool} may grow to {size}, and the disk that it lies on has {lacking} too little for that \
             ({free} free). Free some; no sandbox is made once its reserve is reached"
        );
    }
    Ok(())
}

fn free(path: &Utf8Path) -> anyhow::Result<ByteSize> {
    let stat =
        statvfs(path.as_std_path()).with_context(|| format!("cannot see how much is free at {path}"))?;
    Ok(ByteSize::bytes(stat.blocks_available().saturating_mul(stat.fragment_size())))
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

#[cfg(test)]
mod tests {
    use super::*;

    const fn gib(gib: u64) -> ByteSize {
        ByteSize::gib(gib)
    }

    #[test]
    fn a_pool_leaves_room_for_what_lies_beside_it() {
        assert_eq!(fit(None, gib(100)).unwrap(), gib(32));
        assert_eq!(fit(None, gib(20)).unwrap(), gib(16));
        assert_eq!(fit(Some(gib(96)), gib(100)).unwrap(), gib(96));
    }

    #[test]
    fn a_size_that_was_asked_for_is_refused_rather_than_shrunk() {
        let error = fit(Some(gib(97)), gib(100)).unwrap_err().to_string();
        assert!(error.contains("does not fit") && error.contains("--pool-size"), "{error}");
    }

    #[test]
    fn a_disk_that_is_too_small_for_any_pool_is_refused() {
        let error = fit(None, gib(7)).unwrap_err().to_string();
        assert!(error.contains("no room for a pool"), "{error}");
        fit(None, ByteSize::default()).unwrap_err();
    }

    #[test]
    fn a_pool_that_may_outgrow_its_disk_is_told_of() {
        assert_eq!(shortage(gib(32), gib(10), gib(20)), gib(2));
        assert_eq!(shortage(gib(32), gib(10), gib(22)), ByteSize::default());
        // Metadata of the file may make it take more than its size.
        assert_eq!(shortage(gib(32), gib(33), ByteSize::default()), ByteSize::default());
    }
}
