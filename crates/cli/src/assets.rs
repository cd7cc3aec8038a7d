//! Where the things lie that are not programs of ours: kernel, agent, Firecracker, templates.

use std::path::PathBuf;

use anyhow::Context;
use camino::{Utf8Path, Utf8PathBuf};
use serde::Deserialize;
use space_types::Digest;

const BASE_IMAGE: &str = "templates/base.img";

/// `manifest.json`: what the files are.
#[derive(Deserialize)]
struct Manifest {
    files: Vec<ManifestFile>,
}

#[derive(Deserialize)]
struct ManifestFile {
    path: String,
    sha256: String,
    size: u64,
}

/// One directory, laid out as `make run` builds it and a package installs it.
#[derive(Debug, Clone)]
pub(crate) struct Assets {
    dir: Utf8PathBuf,
}

impl Assets {
    /// `given`, or `share/space` beside the directory of this program.
    pub(crate) fn locate(given: Option<&Utf8Path>) -> anyhow::Result<Self> {
        let dir = match given {
            Some(dir) => std::path::absolute(dir)?,
            None => default_dir()?,
        };
        Ok(Self { dir: utf8(dir)? })
    }

    pub(crate) fn dir(&self) -> &Utf8Path {
        &self.dir
    }

    pub(crate) fn kernel(&self) -> Utf8PathBuf {
        self.dir.join("vmlinux")
    }

    /// Holds the agent and nothing else.
    pub(crate) fn initramfs(&self) -> Utf8PathBuf {
        self.dir.join("initramfs.cpio")
    }

    pub(crate) fn firecracker(&self) -> Utf8PathBuf {
        self.dir.join("firecracker")
    }

    pub(crate) fn jailer(&self) -> Utf8PathBuf {
        self.dir.join("jailer")
    }

    pub(crate) fn base_image(&self) -> Utf8PathBuf {
        self.dir.join(BASE_IMAGE)
    }

    /// The digest that the manifest gives for the base image, if it is about the file that is there. Whoever
    /// fetches the image checks it; taking the manifest's word saves hashing it at every start.
    pub(crate) fn base_digest(&self) -> Option<Digest> {
        let text = std::fs::read(self.dir.join("manifest.json")).ok()?;
        let manifest: Manifest = serde_json::from_slice(&text).ok()?;
        let listed = manifest.files.into_iter().find(|file| file.path == BASE_IMAGE)?;
        let size = self.base_image().metadata().ok()?.len();
        (listed.size == size).then(|| format!("sha256:{}", listed.sha256).parse().ok()).flatten()
    }

    /// What no sandbox can do without, and isn't there.
    pub(crate) fn missing(&self) -> Vec<Utf8PathBuf> {
        let needed = [self.kernel(), self.initramfs(), self.firecracker(), self.jailer()];
        needed.into_iter().filter(|path| !path.is_file()).collect()
    }
}

/// The directory that this program lies in, with the others beside it.
pub(crate) fn program_dir() -> anyhow::Result<Utf8PathBuf> {
    let program =
        std::env::current_exe().and_then(std::fs::canonicalize).context("cannot find this program")?;
    let dir = program.parent().map(PathBuf::from).context("this program lies in no directory")?;
    utf8(dir)
}

fn default_dir() -> anyhow::Result<PathBuf> {
    let programs = program_dir()?;
    let prefix = programs.parent().unwrap_or(&programs);
    Ok(prefix.join("share/space").into())
}

fn utf8(path: PathBuf) -> anyhow::Result<Utf8PathBuf> {
    Utf8PathBuf::from_path_buf(path).map_err(|path| anyhow::anyhow!("{} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_about_another_file_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let assets = Assets::locate(Utf8Path::from_path(dir.path())).unwrap();
        std::fs::create_dir(dir.path().join("templates")).unwrap();
        std::fs::write(assets.base_image(), "1234").unwrap();
        let digest = Digest::from_sha256([7; 32]);
        let manifest = |size: u64| serde_json::json!({ "files": [{ "path": BASE_IMAGE, "sha256": digest.hex(), "size": size, "licence": "x" }] });
        assert_eq!(assets.base_digest(), None);
        for (size, expected) in [(4, Some(digest.clone())), (5, None)] {
            std::fs::write(dir.path().join("manifest.json"), manifest(size).to_string()).unwrap();
            assert_eq!(assets.base_digest(), expected);
        }
    }
}
