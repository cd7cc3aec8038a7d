//! The pool that images and disks share: how much is left, and whether it can reflink at all.

use std::{fs, io};

use camino::{Utf8Path, Utf8PathBuf};
use rustix::fs::{ioctl_ficlone, statvfs};
use space_types::ByteSize;

/// Where the bytes of images and disks go. A pool in a file has a second limit, which it doesn't know of: the file
/// is sparse, and the file system that it lies on may be full before the pool is.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    pool: Utf8PathBuf,
    backing: Option<Utf8PathBuf>,
}

impl Room {
    pub(crate) fn new(pool: Utf8PathBuf, backing: Option<Utf8PathBuf>) -> Self {
        Self { pool, backing }
    }

    /// Bytes that can still be written: what the tighter of the two has left.
    pub(crate) fn free(&self) -> io::Result<ByteSize> {
        let pool = free_bytes(&self.pool)?;
        self.backing.as_deref().map_or(Ok(pool), |backing| Ok(pool.min(free_bytes(backing)?)))
    }

    /// Whether more than `reserve` is left, so that running sandboxes can go on writing for a while. Disks are
    /// thin, so this is headroom and no promise.
    pub(crate) fn exceeds(&self, reserve: ByteSize) -> io::Result<bool> {
        Ok(self.free()? > reserve)
    }
}

fn free_bytes(path: &Utf8Path) -> io::Result<ByteSize> {
    let seen = statvfs(path.as_str())?;
    Ok(ByteSize::bytes(seen.f_bavail.saturating_mul(seen.f_frsize)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_has_no_more_room_than_the_file_system_below_it() {
        let directory = tempfile::tempdir().unwrap();
        let pool = Utf8PathBuf::from_path_buf(directory.path().to_owned()).unwrap();
        let alone = Room::new(pool.clone(), None);
        assert!(alone.exceeds(ByteSize::default()).unwrap());
        // Nothing can be stored in /proc.
        let full_below = Room::new(pool, Some("/proc".into()));
        assert_eq!(full_below.free().unwrap(), ByteSize::default());
        assert!(!full_below.exceeds(ByteSize::default()).unwrap());
    }

    #[test]
    fn a_file_system_that_is_not_there_is_an_error_and_no_room() {
        let room = Room::new("/".into(), Some("/not/there".into()));
        room.exceeds(ByteSize::default()).unwrap_err();
    }
}
