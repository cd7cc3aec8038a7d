//! A write in several connections: its data is a file beside the target, locked by whoever adds to it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{
        AtFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, Stat, flock, fstat, openat, seek, statat,
        unlinkat,
    },
    io::Errno,
    process::geteuid,
};
use space_guest_proto::job::{FailureKind, Upload};

use super::{DRAFT_MODE, Link, NEW_FILE, Target, Wanted, WriteError, finish, receive, rename};
use crate::{job::failure::JobError, sys::signals::Uninterrupted};

const CONTINUED: OFlags =
    OFlags::WRONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

pub(super) struct Uploading {
    file: OwnedFd,
    name: Vec<u8>,
    end: u64,
}

impl Uploading {
    /// Takes up what is kept, or begins anew.
    pub(super) fn open(target: &Target, upload: &Upload) -> Result<Self, WriteError> {
        let name = format!(".{}.space-upload", upload.id).into_bytes();
        let kept = match openat(&target.directory, &*name, CONTINUED, Mode::empty()) {
            Ok(file) => own(file, target, &name)?,
            // Nothing, or nothing that this made: a symbolic link, a FIFO.
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => None,
            Err(error) => return Err(error.into()),
        };
        match kept {
            Some((file, end)) if upload.offset > 0 => {
                if end != upload.offset {
                    return Err(JobError::Offset { next: end }.into());
                }
                seek(&file, SeekFrom::Start(end))?;
                Ok(Self { file, name, end })
            }
            _ if upload.offset > 0 => Err(JobError::Offset { next: 0 }.into()),
            _ => Self::begin(target, name),
        }
    }

    /// A file of its own, whatever had its name.
    fn begin(target: &Target, name: Vec<u8>) -> Result<Self, WriteError> {
        match unlinkat(&target.directory, &*name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let file = openat(&target.directory, &*name, NEW_FILE, DRAFT_MODE)?;
        lock(&file)?;
        Ok(Self { file, name, end: 0 })
    }

    pub(super) fn receive(&mut self, link: &mut Link) -> Result<(), WriteError> {
        self.end += receive(link, self.file.as_fd())?;
        Ok(())
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Gives it the target's name; what it is then.
    pub(super) fn complete(self, target: &Target, wanted: &Wanted) -> Result<Stat, Errno> {
        let _held = Uninterrupted::new();
        finish(self.file.as_fd(), wanted)?;
        rename(target, &self.name, wanted.exclusive)?;
        fstat(&self.file)
    }
}

/// The file and its size if it is one that this made before, and is still there now that it is locked.
fn own(file: OwnedFd, target: &Target, name: &[u8]) -> Result<Option<(OwnedFd, u64)>, WriteError> {
    lock(&file)?;
    let stat = fstat(&file)?;
    let same = match statat(&target.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino),
        Err(Errno::NOENT) => false,
        Err(error) => return Err(error.into()),
    };
    let plain = FileType::from_raw_mode(stat.st_mode).is_file() && stat.st_nlink == 1;
    let ours = same && plain && stat.st_uid == geteuid().as_raw();
    Ok(ours.then_some((file, u64::try_from(stat.st_size).unwrap_or(0))))
}

fn lock(file: &OwnedFd) -> Result<(), WriteError> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::AGAIN) => {
            Err(JobError::new(FailureKind::Busy, "another connection adds to this upload").into())
        }
        Err(error) => Err(error.into()),
    }
}
