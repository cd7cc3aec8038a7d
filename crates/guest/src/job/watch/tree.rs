//! The directories that a watch watches, each with its path as it is now.

use std::{
    collections::HashMap,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, RawDir,
        inotify::{self, WatchFlags},
        openat, statat,
    },
    io::Errno,
};
use space_guest_proto::{job::FailureKind, limits};

use crate::job::{failure::JobError, target::split};

const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::EXCL_UNLINK)
    .union(WatchFlags::ONLYDIR);
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);
const NAMES_BYTES: usize = 32 * 1024;

pub(super) struct Tree {
    inotify: OwnedFd,
    paths: HashMap<i32, Vec<u8>>,
    root: Vec<u8>,
    root_watch: i32,
    recursive: bool,
    /// Of a file its directory is watched, so that one that takes its place is seen too.
    only: Option<Vec<u8>>,
}

impl Tree {
    /// `path` is absolute.
    pub(super) fn new(path: Vec<u8>, recursive: bool) -> Result<Self, JobError> {
        let stat = statat(CWD, &*path, AtFlags::empty()).map_err(JobError::at(&path))?;
        let (root, only) = match split(&path) {
            Some((parent, name)) if !FileType::from_raw_mode(stat.st_mode).is_dir() => {
                let parent = parent.strip_suffix(b"/").filter(|parent| !parent.is_empty());
                (parent.unwrap_or(b"/").to_vec(), Some(name.to_vec()))
            }
            _ => (path, None),
        };
        let recursive = recursive && only.is_none();
        let mut tree =
            Self { inotify: super::queue()?, paths: HashMap::new(), root, root_watch: -1, recursive, only };
        tree.watch_all()?;
        Ok(tree)
    }

    /// Watches everything anew, after events were lost.
    pub(super) fn again(&mut self) -> Result<(), JobError> {
        self.paths.clear();
        self.inotify = super::queue()?;
        self.watch_all()
    }

    fn watch_all(&mut self) -> Result<(), JobError> {
        let root = self.root.clone();
        self.root_watch = self.watch(&root, WatchFlags::empty()).map_err(at(&root))?;
        if self.recursive { self.add_below(root, |_, _| {}) } else { Ok(()) }
    }

    pub(super) fn inotify(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    pub(super) fn root(&self) -> &[u8] {
        &self.root
    }

    pub(super) fn is_root(&self, watch: i32) -> bool {
        watch == self.root_watch
    }

    pub(super) fn path(&self, watch: i32) -> Option<&[u8]> {
        self.paths.get(&watch).map(Vec::as_slice)
    }

    pub(super) fn is_watched(&self, path: &[u8]) -> bool {
        self.paths.values().any(|watched| watched == path)
    }

    /// Whether changes of this name are told.
    pub(super) fn wants(&self, name: &[u8]) -> bool {
        self.only.as_ref().is_none_or(|only| only == name)
    }

    /// Watches a directory that is new, and what it holds. `found` is given each thing in it, and whether it
    /// is a file with something in it.
    pub(super) fn add(&mut self, path: Vec<u8>, found: impl FnMut(&[u8], bool)) -> Result<(), JobError> {
        if !self.recursive {
            return Ok(());
        }
        match self.watch(&path, WatchFlags::DONT_FOLLOW) {
            Ok(_) => self.add_below(path, found),
            Err(error) if is_passing(error) => Ok(()),
            Err(error) => Err(at(&path)(error)),
        }
    }

    fn add_below(&mut self, path: Vec<u8>, mut found: impl FnMut(&[u8], bool)) -> Result<(), JobError> {
        let mut waiting = vec![path];
        while let Some(path) = waiting.pop() {
            let watched = self.add_entries(&path, &mut waiting, &mut found);
            watched.or_else(|error| if is_passing(error) { Ok(()) } else { Err(at(&path)(error)) })?;
        }
        Ok(())
    }

    /// Watches the directories in a watched directory, and leaves it to the caller to look into them.
    fn add_entries(
        &mut self,
        path: &[u8],
        waiting: &mut Vec<Vec<u8>>,
        found: &mut impl FnMut(&[u8], bool),
    ) -> Result<(), Errno> {
        let follow = if path == self.root { DIRECTORY.difference(OFlags::NOFOLLOW) } else { DIRECTORY };
        let directory = openat(CWD, path, follow, Mode::empty())?;
        let mut buffer = Vec::with_capacity(NAMES_BYTES);
        let mut entries = RawDir::new(&directory, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let Ok(stat) = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let below = join(path, name);
            let file_type = FileType::from_raw_mode(stat.st_mode);
            found(&below, file_type.is_file() && stat.st_size > 0);
            if !file_type.is_dir() {
                continue;
            }
            match self.watch(&below, WatchFlags::DONT_FOLLOW) {
                Ok(_) => waiting.push(below),
                Err(error) if is_passing(error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn watch(&mut self, path: &[u8], flags: WatchFlags) -> Result<i32, Errno> {
        if self.paths.len() >= limits::WATCHES {
            return Err(Errno::NOSPC);
        }
        let watch = super::add(&self.inotify, path, CHANGES | flags)?;
        self.paths.insert(watch, path.to_vec());
        Ok(watch)
    }

    /// A directory has another name.
    pub(super) fn rename(&mut self, from: &[u8], to: &[u8]) {
        for path in self.paths.values_mut() {
            if let Some(rest) = below(from, path) {
                *path = [to, rest].concat();
            }
        }
    }

    /// A directory has left the tree.
    pub(super) fn forget(&mut self, path: &[u8]) {
        let left: Vec<i32> = self
            .paths
            .iter()
            .filter(|(_, watched)| below(path, watched).is_some())
            .map(|(watch, _)| *watch)
            .collect();
        for watch in left {
            self.paths.remove(&watch);
            // Removed meanwhile: the same in the end.
            inotify::remove_watch(&self.inotify, watch).ok();
        }
    }

    /// The kernel has dropped a watch.
    pub(super) fn ignored(&mut self, watch: i32) {
        self.paths.remove(&watch);
    }
}

/// What of `path` lies behind `directory`, if it is that or below it.
fn below<'a>(directory: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(directory)?;
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

pub(super) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let separator: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, separator, name].concat()
}

/// What is no reason to end the watch: the directory is gone meanwhile, or the user may not look into it.
fn is_passing(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::PERM)
}

/// The kernel means a limit of its own by "no space".
fn at(path: &[u8]) -> impl Fn(Errno) -> JobError + use<'_> {
    move |error| match error {
        Errno::NOSPC => JobError::new(
            FailureKind::Exhausted,
            format!("{}: too many directories to watch", String::from_utf8_lossy(path)),
        ),
        other => JobError::at(path)(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_is_by_whole_names() {
        assert_eq!(below(b"/a/b", b"/a/b/c"), Some(&b"/c"[..]));
        assert_eq!(below(b"/a/b", b"/a/b"), Some(&b""[..]));
        assert_eq!(below(b"/a/b", b"/a/bc"), None);
        assert_eq!((join(b"/", b"x"), join(b"/a", b"x")), (b"/x".to_vec(), b"/a/x".to_vec()));
    }
}
