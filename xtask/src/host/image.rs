//! What the emulated host boots: a kernel out of Debian's cloud package and a disk image.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};

use crate::cache::{self, Inputs};
use crate::{apt, exec, paths, rootfs};

/// Paths of the bootable parts, all in the cache.
#[derive(Debug)]
pub(crate) struct HostImage {
    pub(crate) kernel: Utf8PathBuf,
    pub(crate) disk: Utf8PathBuf,
    /// The private key that opens the host.
    pub(crate) key: Utf8PathBuf,
    /// The host's public key, `ssh-ed25519 AAAA…`.
    pub(crate) host_public: String,
}

/// The host image, built when its inputs changed.
pub(crate) fn ready() -> Result<HostImage> {
    let inputs = paths::images().join("host");
    let kernel = kernel_package()?;
    let packages = rootfs::list(&inputs.join("packages.txt"))?;
    let users = "for user in space space-edge; do chroot \"$1\" useradd --system --user-group \
                 --home-dir /var/lib/space --shell /usr/sbin/nologin $user; done";
    let archive = rootfs::archive("host", &packages, users)?;
    let keys = keys()?;
    let mut hash = Inputs::new("host", 2).text(archive.as_str()).text(kernel.as_str()).text(keys.as_str());
    for file in ["assemble", "init", "poweroff", "modules.txt", "sshd_config"] {
        hash = hash.file(&inputs.join(file))?;
    }
    let entry = cache::entry("host", hash, |dir| {
        exec::logged(
            "host: making the disk image",
            "host-image",
            rootfs::as_root(&inputs.join("assemble"))
                .args([&archive, &kernel, &keys, &inputs])
                .arg(dir.join("host.img")),
        )
    })?;
    Ok(HostImage {
        kernel: vmlinuz(&kernel)?,
        disk: entry.join("host.img"),
        key: keys.join("key"),
        host_public: public_key(&keys.join("host_key.pub"))?,
    })
}

/// The meta package of the kernel, and how the packages behind it begin in the release that the image is made of.
const KERNEL: &str = "linux-image-cloud-amd64";
const KERNEL_PREFIX: &str = "linux-image-6.1.";

/// The tree of the kernel's package: by way of this machine's apt where that has the one of our release, else from
/// that release.
fn kernel_package() -> Result<Utf8PathBuf> {
    let package = apt::first_dependency(KERNEL).filter(|package| package.starts_with(KERNEL_PREFIX));
    if let Some(package) = package
        && let Some(version) = apt::versions(&package)?.first()
    {
        return apt::unpacked(&package, version);
    }
    apt::foreign(rootfs::SUITE, KERNEL, &["boot", "lib/modules"], "")
}

/// Our key and the host's, made once per cache.
fn keys() -> Result<Utf8PathBuf> {
    cache::entry("host-keys", Inputs::new("host-keys", 1), |dir| {
        for name in ["key", "host_key"] {
            exec::output(
                Command::new("ssh-keygen")
                    .args(["-q", "-t", "ed25519", "-N", "", "-C", "space-host", "-f"])
                    .arg(dir.join(name)),
            )?;
        }
        fs::copy(dir.join("key.pub"), dir.join("authorized_keys"))?;
        Ok(())
    })
}

fn public_key(path: &Utf8Path) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let mut words = text.split_whitespace();
    let (kind, key) = (words.next(), words.next());
    let (kind, key) = kind.zip(key).context("not a public key")?;
    Ok(format!("{kind} {key}"))
}

fn vmlinuz(kernel: &Utf8Path) -> Result<Utf8PathBuf> {
    kernel
        .join("boot")
        .read_dir_utf8()?
        .filter_map(Result::ok)
        .find(|entry| entry.file_name().starts_with("vmlinuz-"))
        .map(|entry| entry.path().to_owned())
        .context("the kernel package holds no vmlinuz")
}
