//! Where the guest kernel's source comes from.
//!
//! | tried in this order | checked by |
//! |---|---|
//! | what `SPACE_KERNEL_SOURCE` names, a path or a URL | `SPACE_KERNEL_SOURCE_SHA256`, else the pinned hashes |
//! | the mirror below the URL `SPACE_KERNEL_MIRROR` | the pinned hashes |
//! | Debian's package: installed, by way of apt, in the pool of a Debian archive | the pinned hashes |
//! | a newer package of the same series, by way of apt, loudly | Debian's signature |
//! | the same of Debian's release that we build from, on a machine of another one | pinned hashes or signature |
//!
//! Debian replaces its package with each point release, and a fresh clone must not break by that. Whatever the
//! tarball, its hash is part of the key that the kernel is cached under.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use serde::Deserialize;

use crate::cache::{self, Inputs};
use crate::{apt, exec, rootfs};

/// `images/guest-kernel/source.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    pub(crate) package: String,
    pub(crate) tarball: Utf8PathBuf,
    pub(crate) licence: String,
    pub(crate) accepted: Vec<Accepted>,
}

/// A tarball that we build from.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Accepted {
    pub(crate) version: String,
    pub(crate) sha256: String,
    /// Its name on a mirror; by default the one that it has in Debian's package.
    pub(crate) file: Option<String>,
}

/// A tarball at hand.
#[derive(Debug)]
pub(crate) struct Tarball {
    pub(crate) path: Utf8PathBuf,
    pub(crate) known: Accepted,
}

/// What to do where nothing is found.
const ELSEWHERE: &str = "SPACE_KERNEL_SOURCE names a tarball (a path or a URL), SPACE_KERNEL_MIRROR a URL below which \
     the pinned ones lie, SPACE_DEBIAN_MIRROR a Debian archive";

/// Whether somebody names a tarball, so that none that was built before will do.
pub(crate) fn is_named() -> bool {
    std::env::var_os("SPACE_KERNEL_SOURCE").is_some()
}

impl Source {
    pub(crate) fn read(path: &Utf8Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("no {path}"))?;
        toml::from_str(&text).with_context(|| format!("in {path}"))
    }

    /// The first pinned version among those that are `offered`.
    fn pinned_of(&self, offered: &[String]) -> Option<&Accepted> {
        self.accepted.iter().find(|pinned| offered.contains(&pinned.version))
    }

    /// The newest version that is `offered`, of the pinned ones' series and newer than all of them.
    fn newer_of<'a>(&self, offered: &'a [String]) -> Option<&'a String> {
        let newest = self.accepted.iter().map(|pinned| numbers(&pinned.version)).max()?;
        let fits = |version: &&String| {
            let found = numbers(version);
            found.get(..2) == newest.get(..2) && found > newest
        };
        offered.iter().filter(fits).max_by_key(|version| numbers(version))
    }

    /// Where the pinned packages lie in an archive, and in one for security updates.
    fn pool_urls(&self, archive: &str, version: &str) -> [String; 2] {
        let archive = archive.trim_end_matches('/');
        ["pool/main", "pool/updates/main"]
            .map(|pool| format!("{archive}/{pool}/l/linux/{}_{version}_all.deb", self.package))
    }

    fn mirror_url(&self, mirror: &str, pinned: &Accepted) -> String {
        let name = pinned.file.as_deref().or(self.tarball.file_name()).unwrap_or_default();
        format!("{}/{name}", mirror.trim_end_matches('/'))
    }
}

/// The numbers in a version, which order it within its series: `6.1.192-3` is (6, 1, 192, 3).
fn numbers(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

/// A source tarball that may be built from, and which one it is.
pub(crate) fn tarball(source: &Source) -> Result<Tarball> {
    if let Ok(place) = std::env::var("SPACE_KERNEL_SOURCE") {
        let sha256 = std::env::var("SPACE_KERNEL_SOURCE_SHA256").ok();
        return named(&place, &allowed(source, sha256));
    }
    if let Ok(mirror) = std::env::var("SPACE_KERNEL_MIRROR") {
        return mirrored(source, &mirror);
    }
    if let Ok(installed) = check(&Utf8Path::new("/").join(&source.tarball), &source.accepted) {
        return Ok(installed);
    }
    packaged(source).context(ELSEWHERE)
}

/// A hash that somebody gave stands alone.
fn allowed(source: &Source, sha256: Option<String>) -> Vec<Accepted> {
    match sha256 {
        Some(sha256) => vec![Accepted { version: "custom".to_owned(), sha256, file: None }],
        None => source.accepted.clone(),
    }
}

fn named(place: &str, allowed: &[Accepted]) -> Result<Tarball> {
    if place.contains("://") { download(place, allowed) } else { check(place.into(), allowed) }
}

fn mirrored(source: &Source, mirror: &str) -> Result<Tarball> {
    let mut failure = anyhow::anyhow!("no version is pinned");
    for pinned in &source.accepted {
        match download(&source.mirror_url(mirror, pinned), std::slice::from_ref(pinned)) {
            Ok(tarball) => return Ok(tarball),
            Err(error) => failure = error,
        }
    }
    Err(failure.context("SPACE_KERNEL_MIRROR has none of the pinned kernel sources"))
}

fn packaged(source: &Source) -> Result<Tarball> {
    let offered = apt::versions(&source.package)?;
    if let Some(pinned) = source.pinned_of(&offered) {
        let tree = apt::unpacked(&source.package, &pinned.version)?;
        return check(&tree.join(&source.tarball), &source.accepted);
    }
    if let Some(tarball) = pooled(source)? {
        return Ok(tarball);
    }
    if let Some(version) = source.newer_of(&offered) {
        let tree = apt::unpacked(&source.package, version)?;
        return unpinned(&tree.join(&source.tarball), version, source);
    }
    foreign(source)
}

/// A pinned package that is in no index any more: archives keep the file for a while, snapshots for ever.
fn pooled(source: &Source) -> Result<Option<Tarball>> {
    for archive in apt::debian_archives()? {
        for pinned in &source.accepted {
            for url in source.pool_urls(&archive, &pinned.version) {
                if let Ok(tarball) = from_pool(source, &url, pinned) {
                    return Ok(Some(tarball));
                }
            }
        }
    }
    Ok(None)
}

fn from_pool(source: &Source, url: &str, pinned: &Accepted) -> Result<Tarball> {
    let inputs = Inputs::new("pool-deb", 1).text(&source.package).text(&pinned.sha256);
    let entry = cache::entry("pool-deb", inputs, |dir| {
        let archive = dir.join("package.deb");
        fetch(url, &archive)?;
        apt::extract(&archive, dir)?;
        fs::remove_file(&archive)?;
        check(&dir.join(&source.tarball), std::slice::from_ref(pinned)).map(drop)
    })?;
    Ok(Tarball { path: entry.join(&source.tarball), known: pinned.clone() })
}

/// This machine's distribution has no such package, or too old a one.
fn foreign(source: &Source) -> Result<Tarball> {
    let changelog = format!("usr/share/doc/{}/changelog.Debian.gz", source.package);
    let pins: Vec<&str> = source.accepted.iter().map(|pinned| pinned.sha256.as_str()).collect();
    let wanted = [source.tarball.as_str(), changelog.as_str()];
    let tree = apt::foreign(rootfs::SUITE, &source.package, &wanted, &pins.join(" "))?;
    let path = tree.join(&source.tarball);
    if let Ok(tarball) = check(&path, &source.accepted) {
        return Ok(tarball);
    }
    let text = exec::output(Command::new("gzip").args(["-dc"]).arg(tree.join(&changelog)))?;
    let version = changelog_version(&text).with_context(|| format!("{changelog} names no version"))?;
    if source.newer_of(std::slice::from_ref(&version)).is_none() {
        bail!(
            "Debian ({}) has {} {version}, which is neither pinned nor newer",
            rootfs::SUITE,
            source.package
        );
    }
    unpinned(&path, &version, source)
}

/// `linux (6.1.192-3) bookworm-security; urgency=high`.
fn changelog_version(text: &str) -> Option<String> {
    let (_, rest) = text.lines().next()?.split_once('(')?;
    Some(rest.split_once(')')?.0.to_owned())
}

fn unpinned(path: &Utf8Path, version: &str, source: &Source) -> Result<Tarball> {
    let sha256 = cache::sha256_file(path)?;
    let pinned: Vec<&str> = source.accepted.iter().map(|pinned| pinned.version.as_str()).collect();
    eprintln!(
        "WARNING: the pinned kernel source ({}) can't be had here any more. The guest kernel is made from Debian's \
         {version} instead.\n         Debian's signature vouches for it, the tests of SPACE don't. Once they pass with it, \
         add it to images/guest-kernel/source.toml:\n         version = \"{version}\"\n         sha256 = \"{sha256}\"",
        pinned.join(", ")
    );
    let known = Accepted { version: version.to_owned(), sha256, file: None };
    Ok(Tarball { path: path.to_owned(), known })
}

/// What is kept has the right hash, so that a download that went wrong is tried again.
fn download(url: &str, allowed: &[Accepted]) -> Result<Tarball> {
    let hashes: Vec<&str> = allowed.iter().map(|pinned| pinned.sha256.as_str()).collect();
    let inputs = Inputs::new("kernel-source", 2).text(url).text(&hashes.join(" "));
    let entry = cache::entry("kernel-source", inputs, |dir| {
        let path = dir.join("source.tar");
        fetch(url, &path)?;
        check(&path, allowed).map(drop)
    })?;
    check(&entry.join("source.tar"), allowed)
}

fn fetch(url: &str, to: &Utf8Path) -> Result<()> {
    let mut curl = Command::new("curl");
    curl.args(["--fail", "--location", "--silent", "--show-error", "--connect-timeout", "20", "--output"]);
    let bar = exec::spinner("downloading the kernel source");
    let fetched = exec::output(curl.arg(to).arg(url)).map(drop);
    bar.finish_and_clear();
    fetched
}

/// The tarball, if its hash is one of those `allowed`.
fn check(path: &Utf8Path, allowed: &[Accepted]) -> Result<Tarball> {
    let sha256 = cache::sha256_file(path)?;
    let known = allowed.iter().find(|pinned| pinned.sha256 == sha256).cloned();
    let known = known.with_context(|| {
        format!("{path} has the SHA-256 {sha256}, which images/guest-kernel/source.toml doesn't accept")
    })?;
    Ok(Tarball { path: path.to_owned(), known })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(versions: &[&str]) -> Source {
        let accepted = versions.iter().map(|version| Accepted {
            version: (*version).to_owned(),
            sha256: format!("hash of {version}"),
            file: None,
        });
        Source {
            package: "linux-source-6.1".to_owned(),
            tarball: "usr/src/linux-source-6.1.tar.xz".into(),
            licence: "GPL-2.0-only".to_owned(),
            accepted: accepted.collect(),
        }
    }

    fn offered(versions: &[&str]) -> Vec<String> {
        versions.iter().map(|version| (*version).to_owned()).collect()
    }

    #[test]
    fn a_pinned_version_is_taken_even_where_a_newer_one_is_offered() {
        let source = source(&["6.1.192-3", "6.1.190-1"]);
        let versions = offered(&["6.1.200-1", "6.1.192-3", "6.1.190-1"]);
        assert_eq!(source.pinned_of(&versions).unwrap().version, "6.1.192-3");
        assert_eq!(source.pinned_of(&offered(&["6.1.200-1"])), None);
    }

    #[test]
    fn a_point_release_takes_the_place_of_the_pinned_version_that_it_replaced() {
        let source = source(&["6.1.192-3"]);
        let versions = offered(&["6.1.99-1", "6.1.200-1", "6.1.192-4", "6.1.192-3~deb11u1"]);
        assert_eq!(source.newer_of(&versions), Some(&"6.1.200-1".to_owned()));
    }

    #[test]
    fn neither_an_older_version_nor_another_series_takes_its_place() {
        let source = source(&["6.1.192-3"]);
        assert_eq!(
            source.newer_of(&offered(&["6.1.99-1", "6.10.1-1", "6.12.5-1", "5.10.300-1", "6.1.192-3"])),
            None
        );
        assert_eq!(source.newer_of(&[]), None);
    }

    #[test]
    fn the_pool_of_an_archive_and_of_its_security_updates_is_searched() {
        let urls = source(&["6.1.192-3"]).pool_urls("http://archive.example/debian/", "6.1.192-3");
        assert_eq!(
            urls[0],
            "http://archive.example/debian/pool/main/l/linux/linux-source-6.1_6.1.192-3_all.deb"
        );
        assert!(urls[1].contains("/debian/pool/updates/main/l/linux/"));
    }

    #[test]
    fn a_mirror_is_asked_for_the_name_that_is_pinned() {
        let source = source(&["6.1.192-3"]);
        let ours = &source.accepted[0];
        let url = source.mirror_url("http://mirror.example/", ours);
        assert_eq!(url, "http://mirror.example/linux-source-6.1.tar.xz");
        let upstream = Accepted { file: Some("linux-6.1.192.tar.xz".to_owned()), ..ours.clone() };
        assert_eq!(
            source.mirror_url("http://mirror.example", &upstream),
            "http://mirror.example/linux-6.1.192.tar.xz"
        );
    }

    #[test]
    fn a_tarball_that_somebody_names_must_have_the_hash_that_they_give_or_a_pinned_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::from_path_buf(dir.path().join("source.tar")).unwrap();
        fs::write(&path, "abc").unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let mut source = source(&["6.1.192-3"]);

        let taken = named(path.as_str(), &allowed(&source, Some(abc.to_owned()))).unwrap();
        assert_eq!(taken.known.version, "custom");
        let refused = named(path.as_str(), &allowed(&source, None)).unwrap_err();
        assert!(refused.to_string().contains("doesn't accept"), "{refused}");
        source.accepted[0].sha256 = abc.to_owned();
        assert_eq!(named(path.as_str(), &allowed(&source, None)).unwrap().known.version, "6.1.192-3");
        named(path.as_str(), &allowed(&source, Some("other".to_owned()))).unwrap_err();
    }

    #[test]
    fn the_version_is_on_the_first_line_of_debians_changelog() {
        let text = "linux (6.1.200-1) bookworm-security; urgency=high\n\n  * more (text)\n";
        assert_eq!(changelog_version(text).as_deref(), Some("6.1.200-1"));
        assert_eq!(changelog_version("nothing"), None);
    }
}
