//! Template images: their digest, and how a directory or a tarball becomes one.

use std::{fs::File, io::Read, process::Stdio, time::Duration};

use anyhow::{Context, bail};
use camino::{Utf8Path, Utf8PathBuf};
use sha2::{Digest as _, Sha256};
use space_types::{ByteSize, Digest};
use tokio::process::Command;

use crate::up::postgres::find_in_path;

const DEADLINE: Duration = Duration::from_mins(30);
const BLOCK: u64 = 4096;
/// ext4's magic number and where it lies.
const EXT4_MAGIC: ([u8; 2], u64) = ([0x53, 0xef], 1024 + 56);

/// SHA-256 of a file.
pub(crate) async fn digest(path: &Utf8Path) -> anyhow::Result<Digest> {
    let owned = path.to_owned();
    let hashed = tokio::task::spawn_blocking(move || hash(&owned)).await?;
    hashed.with_context(|| format!("cannot read {path}"))
}

fn hash(path: &Utf8Path) -> std::io::Result<Digest> {
    let (mut file, mut hasher) = (File::open(path)?, Sha256::new());
    let mut piece = vec![0; 1024 * 1024];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(Digest::from_sha256(hasher.finalize().into())),
            length => hasher.update(&piece[..length]),
        }
    }
}

/// Makes an ext4 image at `image` out of what `source` is: an image, a directory, or a tarball.
pub(crate) async fn make(source: &Utf8Path, image: &Utf8Path, size: Option<ByteSize>) -> anyhow::Result<()> {
    if source.is_dir() {
        return from_directory(source, image, size).await;
    }
    if is_ext4(source).with_context(|| format!("cannot read {source}"))? {
        return run("cp", &["--reflink=auto", "--sparse=always", source.as_str(), image.as_str()]).await;
    }
    // Beside the image: `/tmp` may be small, and may not keep owners.
    let parent = image.parent().context("the image lies in no directory")?;
    let unpacked = tempfile::Builder::new().prefix("unpack-").tempdir_in(parent)?;
    let dir = Utf8Path::from_path(unpacked.path()).context("the directory is not UTF-8")?;
    let tar =
        ["--extract", "--numeric-owner", "--same-owner", "--preserve-permissions", "--xattrs", "--file"];
    let arguments: Vec<_> = tar.into_iter().chain([source.as_str(), "--directory", dir.as_str()]).collect();
    run("tar", &arguments).await.with_context(|| format!("{source} is no image, directory or tarball"))?;
    // mke2fs takes the root directory's mode over; a temporary directory's own is for its owner alone.
    std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    from_directory(dir, image, size).await
}

async fn from_directory(dir: &Utf8Path, image: &Utf8Path, size: Option<ByteSize>) -> anyhow::Result<()> {
    let size = match size {
        Some(size) => size,
        None => with_room(measure(dir.to_owned()).await?),
    };
    let file = File::create(image).with_context(|| format!("cannot make {image}"))?;
    file.set_len(size.as_bytes())?;
    let arguments = [
        "-q",
        "-F",
        "-t",
        "ext4",
        "-m",
        "0",
        "-b",
        "4096",
        "-E",
        "lazy_itable_init=0",
        "-d",
        dir.as_str(),
        image.as_str(),
    ];
    run("mke2fs", &arguments).await
}

/// A quarter more, and what a journal and inodes need, in whole blocks.
fn with_room(content: ByteSize) -> ByteSize {
    let bytes = content.as_bytes() + content.as_bytes() / 4 + ByteSize::mib(96).as_bytes();
    ByteSize::bytes(bytes.div_ceil(BLOCK) * BLOCK)
}

async fn measure(dir: Utf8PathBuf) -> anyhow::Result<ByteSize> {
    let measured = tokio::task::spawn_blocking(move || size_of(&dir)).await?;
    Ok(ByteSize::bytes(measured?))
}

/// Whole blocks of every file below. Links are not followed.
fn size_of(dir: &Utf8Path) -> std::io::Result<u64> {
    let mut total = BLOCK;
    for entry in dir.read_dir_utf8()? {
        let entry = entry?;
        let meta = entry.path().symlink_metadata()?;
        total += if meta.is_dir() { size_of(entry.path())? } else { meta.len().div_ceil(BLOCK) * BLOCK };
    }
    Ok(total)
}

fn is_ext4(path: &Utf8Path) -> std::io::Result<bool> {
    use std::os::unix::fs::FileExt;
    let (magic, offset) = EXT4_MAGIC;
    let mut found = [0; 2];
    match File::open(path)?.read_exact_at(&mut found, offset) {
        Ok(()) => Ok(found == magic),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

async fn run(name: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let program = find_in_path(name).with_context(|| format!("{name} is not installed"))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(DEADLINE, command.output()).await;
    let output = output.with_context(|| format!("{name} does not end"))??;
    if !output.status.success() {
        bail!("{name} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_and_a_tarball_of_it_become_images() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = Utf8Path::from_path(scratch.path()).unwrap();
        std::fs::create_dir_all(scratch.join("root/etc")).unwrap();
        std::fs::write(scratch.join("root/etc/hostname"), "x\n").unwrap();
        let (tarball, image) = (scratch.join("root.tar"), scratch.join("image"));
        run("tar", &["-cf", tarball.as_str(), "-C", scratch.join("root").as_str(), "."]).await.unwrap();
        for source in [scratch.join("root"), tarball] {
            make(&source, &image, None).await.unwrap();
            assert!(is_ext4(&image).unwrap(), "{source}");
            assert!(image.metadata().unwrap().len().is_multiple_of(BLOCK));
        }
    }

    #[tokio::test]
    async fn the_digest_is_that_of_the_content() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        let digest = digest(Utf8Path::from_path(file.path()).unwrap()).await.unwrap();
        assert_eq!(digest.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
