//! From a path to the directory and the name that a change is made to.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, mkdirat, openat, readlinkat, statat},
    io::Errno,
};
use space_guest_proto::job::FailureKind;

use super::failure::JobError;

/// As the kernel has it.
const LINKS: usize = 40;
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const PARENT_MODE: Mode = Mode::from_raw_mode(0o755);

/// A name in a directory that is open.
pub(super) struct Target {
    pub(super) directory: OwnedFd,
    pub(super) name: Vec<u8>,
    /// What is there; never a symbolic link behind [`follow`](Self::follow).
    pub(super) present: Option<Stat>,
}

impl Target {
    /// Where `path` leads, itself not followed.
    pub(super) fn new(path: &[u8], parents: bool) -> Result<Self, JobError> {
        Self::from(CWD, path, parents)
    }

    fn from(start: BorrowedFd<'_>, path: &[u8], parents: bool) -> Result<Self, JobError> {
        let failed = JobError::at(path);
        let (parent, name) = split(path).ok_or_else(|| failed(Errno::INVAL))?;
        let directory = if parents { open_or_make(start, parent) } else { open(start, parent) };
        let directory = directory.map_err(&failed)?;
        let present = match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(failed(error)),
        };
        Ok(Self { directory, name: name.to_vec(), present })
    }

    /// Where a program would write that opens this: behind symbolic links, dangling ones too.
    pub(super) fn follow(mut self, path: &[u8]) -> Result<Self, JobError> {
        for _ in 0..LINKS {
            if !self.present.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink()) {
                return Ok(self);
            }
            let link = readlinkat(&self.directory, &*self.name, Vec::new()).map_err(JobError::at(path))?;
            self = Self::from(self.directory.as_fd(), link.as_bytes(), false)?;
        }
        Err(JobError::at(path)(Errno::LOOP))
    }
}

/// The directory and the name; `None` where there is no name to make or replace: `/`, `..`, `a/.`.
pub(super) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let path = path.get(..end)?;
    let name_at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (parent, name) = path.split_at(name_at);
    if name == b"." || name == b".." { None } else { Some((parent, name)) }
}

fn open(start: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    openat(start, if path.is_empty() { b"." } else { path }, DIRECTORY, Mode::empty())
}

/// Makes what is missing on the way.
pub(super) fn open_or_make(start: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    match open(start, path) {
        Err(Errno::NOENT) => {}
        opened => return opened,
    }
    let root: &[u8] = if path.starts_with(b"/") { b"/" } else { b"" };
    let mut directory = open(start, root)?;
    for part in super::info::parts(path) {
        directory = match open(directory.as_fd(), part) {
            Err(Errno::NOENT) => make(&directory, part)?,
            opened => opened?,
        };
    }
    Ok(directory)
}

fn make(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    match mkdirat(parent, name, PARENT_MODE) {
        // Somebody else made it, or it is a symbolic link to nowhere: opening tells.
        Ok(()) | Err(Errno::EXIST) => open(parent.as_fd(), name),
        Err(error) => Err(error),
    }
}

/// `path` can not name a file: it says that it is a directory.
pub(super) fn refuse_directory_name(path: &[u8]) -> Result<(), JobError> {
    if path.ends_with(b"/") || split(path).is_none() {
        let text = format!("{}: the name of a directory", String::from_utf8_lossy(path));
        return Err(JobError::new(FailureKind::IsADirectory, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_splits_into_directory_and_name() {
        type Split = Option<(&'static [u8], &'static [u8])>;
        let cases: [(&[u8], Split); 8] = [
            (b"a", Some((b"", b"a"))),
            (b"a/b", Some((b"a/", b"b"))),
            (b"/a", Some((b"/", b"a"))),
            (b"/a/b//", Some((b"/a/", b"b"))),
            (b"/", None),
            (b"a/..", None),
            (b"a/.", None),
            (b"...", Some((b"", b"..."))),
        ];
        for (path, expected) in cases {
            assert_eq!(split(path), expected, "{}", String::from_utf8_lossy(path));
        }
    }
}
