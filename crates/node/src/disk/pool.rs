//! The pool that images and disks share: how much is left, and whether it can reflink at all.

use std::{fs, io};

use camino::Utf8Path;
use rustix::fs::{ioctl_ficlone, statvfs};
use space_types::ByteSize;

/// Bytes that can still be written below `path`.
pub(crate) fn free_bytes(path: &Utf8Path) -> io::Result<ByteSize> {
    let seen = statvfs(path.as_str())?;
    Ok(ByteSize::bytes(seen.f_bavail.saturating_mul(seen.f_frsize)))
}

/// Whether more than `reserve` is left, so that running sandboxes can go on writing for a while. Disks are
/// thin, so this is headroom and no promise.
pub(crate) fn has_room(path: &Utf8Path, reserve: ByteSize) -> io::Result<bool> {
    Ok(free_bytes(path)? > reserve)
}

/// Fails unless files below `directory` can be reflinked (btrfs, XFS with reflinks).
pub(crate) fn require_reflinks(directory: &Utf8Path) -> io::Result<()> {
    let names = [directory.join(".reflink-from"), directory.join(".reflink-to")];
    fs::write(&names[0], [0; 4096])?;
    let cloned = fs::File::create(&names[1])
        .and_then(|target| Ok(ioctl_ficlone(&target, fs::File::open(&names[0])?)?));
    for name in &names {
        fs::remove_file(name)?;
    }
    cloned
}
