//! The base template: a Debian root filesystem as an ext4 image.

use std::fs;
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result};
use camino::Utf8PathBuf;

use crate::cache::{self, Inputs};
use crate::{exec, paths, rootfs};

/// A third of it is free. The digest covers all of it, and a sandbox gets a larger disk, which the agent grows
/// the filesystem into: so it is no larger.
const SIZE: &str = "1G";

/// A template's image and its digest.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) image: Utf8PathBuf,
    /// SHA-256 in hex over the whole image, holes included.
    pub(crate) digest: String,
}

/// The base template, built when its inputs changed.
pub(crate) fn base() -> Result<Template> {
    let inputs = paths::images().join("base");
    let packages = rootfs::list(&inputs.join("packages.txt"))?;
    let customize = fs::read_to_string(inputs.join("customize"))?;
    let archive = rootfs::archive("base template", &packages, &customize)?;
    let hash = Inputs::new("template", 1).text(archive.as_str()).text(SIZE).file(&inputs.join("assemble"))?;
    let entry = cache::entry("template", hash, |dir| {
        let image = dir.join("base.img");
        exec::logged(
            "base template: making the image",
            "template-image",
            rootfs::as_root(&inputs.join("assemble")).arg(&archive).arg(SIZE).arg(&image),
        )?;
        let digest = cache::sha256_file(&image)?;
        fs::write(dir.join("digest"), digest).context("cannot write the digest")
    })?;
    Ok(Template { image: entry.join("base.img"), digest: fs::read_to_string(entry.join("digest"))? })
}

/// Says what there is.
pub(crate) fn describe(template: &Template) -> Result<()> {
    let metadata = fs::metadata(&template.image)?;
    println!(
        "{}\nsha256:{}\n{} MiB, {} MiB of it on disk",
        template.image,
        template.digest,
        metadata.len() >> 20,
        (metadata.blocks() * 512) >> 20,
    );
    Ok(())
}
