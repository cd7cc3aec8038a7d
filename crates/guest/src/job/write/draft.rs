//! A file that nobody sees until it is complete.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, Stat, fstat, linkat, openat, unlinkat},
    io::Errno,
    rand::{GetRandomFlags, getrandom},
};

use super::{DRAFT_MODE, NEW_FILE, Target, Wanted, rename};
use crate::sys::signals::Uninterrupted;

/// Tries for a name that is free.
const NAMES: usize = 16;

pub(super) struct Draft {
    file: OwnedFd,
    /// Where the filesystem has no unnamed files. Removed when the draft isn't placed.
    named: Option<Named>,
}

struct Named {
    directory: OwnedFd,
    name: Vec<u8>,
    /// A host that goes is noticed at the connection then, so that the file can be removed.
    _held: Uninterrupted,
}

impl Draft {
    pub(super) fn new(directory: BorrowedFd<'_>) -> Result<Self, Errno> {
        let unnamed = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match openat(directory, ".", unnamed, DRAFT_MODE) {
            Ok(file) => Ok(Self { file, named: None }),
            // As a kernel or a filesystem says that doesn't know it.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => Self::named(directory),
            Err(error) => Err(error),
        }
    }

    fn named(directory: BorrowedFd<'_>) -> Result<Self, Errno> {
        let held = Uninterrupted::new();
        let (name, file) = with_free_name(|name| openat(directory, name, NEW_FILE, DRAFT_MODE))?;
        let directory = openat(directory, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { file, named: Some(Named { directory, name, _held: held }) })
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Gives it the target's name. From here to the end the job is not cancelled: between the two names that
    /// a replacement takes it would leave one behind.
    /// What it is then: a new name changes its times, and with them its version.
    pub(super) fn place(mut self, target: &Target, wanted: &Wanted) -> Result<Stat, Errno> {
        let _held = Uninterrupted::new();
        self.give_name(target, wanted)?;
        fstat(&self.file)
    }

    fn give_name(&mut self, target: &Target, wanted: &Wanted) -> Result<(), Errno> {
        if let Some(named) = &self.named {
            rename(target, &named.name, wanted.exclusive)?;
            self.named = None;
            return Ok(());
        }
        match self.link(target, &target.name) {
            Err(Errno::EXIST) if !wanted.exclusive => {}
            linked => return linked,
        }
        let (name, ()) = with_free_name(|name| self.link(target, name))?;
        let renamed = rename(target, &name, false);
        if renamed.is_err() {
            unlinkat(&target.directory, &*name, AtFlags::empty()).ok();
        }
        renamed
    }

    fn link(&self, target: &Target, name: &[u8]) -> Result<(), Errno> {
        // Linking by descriptor alone needs a capability.
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        linkat(CWD, path, &target.directory, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        // After a rename there is nothing of this name.
        unlinkat(&self.directory, &*self.name, AtFlags::empty()).ok();
    }
}

/// Does something with a name that nothing has.
fn with_free_name<T>(make: impl Fn(&[u8]) -> Result<T, Errno>) -> Result<(Vec<u8>, T), Errno> {
    for _ in 0..NAMES {
        let name = free_name()?;
        match make(&name) {
            Err(Errno::EXIST) => {}
            made => return made.map(|made| (name, made)),
        }
    }
    Err(Errno::EXIST)
}

fn free_name() -> Result<Vec<u8>, Errno> {
    let mut random = [0_u8; 8];
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(format!(".{:016x}.space-write", u64::from_ne_bytes(random)).into_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    fn target(directory: &std::path::Path) -> Target {
        let path = directory.join("f").into_os_string().into_encoded_bytes();
        Target::new(&path, false).unwrap()
    }

    /// Times of files go by a clock that ticks every few milliseconds.
    fn next_tick() {
        let now = || clock_gettime(ClockId::RealtimeCoarse);
        let before = now();
        while now() == before {
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_was_placed_is_told_as_it_is_under_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let target = target(directory.path());
        let wanted = Wanted { mode: Mode::from_raw_mode(0o644), owner: None, exclusive: false };
        // The second one replaces the first.
        for _ in 0..2 {
            let draft = Draft::new(target.directory.as_fd()).unwrap();
            next_tick();
            let told = draft.place(&target, &wanted).unwrap();
            let found = rustix::fs::stat(directory.path().join("f")).unwrap();
            assert_eq!((told.st_ino, told.st_ctime_nsec), (found.st_ino, found.st_ctime_nsec));
        }
    }

    #[test]
    fn without_unnamed_files_a_draft_is_placed_or_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let names = || fs::read_dir(directory.path()).unwrap().count();
        let target = target(directory.path());
        let abandoned = Draft::named(target.directory.as_fd()).unwrap();
        assert_eq!(names(), 1);
        drop(abandoned);
        assert_eq!(names(), 0);
        for (exclusive, expected) in [(true, Ok(())), (false, Ok(())), (true, Err(Errno::EXIST))] {
            let wanted = Wanted { mode: Mode::from_raw_mode(0o644), owner: None, exclusive };
            let draft = Draft::named(target.directory.as_fd()).unwrap();
            assert_eq!(draft.place(&target, &wanted).map(drop), expected);
            assert_eq!(names(), 1);
        }
        assert!(directory.path().join("f").exists());
    }
}
