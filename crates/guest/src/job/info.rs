//! What a file is, in the protocol's words.

use std::{
    cell::RefCell,
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    os::fd::AsFd,
};

use bytes::Bytes;
use rustix::{
    fs::{AtFlags, CWD, Stat, readlinkat, statat},
    io::Errno,
};
use space_guest_proto::{
    job::{FileInfo, FileType},
    limits,
};

use crate::user::Accounts;

/// Makes infos: knows the names of users, and where relative paths begin.
pub(super) struct Infos {
    accounts: Accounts,
    home: Vec<u8>,
    /// Looked up before.
    owners: RefCell<HashMap<u32, String>>,
    groups: RefCell<HashMap<u32, String>>,
}

impl Infos {
    pub(super) fn new(accounts: Accounts, home: Vec<u8>) -> Self {
        Self { accounts, home, owners: RefCell::default(), groups: RefCell::default() }
    }

    pub(super) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// `path` as it is shown: absolute, without empty and `.` parts; symbolic links and `..` as they are.
    pub(super) fn absolute(&self, path: &[u8]) -> Vec<u8> {
        let mut absolute = Vec::new();
        let start: &[u8] = if path.starts_with(b"/") { b"" } else { &self.home };
        for part in parts(start).chain(parts(path)) {
            absolute.push(b'/');
            absolute.extend_from_slice(part);
        }
        if absolute.is_empty() { b"/".to_vec() } else { absolute }
    }

    /// Of what lies at `path`, followed or not.
    pub(super) fn at(&self, path: &[u8], follow: bool) -> Result<FileInfo, Errno> {
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let stat = statat(CWD, path, flags)?;
        Ok(self.of(&stat, self.absolute(path), CWD, path))
    }

    /// Of a file that was looked at: `name` in `directory`, shown as `shown`.
    pub(super) fn of(&self, stat: &Stat, shown: Vec<u8>, directory: impl AsFd, name: &[u8]) -> FileInfo {
        let file_type = file_type(stat);
        let link_target = if file_type == FileType::Symlink {
            readlinkat(directory, name, Vec::new()).map(Into::into).unwrap_or_default()
        } else {
            Vec::new()
        };
        FileInfo {
            path: Bytes::from(shown),
            file_type: file_type.into(),
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            owner: look_up(&self.owners, stat.st_uid, |uid| self.accounts.user_name(uid)),
            group: look_up(&self.groups, stat.st_gid, |gid| self.accounts.group_name(gid)),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            allocated: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512),
            modified_ns: modified_ns(stat),
            link_target: Bytes::from(link_target),
            version: version(stat),
        }
    }
}

fn look_up<'a>(
    known: &RefCell<HashMap<u32, String>>,
    number: u32,
    find: impl Fn(u32) -> Option<&'a str>,
) -> String {
    let name = || find(number).filter(|name| name.len() <= limits::USER_BYTES).unwrap_or_default().to_owned();
    known.borrow_mut().entry(number).or_insert_with(name).clone()
}

/// The parts of a path that mean something.
pub(super) fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".")
}

pub(super) fn file_type(stat: &Stat) -> FileType {
    match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::RegularFile => FileType::File,
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Fifo => FileType::Fifo,
        rustix::fs::FileType::Socket => FileType::Socket,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        rustix::fs::FileType::CharacterDevice => FileType::CharacterDevice,
        rustix::fs::FileType::Unknown => FileType::Unspecified,
    }
}

fn modified_ns(stat: &Stat) -> i64 {
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

fn version(stat: &Stat) -> u64 {
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino, stat.st_size).hash(&mut hasher);
    (stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec).hash(&mut hasher);
    hasher.finish()
}
