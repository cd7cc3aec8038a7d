//! The initramfs: `space-guestd` as `/init`, the console, and mount points.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};

use crate::cache;
use crate::cpio::Archive;
use crate::{exec, paths};

const TARGET: &str = "x86_64-unknown-linux-musl";

/// Builds the agent and writes `initramfs.cpio` beside the other assets.
pub(crate) fn ready() -> Result<Utf8PathBuf> {
    let agent = agent()?;
    let binary = fs::read(&agent).with_context(|| format!("cannot read {agent}"))?;
    let path = paths::space().join("initramfs.cpio");
    cache::write_atomic(&path, &archive(&binary))?;
    Ok(path)
}

/// The static agent, built.
pub(crate) fn agent() -> Result<Utf8PathBuf> {
    exec::passed_through(
        Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--profile", "guest", "--target", TARGET])
            .args(["--package", "space-guest"])
            .current_dir(paths::root()),
    )
    .context("the guest agent")?;
    Ok(paths::target().join(TARGET).join("guest/space-guestd"))
}

fn archive(agent: &[u8]) -> Vec<u8> {
    ["dev", "proc", "sys", "newroot"]
        .into_iter()
        .fold(Archive::default(), |archive, dir| archive.directory(dir, 0o755))
        .character_device("dev/console", 0o600, (5, 1))
        .file("init", 0o755, agent)
        .finish()
}

/// Says what there is.
pub(crate) fn describe(path: &Utf8Path) -> Result<()> {
    let size = fs::metadata(path)?.len();
    println!("{path}\n{} KiB", size >> 10);
    Ok(())
}
