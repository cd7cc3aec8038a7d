//! Files to and from the host, through a disk that both sides see.
//!
//! The emulated network carries 3 MB/s, a disk a hundred times that. So a tar is written to offset 0 of the
//! transfer disk on one side and read there on the other, which drops its page cache of the disk before. One transfer at a time; a file lock
//! keeps the order.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};

use super::channel::quoted;
use super::machine::Machine;
use crate::exec;

/// Records of 1 MiB, in tar's unit of 512 bytes.
const RECORD: u32 = 2048;
const DEADLINE: Duration = Duration::from_mins(10);
const DEVICE: &str = "/dev/disk/space-transfer";

impl Machine {
    /// Copies files and directory trees into the directory `to` of the host, which is made. Modes and
    /// holes are kept; symbolic links are followed.
    pub(crate) fn copy_in(&self, from: &[Utf8PathBuf], to: &str) -> Result<()> {
        let _lock = self.lock_transfer()?;
        let disk = self.transfer_disk()?;
        let mut tar = Command::new("tar");
        tar.args(["--create", "--sparse", "--dereference", "--owner=0", "--group=0"]);
        for path in from {
            let path = path.canonicalize_utf8().with_context(|| format!("no file {path}"))?;
            let name = path.file_name().context("a path without a last part")?;
            let dir = path.parent().unwrap_or(Utf8Path::new("/"));
            tar.arg("-C").arg(dir).arg(name);
        }
        let status = tar.stdin(Stdio::null()).stdout(disk.try_clone()?).status().context("cannot run tar")?;
        if !status.success() {
            bail!("tar ended with {status}");
        }
        let size = rustix::fs::tell(&disk)?;
        // Straight from the device: a pipe costs more than the disk on an emulated processor.
        let to = quoted(to);
        let line = format!(
            "mkdir -p {to} && blockdev --flushbufs {DEVICE} && \
             tar --extract --sparse --blocking-factor={RECORD} --file={DEVICE} -C {to}"
        );
        self.output_within(&line, DEADLINE)?;
        punch(&disk, size)
    }

    /// Copies files and trees out of the host into the directory `to`, which is made.
    pub(crate) fn copy_out(&self, from: &[String], to: &Utf8Path) -> Result<()> {
        let _lock = self.lock_transfer()?;
        std::fs::create_dir_all(to).with_context(|| format!("cannot make {to}"))?;
        let names: Vec<String> = from
            .iter()
            .map(|path| {
                let path = Utf8Path::new(path.trim_end_matches('/'));
                let dir = path.parent().unwrap_or(Utf8Path::new("/"));
                let name = path.file_name().unwrap_or(".");
                format!("-C {} {}", quoted(dir.as_str()), quoted(name))
            })
            .collect();
        let line = format!(
            "tar --create --sparse --blocking-factor={RECORD} --file={DEVICE} {} && \
             blockdev --flushbufs {DEVICE}",
            names.join(" ")
        );
        self.output_within(&line, DEADLINE)?;
        let disk = self.transfer_disk()?;
        exec::passed_through(
            Command::new("tar")
                .args(["--extract", "--sparse", "--no-same-owner", "-C"])
                .arg(to)
                .stdin(disk.try_clone()?),
        )?;
        let size = rustix::fs::tell(&disk)?;
        punch(&disk, size)
    }

    fn lock_transfer(&self) -> Result<File> {
        let path = self.dir().join("transfer.lock");
        let file = File::create(&path).with_context(|| format!("cannot make {path}"))?;
        file.lock().with_context(|| format!("cannot lock {path}"))?;
        Ok(file)
    }

    fn transfer_disk(&self) -> Result<File> {
        let path = self.dir().join("transfer.img");
        File::options().read(true).write(true).open(&path).with_context(|| format!("cannot open {path}"))
    }
}

/// Gives the space of a finished transfer back.
fn punch(disk: &File, size: u64) -> Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(disk, flags, 0, size.max(1)).context("cannot punch the transfer disk")
}
