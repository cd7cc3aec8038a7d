//! Kernel, initramfs and the placeholder drive: copied once into the data directory, so that jails can hold
//! hard links to them, which share their page cache. Owned by root and read-only: a VMM that has broken out
//! can remove its own link and nothing more.

use std::{
    fs::{self, Permissions},
    io::{self, Read},
    os::unix::fs::PermissionsExt,
};

use aws_lc_rs::digest::{Context, SHA256};
use camino::{Utf8Path, Utf8PathBuf};

use crate::config::FirecrackerConfig;

/// Where the shared files lie; each name holds its content's hash.
#[derive(Debug, Clone)]
pub(crate) struct BootFiles {
    pub(crate) kernel: Utf8PathBuf,
    pub(crate) initramfs: Utf8PathBuf,
    pub(crate) placeholder: Utf8PathBuf,
    pub(crate) firecracker: Utf8PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum BootFilesError {
    #[error("cannot read {path}")]
    Read {
        path: Utf8PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot install {path}")]
    Install {
        path: Utf8PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} has the SHA-256 {found}, not the pinned {pinned}")]
    Pin { path: Utf8PathBuf, found: String, pinned: String },
}

impl BootFiles {
    /// Copies the configured files to `images`. Blocks.
    pub(crate) fn install(config: &FirecrackerConfig, images: &Utf8Path) -> Result<Self, BootFilesError> {
        let firecracker = images.join("vmm").join(&config.binary_sha256).join("firecracker");
        Ok(Self {
            kernel: install(&read(&config.kernel)?, images, "kernel", 0o444)?,
            initramfs: install(&read(&config.initramfs)?, images, "initramfs", 0o444)?,
            placeholder: install(&[0; 512], images, "empty", 0o444)?,
            firecracker: install_at(&read(&config.binary)?, firecracker, 0o555)?,
        })
    }
}

/// Refuses a file whose content is not the pinned one.
pub(crate) fn check_pinned(path: &Utf8Path, pinned: &str) -> Result<(), BootFilesError> {
    let found = sha256_hex(&read(path)?);
    if found == pinned {
        return Ok(());
    }
    Err(BootFilesError::Pin { path: path.to_owned(), found, pinned: pinned.to_owned() })
}

fn install(content: &[u8], images: &Utf8Path, kind: &str, mode: u32) -> Result<Utf8PathBuf, BootFilesError> {
    install_at(content, images.join(format!("{kind}-{}", sha256_hex(content))), mode)
}

fn install_at(content: &[u8], path: Utf8PathBuf, mode: u32) -> Result<Utf8PathBuf, BootFilesError> {
    let write = || {
        if path.exists() {
            return Ok(());
        }
        let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        fs::create_dir_all(directory)?;
        let temporary = directory.join(format!(".fetch-{}", path.file_name().unwrap_or("file")));
        fs::write(&temporary, content)?;
        fs::set_permissions(&temporary, Permissions::from_mode(mode))?;
        fs::File::open(&temporary)?.sync_all()?;
        fs::rename(&temporary, &path)
    };
    write().map_err(|source| BootFilesError::Install { path: path.clone(), source })?;
    Ok(path)
}

fn read(path: &Utf8Path) -> Result<Vec<u8>, BootFilesError> {
    let mut content = Vec::new();
    fs::File::open(path)
        .and_then(|mut file| file.read_to_end(&mut content))
        .map_err(|source| BootFilesError::Read { path: path.to_owned(), source })?;
    Ok(content)
}

fn sha256_hex(content: &[u8]) -> String {
    let mut context = Context::new(&SHA256);
    context.update(content);
    hex::encode(context.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_the_pinned_one_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = Utf8Path::from_path(file.path()).unwrap();
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        check_pinned(path, empty).unwrap();
        fs::write(path, "x").unwrap();
        assert!(matches!(check_pinned(path, empty), Err(BootFilesError::Pin { .. })));
    }
}
