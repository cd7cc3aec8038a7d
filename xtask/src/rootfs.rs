//! Debian root filesystems as archives, and disk images made out of them.
//!
//! mmdebstrap makes the archive: as root directly, else in a user namespace. The image step runs as root
//! or under fakeroot; neither mounts anything or needs a loop device.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};

use crate::cache::{self, Inputs};
use crate::{apt, exec};

/// The Debian release of everything we make.
pub(crate) const SUITE: &str = "bookworm";

/// The words of a list file: one a line, `#` starts a comment.
pub(crate) fn list(path: &Utf8Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    Ok(text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect())
}

/// The archive of a minimal Debian with `packages`, after `hook` ran in it (a shell line; `"$1"` is the
/// root directory).
pub(crate) fn archive(name: &str, packages: &[String], hook: &str) -> Result<Utf8PathBuf> {
    let packages = packages.join(",");
    let inputs = Inputs::new("rootfs", 1).text(SUITE).text(&packages).text(hook);
    let entry = cache::entry("rootfs", inputs, |dir| {
        // The archive is written by whoever mmdebstrap turns into, so it goes through our own stdout.
        let output = fs::File::create(dir.join("rootfs.tar"))?;
        let mut command = Command::new("mmdebstrap");
        command
            .args(["--variant=minbase", "--format=tar", "--quiet"])
            .arg(format!("--include={packages}"))
            .arg("--aptopt=APT::Install-Recommends \"false\"")
            .arg("--dpkgopt=force-unsafe-io")
            .arg("--dpkgopt=path-exclude=/usr/share/man/*")
            .arg("--dpkgopt=path-exclude=/usr/share/locale/*")
            .arg("--dpkgopt=path-exclude=/usr/share/doc/*")
            .arg("--dpkgopt=path-include=/usr/share/doc/*/copyright")
            .env("SOURCE_DATE_EPOCH", EPOCH)
            .env_remove("TMPDIR");
        if !hook.is_empty() {
            command.arg(format!("--customize-hook={hook}"));
        }
        command.args([SUITE, "-"]).args(apt::debian_sources(SUITE)?);
        exec::logged_to(
            &format!("{name}: installing Debian ({SUITE})"),
            &format!("mmdebstrap-{name}"),
            &mut command,
            output,
        )
    })?;
    Ok(entry.join("rootfs.tar"))
}

/// The time that files made by our own steps carry.
pub(crate) const EPOCH: &str = "1750000000";

/// A command that sees itself as root: `program` as it is for root, under fakeroot for everybody else.
pub(crate) fn as_root(program: &Utf8Path) -> Command {
    let mut command;
    if rustix::process::geteuid().is_root() {
        command = Command::new(program);
    } else {
        command = Command::new("fakeroot");
        command.arg("--").arg(program);
    }
    command
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("SOURCE_DATE_EPOCH", EPOCH)
        .env("E2FSPROGS_FAKE_TIME", EPOCH);
    command
}
