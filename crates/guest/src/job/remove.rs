//! Removing a file, or a directory with all it holds.
//!
//! No recursion, and two open directories however deep the tree is: the way back up is `..`, and is only taken
//! when it leads to the directory that the way down came from, which a rename in between can change.

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, RawDir, fstat, openat, statat, unlinkat},
    io::Errno,
};
use space_guest_proto::job::{Done, FailureKind, RemoveFile};

use super::{Outcome, failure::JobError, target::Target};

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Small, since a directory is read anew behind each directory in it that was removed.
const NAMES_BYTES: usize = 4096;

/// What says that a directory is still the same one.
type Identity = (u64, u64);

pub(super) fn remove(job: &RemoveFile) -> Outcome {
    let failed = JobError::at(&job.path);
    let target = Target::new(&job.path, false)?;
    let stat = target.present.ok_or_else(|| failed(Errno::NOENT))?;
    let directory = FileType::from_raw_mode(stat.st_mode).is_dir();
    if directory && job.recursive {
        let entered = openat(&target.directory, &*target.name, DIRECTORY, Mode::empty());
        empty(entered.map_err(&failed)?).map_err(|error| at(&job.path, error))?;
    }
    let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    unlinkat(&target.directory, &*target.name, flags).map_err(&failed)?;
    Ok(Done::default())
}

enum RemoveError {
    Kernel(Vec<u8>, Errno),
    OtherFilesystem(Vec<u8>),
    Moved,
}

fn at(path: &[u8], error: RemoveError) -> JobError {
    let path = String::from_utf8_lossy(path);
    match error {
        RemoveError::Kernel(name, error) => {
            JobError::of(error, format!("{path}: {}", String::from_utf8_lossy(&name)))
        }
        RemoveError::OtherFilesystem(name) => {
            let name = String::from_utf8_lossy(&name);
            JobError::new(FailureKind::CrossDevice, format!("{path}: another filesystem lies on {name}"))
        }
        RemoveError::Moved => {
            JobError::new(FailureKind::Busy, format!("{path}: a directory was moved away meanwhile"))
        }
    }
}

/// Removes everything in `directory`.
fn empty(mut directory: OwnedFd) -> Result<(), RemoveError> {
    let kernel = |name: &[u8]| {
        let name = name.to_vec();
        move |error| RemoveError::Kernel(name, error)
    };
    let device = identity(&directory).map_err(kernel(b"."))?.0;
    // The directories above the open one, and the open one's name in the last of them.
    let mut above: Vec<(Identity, Vec<u8>)> = Vec::new();
    loop {
        if let Some(name) = remove_files(&directory)? {
            let parent = identity(&directory).map_err(kernel(&name))?;
            let entered = openat(&directory, &*name, DIRECTORY, Mode::empty()).map_err(kernel(&name))?;
            if identity(&entered).map_err(kernel(&name))?.0 != device {
                return Err(RemoveError::OtherFilesystem(name));
            }
            above.push((parent, name));
            directory = entered;
            continue;
        }
        let Some((parent, name)) = above.pop() else { return Ok(()) };
        let up = openat(&directory, "..", DIRECTORY, Mode::empty()).map_err(kernel(&name))?;
        if identity(&up).map_err(kernel(&name))? != parent {
            return Err(RemoveError::Moved);
        }
        directory = up;
        unlink(&directory, &name, AtFlags::REMOVEDIR).map_err(kernel(&name))?;
    }
}

/// Removes what is no directory; the first directory that was met, to be entered. `None`: it is empty.
fn remove_files(directory: &OwnedFd) -> Result<Option<Vec<u8>>, RemoveError> {
    let kernel = |error| RemoveError::Kernel(b".".to_vec(), error);
    let mut buffer = Vec::with_capacity(NAMES_BYTES);
    // Again until there was nothing: some filesystems leave names out while others are removed.
    let mut removed = true;
    while std::mem::take(&mut removed) {
        rustix::fs::seek(directory, rustix::fs::SeekFrom::Start(0)).map_err(kernel)?;
        let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(kernel)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let failed = |error| RemoveError::Kernel(name.to_vec(), error);
            if is_directory(directory, name, entry.file_type()).map_err(failed)? {
                return Ok(Some(name.to_vec()));
            }
            unlink(directory, name, AtFlags::empty()).map_err(failed)?;
            removed = true;
        }
    }
    Ok(None)
}

fn is_directory(directory: &OwnedFd, name: &[u8], told: FileType) -> Result<bool, Errno> {
    if told != FileType::Unknown {
        return Ok(told.is_dir());
    }
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode).is_dir()),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Somebody else having removed it is fine.
fn unlink(directory: &OwnedFd, name: &[u8], flags: AtFlags) -> Result<(), Errno> {
    match unlinkat(directory, name, flags) {
        Err(Errno::NOENT) => Ok(()),
        unlinked => unlinked,
    }
}

fn identity(directory: impl AsFd) -> Result<Identity, Errno> {
    let stat = fstat(directory)?;
    Ok((stat.st_dev, stat.st_ino))
}
