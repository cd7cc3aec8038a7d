//! Debian packages by way of the machine's own apt configuration: no host name is written down here.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
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
            if ours && is_debian(&uri) {
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

/// The versions of `package` that apt can download, the newest first; none of a package that it doesn't know.
pub(crate) fn versions(package: &str) -> Result<Vec<String>> {
    Ok(parse_madison(&exec::output(Command::new("apt-cache").args(["madison", package]))?))
}

/// `package | version | where`, a line each.
fn parse_madison(text: &str) -> Vec<String> {
    let version = |line: &str| Some(line.split('|').nth(1)?.trim().to_owned());
    let mut versions: Vec<String> = text.lines().filter_map(version).collect();
    versions.dedup();
    versions
}

/// What `package` depends on first: the real package behind a meta package. `None` where apt doesn't know it.
pub(crate) fn first_dependency(package: &str) -> Option<String> {
    let text = exec::output(Command::new("apt-cache").args(["depends", package])).ok()?;
    text.lines().find_map(|line| line.trim().strip_prefix("Depends: ")).map(str::to_owned)
}

/// Downloads `version` of `package` and returns its unpacked tree, without installing anything.
pub(crate) fn unpacked(package: &str, version: &str) -> Result<Utf8PathBuf> {
    let inputs = Inputs::new("deb", 1).text(package).text(version);
    cache::entry("deb", inputs, |dir| unpack(package, version, dir))
}

fn unpack(package: &str, version: &str, dir: &Utf8Path) -> Result<()> {
    // apt drops its privileges to fetch, and says so at length where it can't write.
    let fetched = dir.join("fetched");
    fs::create_dir(&fetched)?;
    exec::logged(
        &format!("downloading {package} {version}"),
        "apt-download",
        Command::new("apt-get")
            .args(["-o", "APT::Sandbox::User=root", "download"])
            .arg(format!("{package}={version}"))
            .current_dir(&fetched),
    )?;
    let archive = fetched
        .read_dir_utf8()?
        .next()
        .transpose()?
        .with_context(|| format!("apt-get downloaded no {package}"))?;
    extract(archive.path(), dir)?;
    cache::remove_dir(&fetched)
}

/// Unpacks the files of a package into `dir`.
pub(crate) fn extract(archive: &Utf8Path, dir: &Utf8Path) -> Result<()> {
    exec::output(Command::new("dpkg-deb").arg("-x").args([archive, dir])).map(drop)
}

/// The addresses of Debian archives that this machine knows: `SPACE_DEBIAN_MIRROR`, else apt's.
pub(crate) fn debian_archives() -> Result<Vec<String>> {
    if let Ok(mirror) = std::env::var("SPACE_DEBIAN_MIRROR") {
        return Ok(vec![mirror]);
    }
    let mut uris: Vec<String> =
        configured()?.into_iter().map(|(uri, _)| uri).filter(|uri| is_debian(uri)).collect();
    uris.dedup();
    Ok(uris)
}

fn is_debian(uri: &str) -> bool {
    uri.trim_end_matches('/').contains("/debian")
}

/// Files of a package of Debian's release `suite` on a machine whose own distribution doesn't have it. mmdebstrap
/// checks its signature, and knows a mirror where neither apt nor `SPACE_DEBIAN_MIRROR` names one. `wanted` are paths in the
/// package; a newer version is fetched when `key` changes.
pub(crate) fn foreign(suite: &str, package: &str, wanted: &[&str], key: &str) -> Result<Utf8PathBuf> {
    let inputs = Inputs::new("foreign-deb", 1).text(suite).text(package).text(&wanted.join(" ")).text(key);
    cache::entry("foreign-deb", inputs, |dir| {
        let archive = dir.join("extract.tar");
        exec::logged_to(
            &format!("downloading {package} of Debian ({suite})"),
            "foreign-deb",
            Command::new("mmdebstrap")
                .args(["--variant=extract", "--format=tar", "--quiet"])
                .arg("--aptopt=APT::Install-Recommends \"false\"")
                .arg(format!("--include={package}"))
                .env_remove("TMPDIR")
                .args([suite, "-"])
                .args(debian_sources(suite)?),
            fs::File::create(&archive)?,
        )?;
        let members = wanted.iter().map(|path| format!("./{path}"));
        exec::output(
            Command::new("tar")
                .args(["--no-same-owner", "-xf"])
                .arg(&archive)
                .arg("-C")
                .arg(dir)
                .args(members),
        )?;
        fs::remove_file(&archive).with_context(|| format!("cannot remove {archive}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_that_apt_can_download_are_read_in_its_order() {
        let text = " pkg | 6.1.9-1 | http://one bookworm/main amd64 Packages\n \
                    pkg | 6.1.8-1 | http://one bookworm/main amd64 Packages\n";
        assert_eq!(parse_madison(text), ["6.1.9-1", "6.1.8-1"]);
        assert!(parse_madison("").is_empty());
    }
}
