//! `target/space/bin/`: the release binaries.
//!
//! They are built for the machine's own C library. The emulated host is a Debian 12, so a machine with a
//! newer one builds for musl instead, which is static: slower at allocating, and the same everywhere.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};

use crate::{exec, paths};

/// Package and binary of every program that is shipped.
const PROGRAMS: [(&str, &str); 5] = [
    ("space-cli", "space"),
    ("space-control", "space-controld"),
    ("space-edge", "space-edged"),
    ("space-node", "space-noded"),
    ("space-sandbox", "space-sandboxd"),
];

/// Debian 12's.
const HOST_GLIBC: (u32, u32) = (2, 36);

const MUSL: &str = "x86_64-unknown-linux-musl";

/// Builds the release binaries and returns the directory that they are in.
pub(crate) fn ready() -> Result<Utf8PathBuf> {
    let target = target()?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "--bins"]).current_dir(paths::root());
    for (package, _) in PROGRAMS {
        cargo.args(["--package", package]);
    }
    if let Some(target) = target {
        cargo.args(["--target", target]);
    }
    exec::passed_through(&mut cargo).context("the release binaries")?;
    let from = paths::target().join(target.unwrap_or_default()).join("release");
    let bin = paths::bin();
    fs::create_dir_all(&bin)?;
    for (_, program) in PROGRAMS {
        copy(&from.join(program), &bin.join(program))?;
    }
    Ok(bin)
}

/// Where binaries that run inside the host must be built for; `None` is the machine's own.
pub(crate) fn target() -> Result<Option<&'static str>> {
    let version = exec::output(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
    Ok((glibc(&version).is_none_or(|have| have > HOST_GLIBC)).then_some(MUSL))
}

fn glibc(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Copies without debug information: what travels into the host should be small.
pub(crate) fn copy(from: &Utf8Path, to: &Utf8Path) -> Result<()> {
    let part = to.with_extension("part");
    exec::output(Command::new("strip").args(["--strip-debug", "-o"]).arg(&part).arg(from))?;
    fs::rename(&part, to).with_context(|| format!("cannot rename to {to}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(glibc("glibc 2.9") < glibc("glibc 2.36"));
        assert_eq!(glibc("musl 1.2"), None);
    }
}
