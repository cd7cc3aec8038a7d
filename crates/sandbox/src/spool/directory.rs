//! A sandbox's directory, by the descriptor that noded handed over. Nothing in here knows a path: every name is
//! resolved beneath that descriptor, without links.

use std::{fs::File, io, os::fd::OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, fstatvfs, openat2, unlinkat};

const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

#[derive(Debug)]
pub(super) struct SpoolDirectory {
    descriptor: OwnedFd,
    /// Of the disk that stay free, in hundredths.
    free_percent: u64,
}

impl SpoolDirectory {
    pub(super) const fn new(descriptor: OwnedFd, free_percent: u64) -> Self {
        Self { descriptor, free_percent }
    }

    /// A new, empty file for writing and reading.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        self.open(name, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)
    }

    /// A file for writing and reading.
    pub(super) fn open_to_append(&self, name: &str) -> io::Result<File> {
        self.open(name, OFlags::RDWR)
    }

    pub(super) fn open_to_read(&self, name: &str) -> io::Result<File> {
        self.open(name, OFlags::RDONLY)
    }

    fn open(&self, name: &str, flags: OFlags) -> io::Result<File> {
        // Non-blocking, should a name be a FIFO's.
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mode = if flags.contains(OFlags::CREATE) { Mode::RUSR | Mode::WUSR } else { Mode::empty() };
        Ok(openat2(&self.descriptor, name, flags, mode, BENEATH)?.into())
    }

    /// Removes a file. One that is not there, or can't be removed, is not an error: noded removes the directory.
    pub(super) fn remove(&self, name: &str) {
        if let Err(error) = unlinkat(&self.descriptor, name, AtFlags::empty())
            && error != rustix::io::Errno::NOENT
        {
            tracing::warn!(name, %error, "a segment was not removed");
        }
    }

    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.descriptor)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Fails when less of the disk is free than must stay so: the disks of the VMs lie on it too.
    pub(super) fn check_room(&self) -> io::Result<()> {
        let seen = fstatvfs(&self.descriptor)?;
        let kept = seen.f_blocks.saturating_mul(self.free_percent) / 100;
        if seen.f_bavail < kept { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}
