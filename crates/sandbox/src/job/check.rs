//! What a guest may say on a job's connection.

use std::cmp::Ordering;

use space_guest_proto::{
    DecodeError,
    job::{Change, ChangeKind, Entries, FileInfo, FileType, ListDirectory},
    limits,
};

/// How the guest broke the protocol.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("a malformed frame")]
    Frame(#[from] DecodeError),
    #[error("a handshake that is none")]
    Handshake,
    #[error("{0} where it does not belong")]
    Order(&'static str),
    #[error("bytes behind the end")]
    AfterDone,
    #[error("a file with {0}")]
    Info(&'static str),
    #[error("a listing with {0}")]
    Listing(&'static str),
    #[error("a change that is none")]
    Change,
    #[error("more data than was asked for")]
    Excess,
    #[error("an upload that holds something else than was sent")]
    Offset,
}

/// An absolute path as the kernel takes it.
fn is_path(path: &[u8]) -> bool {
    path.starts_with(b"/") && path.len() < limits::PATH_BYTES && !path.contains(&0)
}

pub(crate) fn info(info: &FileInfo) -> Result<(), Broken> {
    if !is_path(&info.path) {
        return Err(Broken::Info("a path that is none"));
    }
    if FileType::try_from(info.file_type).is_err() {
        return Err(Broken::Info("a type that is none"));
    }
    if info.mode > 0o7777 {
        return Err(Broken::Info("permission bits that don't exist"));
    }
    if info.owner.len() > limits::TEXT_BYTES || info.group.len() > limits::TEXT_BYTES {
        return Err(Broken::Info("an owner's name that is too long"));
    }
    if info.link_target.len() >= limits::PATH_BYTES || info.link_target.contains(&0) {
        return Err(Broken::Info("a link to what is no path"));
    }
    Ok(())
}

pub(crate) fn change(change: &Change) -> Result<(), Broken> {
    let fits = match ChangeKind::try_from(change.kind) {
        Ok(ChangeKind::Lost) => change.path.is_empty(),
        Ok(
            ChangeKind::Created
            | ChangeKind::Written
            | ChangeKind::Removed
            | ChangeKind::Attributes
            | ChangeKind::Moved,
        ) => is_path(&change.path),
        Ok(ChangeKind::Unspecified) | Err(_) => false,
    };
    if fits { Ok(()) } else { Err(Broken::Change) }
}

/// The names in a path. `a//b`, `a/./b` and `a/b/` have the same.
fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".")
}

/// A listing as it comes: in order, within what was asked for, and with an end.
pub(crate) struct Listing {
    asked: ListDirectory,
    entries: Vec<FileInfo>,
}

impl Listing {
    pub(crate) fn new(asked: ListDirectory) -> Self {
        Self { asked, entries: Vec::new() }
    }

    pub(crate) fn take(&mut self, more: Entries) -> Result<(), Broken> {
        if more.entries.is_empty() {
            return Err(Broken::Listing("a part without entries"));
        }
        for entry in more.entries {
            self.entry(&entry)?;
            self.entries.push(entry);
        }
        Ok(())
    }

    pub(crate) fn into_entries(self) -> Vec<FileInfo> {
        self.entries
    }

    fn entry(&self, entry: &FileInfo) -> Result<(), Broken> {
        info(entry)?;
        if self.entries.len() >= usize::try_from(self.asked.limit).unwrap_or(usize::MAX) {
            return Err(Broken::Listing("more entries than asked for"));
        }
        let in_order = |last: &FileInfo| parts(&last.path).cmp(parts(&entry.path)) == Ordering::Less;
        if !self.entries.last().is_none_or(in_order) {
            return Err(Broken::Listing("entries out of order"));
        }
        match self.below(&entry.path) {
            Some(relative) => self.check_relative(&relative),
            None if self.root_is_known() => Err(Broken::Listing("an entry of another directory")),
            None => Ok(()),
        }
    }

    fn check_relative(&self, relative: &[&[u8]]) -> Result<(), Broken> {
        let depth = usize::try_from(self.asked.depth).unwrap_or(usize::MAX);
        if relative.is_empty() || relative.len() > depth {
            return Err(Broken::Listing("an entry at a depth that was not asked for"));
        }
        let behind = relative.iter().copied().cmp(parts(&self.asked.after)) == Ordering::Greater;
        if behind { Ok(()) } else { Err(Broken::Listing("an entry of a page before")) }
    }

    /// Where a relative path begins, and where `..` leads, only the guest knows.
    fn root_is_known(&self) -> bool {
        self.asked.path.starts_with(b"/") && !parts(&self.asked.path).any(|part| part == b"..")
    }

    /// The names of `path` below the directory.
    fn below<'a>(&self, path: &'a [u8]) -> Option<Vec<&'a [u8]>> {
        if !self.root_is_known() {
            return None;
        }
        let mut names = parts(path);
        parts(&self.asked.path).all(|part| names.next() == Some(part)).then(|| names.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> FileInfo {
        FileInfo { path: path.as_bytes().to_vec().into(), file_type: 1, ..FileInfo::default() }
    }

    fn listing(path: &str, depth: u32, after: &str, entries: &[&str]) -> Result<(), Broken> {
        let (path, after) = (path.as_bytes().to_vec().into(), after.as_bytes().to_vec().into());
        let mut listing = Listing::new(ListDirectory { path, depth, after, limit: 4 });
        listing.take(Entries { entries: entries.iter().map(|path| file(path)).collect() })
    }

    #[test]
    fn an_honest_listing_passes() {
        listing("/d", 1, "", &["/d/a", "/d/b"]).unwrap();
        listing("/d//./", 2, "a", &["/d/a/x", "/d/a.b", "/d/b"]).unwrap();
        listing("/", 1, "bin", &["/etc"]).unwrap();
        listing("work", 1, "", &["/root/work/a"]).unwrap();
        listing("/d/../e", 1, "", &["/e/a"]).unwrap();
    }

    #[test]
    fn what_was_not_asked_for_is_broken() {
        let lies: [(&str, u32, &str, &[&str]); 8] = [
            ("/d", 1, "", &[]),
            ("/d", 1, "", &["/d/b", "/d/a"]),
            ("/d", 1, "", &["/d/a", "/d/a"]),
            ("/d", 1, "", &["/e/a"]),
            ("/d", 1, "", &["/d"]),
            ("/d", 1, "", &["/d/a/b"]),
            ("/d", 1, "b", &["/d/b"]),
            ("/d", 1, "", &["/d/1", "/d/2", "/d/3", "/d/4", "/d/5"]),
        ];
        for (path, depth, after, entries) in lies {
            assert!(listing(path, depth, after, entries).is_err(), "{path} {entries:?}");
        }
    }

    #[test]
    fn a_file_that_can_not_be_is_broken() {
        let lies = [
            FileInfo { path: "a".into(), ..file("/") },
            FileInfo { path: "/a\0".into(), ..file("/") },
            FileInfo { path: vec![b'/'; limits::PATH_BYTES].into(), ..file("/") },
            FileInfo { file_type: 8, ..file("/a") },
            FileInfo { mode: 0o10000, ..file("/a") },
            FileInfo { owner: "x".repeat(limits::TEXT_BYTES + 1), ..file("/a") },
            FileInfo { link_target: vec![b'x'; limits::PATH_BYTES].into(), ..file("/a") },
        ];
        for lie in lies {
            assert!(info(&lie).is_err(), "{lie:?}");
        }
        info(&file("/a")).unwrap();
    }

    #[test]
    fn a_change_has_a_kind_and_a_path_unless_it_is_a_loss() {
        let told = |kind: i32, path: &'static str| change(&Change { kind, path: path.into() }).is_ok();
        assert!(told(1, "/a") && told(6, ""));
        assert!(!told(0, "/a") && !told(7, "/a") && !told(1, "") && !told(6, "/a"));
    }
}
