//! `target/space/assets/`: what a running SPACE needs beside its binaries, in the layout that
//! `space up --assets` reads, with a manifest.

use std::fs;
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use serde::Serialize;

use crate::{cache, exec, firecracker, initramfs, kernel, paths, template};

#[derive(Debug, Serialize)]
struct Manifest {
    files: Vec<ManifestFile>,
}

#[derive(Debug, Serialize)]
struct ManifestFile {
    path: String,
    sha256: String,
    size: u64,
    version: String,
    licence: String,
}

/// Builds what is missing and lays everything out. Returns the directory.
pub(crate) fn ready() -> Result<Utf8PathBuf> {
    let firecracker = firecracker::ready()?;
    let kernel = kernel::ready()?;
    let template = template::base()?;
    let initramfs = initramfs::ready()?;
    let dir = paths::assets();
    fs::create_dir_all(dir.join("templates"))?;
    let own = env!("CARGO_PKG_VERSION");
    let files = vec![
        place(&kernel.vmlinux, "vmlinux", &kernel.version, &kernel.licence)?,
        place(&initramfs, "initramfs.cpio", own, "Apache-2.0")?,
        place(
            &firecracker.dir.join("firecracker"),
            "firecracker",
            &firecracker.version,
            &firecracker.licence,
        )?,
        place(&firecracker.dir.join("jailer"), "jailer", &firecracker.version, &firecracker.licence)?,
        place_hashed(
            &template.image,
            "templates/base.img",
            &template.digest,
            "Debian 12",
            "the licences of its packages: usr/share/doc/*/copyright in it",
        )?,
    ];
    let manifest = serde_json::to_vec_pretty(&Manifest { files })?;
    cache::write_atomic(&dir.join("manifest.json"), &manifest)?;
    Ok(dir)
}

fn place(from: &Utf8Path, name: &str, version: &str, licence: &str) -> Result<ManifestFile> {
    let sha256 = cache::sha256_file(from)?;
    place_hashed(from, name, &sha256, version, licence)
}

fn place_hashed(
    from: &Utf8Path,
    name: &str,
    sha256: &str,
    version: &str,
    licence: &str,
) -> Result<ManifestFile> {
    let to = paths::assets().join(name);
    link(from, &to)?;
    Ok(ManifestFile {
        path: name.to_owned(),
        sha256: sha256.to_owned(),
        size: fs::metadata(from)?.len(),
        version: version.to_owned(),
        licence: licence.to_owned(),
    })
}

/// A hard link where that is possible, else a copy with holes.
fn link(from: &Utf8Path, to: &Utf8Path) -> Result<()> {
    let source = fs::metadata(from).with_context(|| format!("no {from}"))?;
    if let Ok(there) = fs::metadata(to) {
        if (there.dev(), there.ino()) == (source.dev(), source.ino()) {
            return Ok(());
        }
        fs::remove_file(to).with_context(|| format!("cannot replace {to}"))?;
    }
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    exec::output(
        std::process::Command::new("cp").args(["--sparse=always", "--reflink=auto"]).args([from, to]),
    )
    .map(drop)
}
