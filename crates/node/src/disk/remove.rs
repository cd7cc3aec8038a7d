//! Removal of a tree that a hostile process filled.
//!
//! Such a tree may be as deep as its maker had patience for, so nothing recurses and no path grows: each
//! subdirectory found is first moved up to the top under a fresh name, which keeps the depth at one. Nothing
//! is ever opened but directories, without following links.
//!
//! Its maker may be at work still: a worker holds its spool's descriptor for as long as it likes. So each directory is
//! taken from its owner before it is looked into, and from then on nothing new appears in it.

use std::{ffi::CStr, io};

use camino::Utf8Path;
use rustix::{
    fd::{BorrowedFd, OwnedFd},
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fchmod, fchown, openat, renameat, statat, unlinkat},
    io::Errno,
    process::geteuid,
};

const OPEN: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes the directory `path` and all below it. Idempotent. Blocks.
pub(crate) fn remove_tree(path: &Utf8Path) -> io::Result<()> {
    let top = match openat(CWD, path.as_str(), OPEN, Mode::empty()) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    seize(&top)?;
    let mut lifted = Lifted { top, next: 0 };
    // Every round removes all but the directories that it lifted, and so ends with the deepest level.
    while lifted.clear_top()? {}
    Ok(unlinkat(CWD, path.as_str(), AtFlags::REMOVEDIR)?)
}

struct Lifted {
    top: OwnedFd,
    next: u64,
}

impl Lifted {
    /// Empties each directory in the top one, lifting what is below it, and removes all else there. Answers
    /// whether directories remain.
    fn clear_top(&mut self) -> io::Result<bool> {
        let mut directories = Vec::new();
        for entry in Dir::read_from(&self.top)? {
            let entry = entry?;
            if is_dots(entry.file_name()) {
                continue;
            }
            match kind(&self.top, entry.file_name(), entry.file_type())? {
                FileType::Directory => directories.push(entry.file_name().to_owned()),
                FileType::RegularFile
                | FileType::Symlink
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => unlinkat(&self.top, entry.file_name(), AtFlags::empty())?,
            }
        }
        for name in &directories {
            self.empty(name)?;
            unlinkat(&self.top, name.as_c_str(), AtFlags::REMOVEDIR)?;
        }
        Ok(!directories.is_empty())
    }

    fn empty(&mut self, name: &CStr) -> io::Result<()> {
        let directory = openat(&self.top, name, OPEN, Mode::empty())?;
        seize(&directory)?;
        let mut entries = Dir::read_from(&directory)?;
        let mut names = Vec::new();
        while let Some(entry) = entries.read() {
            let entry = entry?;
            if !is_dots(entry.file_name()) {
                let found = kind(&directory, entry.file_name(), entry.file_type())?;
                names.push((entry.file_name().to_owned(), found == FileType::Directory));
            }
        }
        for (name, is_directory) in names {
            if is_directory {
                self.lift(&directory, &name)?;
            } else {
                unlinkat(&directory, name.as_c_str(), AtFlags::empty())?;
            }
        }
        Ok(())
    }

    fn lift(&mut self, from: &OwnedFd, name: &CStr) -> io::Result<()> {
        loop {
            let target = format!(".lifted-{}", self.next);
            self.next += 1;
            match renameat(from, name, &self.top, target.as_str()) {
                // A name that somebody else chose before us: take the next.
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                other => return Ok(other?),
            }
        }
    }
}

/// Whoever made the directory can make nothing in it any more, by no descriptor: the kernel checks permissions at each
/// creation, under the directory's own lock.
fn seize(directory: &OwnedFd) -> io::Result<()> {
    fchown(directory, Some(geteuid()), None)?;
    Ok(fchmod(directory, Mode::RWXU)?)
}

fn is_dots(name: &CStr) -> bool {
    name == c"." || name == c".."
}

fn kind(directory: &OwnedFd, name: &CStr, told: FileType) -> io::Result<FileType> {
    if told != FileType::Unknown {
        return Ok(told);
    }
    let directory: BorrowedFd<'_> = rustix::fd::AsFd::as_fd(directory);
    Ok(FileType::from_raw_mode(statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs,
        os::unix::{
            fs::{PermissionsExt, symlink},
            process::CommandExt,
        },
        path::Path,
    };

    fn utf8(path: &Path) -> &Utf8Path {
        Utf8Path::from_path(path).unwrap()
    }

    #[test]
    fn what_links_point_to_stays() {
        let directory = tempfile::tempdir().unwrap();
        let honeytoken = directory.path().join("honeytoken");
        fs::write(&honeytoken, "secret").unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        symlink(&honeytoken, tree.join("a/link")).unwrap();
        symlink(directory.path(), tree.join("a/b/up")).unwrap();
        fs::hard_link(&honeytoken, tree.join("hard")).unwrap();
        remove_tree(utf8(&tree)).unwrap();
        assert!(!tree.exists());
        assert_eq!(fs::read_to_string(honeytoken).unwrap(), "secret");
    }

    #[test]
    fn depth_is_no_obstacle() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let mut at = fs::File::open(&tree).unwrap().into();
        for _ in 0..1_200 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = openat(&at, "d", OPEN, Mode::empty()).unwrap();
        }
        drop::<OwnedFd>(at);
        remove_tree(utf8(&tree)).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn a_directory_that_its_maker_closed_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        for path in [tree.join("a/b"), tree.join("a")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
        }
        remove_tree(utf8(&tree)).unwrap();
        assert!(!tree.exists());
    }

    /// Needs root: another user's process keeps making files while the tree is removed.
    #[test]
    fn a_maker_that_goes_on_writing_holds_up_no_removal() {
        if !geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir(&tree).unwrap();
        std::os::unix::fs::chown(&tree, Some(65_534), Some(65_534)).unwrap();
        let script = "mkdir d; while :; do echo x >f$RANDOM$$ && echo x >d/f$RANDOM$$ || exit; done";
        let mut maker = std::process::Command::new("/bin/bash")
            .args(["-c", script])
            .current_dir(&tree)
            .uid(65_534)
            .gid(65_534)
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        while fs::read_dir(&tree).unwrap().count() < 3 {
            std::thread::yield_now();
        }
        remove_tree(utf8(&tree)).unwrap();
        assert!(!tree.exists());
        maker.wait().unwrap();
    }

    #[test]
    fn removing_what_is_not_there_succeeds() {
        remove_tree(Utf8Path::new("/nonexistent/tree")).unwrap();
    }

    #[test]
    fn names_like_our_own_do_not_confuse() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir_all(tree.join("a/x")).unwrap();
        fs::create_dir_all(tree.join(".lifted-0/full")).unwrap();
        fs::write(tree.join(".lifted-1"), "").unwrap();
        remove_tree(utf8(&tree)).unwrap();
        assert!(!tree.exists());
    }
}
