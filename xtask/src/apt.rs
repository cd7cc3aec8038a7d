//! Debian packages by way of the machine's own apt configuration: no host name is written down here.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};

use crate::cache::{self, Inputs};
use crate::exec;

/// Where a Debian release comes from, as one-line `sources.list` entries.
///
/// `SPACE_DEBIAN_MIRROR` decides; else the machine's own sources for that release; else nothing, which
/// leaves the choice to mmdebstrap.
pub(crate) fn debian_sources(suite: &str) -> Result<Vec<String>> {
    const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let mut mirrors = Vec::new();
    if let Ok(mirror) = std::env::var("SPACE_DEBIAN_MIRROR") {
        mirrors.push((mirror, suite.to_owned()));
    } else {
        for (uri, found) in configured()? {
            let ours =
                found == suite || found == format!("{suite}-updates") || found == format!("{suite}-security");
            if ours && uri.trim_end_matches('/').contains("/debian") {
                mirrors.push((uri, found));
            }
        }
    }
    mirrors.sort();
    mirrors.dedup();
    Ok(mirrors
        .into_iter()
        .map(|(uri, suite)| format!("deb [signed-by={KEYRING}] {uri} {suite} main"))
        .collect())
}

/// Every (URI, suite) that this machine's apt knows.
pub(crate) fn configured() -> Result<Vec<(String, String)>> {
    let text = exec::output(Command::new("apt-get").args([
        "indextargets",
        "--no-release-info",
        "--format",
        "$(REPO_URI) $(RELEASE)",
        "Created-By: Packages",
    ]))?;
    let mut all: Vec<(String, String)> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(uri, suite)| (uri.to_owned(), suite.to_owned()))
        .collect();
    all.sort();
    all.dedup();
    Ok(all)
}

/// The version that apt would install of `package`.
pub(crate) fn candidate(package: &str) -> Result<String> {
    let text = exec::output(Command::new("apt-cache").args(["policy", package]))?;
    let version = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Candidate: "))
        .filter(|version| *version != "(none)")
        .with_context(|| format!("apt knows no package {package}; run `apt-get update`"))?;
    Ok(version.to_owned())
}

/// What `package` depends on first: the real package behind a meta package.
pub(crate) fn first_dependency(package: &str) -> Result<String> {
    let text = exec::output(Command::new("apt-cache").args(["depends", package]))?;
    let name = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "))
        .with_context(|| format!("{package} depends on nothing"))?;
    Ok(name.to_owned())
}

/// Downloads `package` and returns its unpacked tree, without installing anything.
pub(crate) fn unpacked(package: &str) -> Result<Utf8PathBuf> {
    let version = candidate(package)?;
    let inputs = Inputs::new("deb", 1).text(package).text(&version);
    cache::entry("deb", inputs, |dir| unpack(package, dir))
}

fn unpack(package: &str, dir: &Utf8Path) -> Result<()> {
    // apt drops its privileges to fetch, and says so at length where it can't write.
    let fetched = dir.join("fetched");
    fs::create_dir(&fetched)?;
    exec::logged(
        &format!("downloading {package}"),
        "apt-download",
        Command::new("apt-get")
            .args(["-o", "APT::Sandbox::User=root", "download", package])
            .current_dir(&fetched),
    )?;
    let archive = fs::read_dir(&fetched)?
        .next()
        .transpose()?
        .with_context(|| format!("apt-get downloaded no {package}"))?;
    let status = Command::new("dpkg-deb")
        .arg("-x")
        .arg(archive.path())
        .arg(dir)
        .status()
        .context("cannot run dpkg-deb")?;
    if !status.success() {
        bail!("dpkg-deb ended with {status}");
    }
    cache::remove_dir(&fetched)
}
