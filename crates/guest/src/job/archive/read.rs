//! A tar stream of what lies on the disk.
//!
//! Stays on one filesystem: what is mounted below is told as an empty directory. A file that shrinks while it is
//! read is filled with zeros, one that grows is cut, as its size was told before.

use std::{
    collections::HashMap,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat},
    io::Errno,
};
use space_guest_proto::job::{Done, FailureKind, Opened, ReadArchive};
use tar::{EntryType, Header};

use super::{BLOCK, padding};
use crate::job::{
    Context, Outcome,
    failure::JobError,
    link::{Link, Outgoing},
    target::split,
};

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
/// What a header holds of a name; longer ones are in a PAX header before it.
const NAME_BYTES: usize = 100;
const ZEROS: [u8; BLOCK] = [0; BLOCK];

impl Context {
    pub(in crate::job) fn read_archive(&mut self, job: &ReadArchive) -> Outcome {
        let failed = JobError::at(&job.path);
        let stat = statat(CWD, &*job.path, AtFlags::empty()).map_err(&failed)?;
        let file_type = FileType::from_raw_mode(stat.st_mode);
        if !file_type.is_dir() && !file_type.is_file() {
            let path = String::from_utf8_lossy(&job.path);
            return Err(JobError::new(FailureKind::Type, format!("{path}: no file or directory")));
        }
        let flags = if file_type.is_dir() { DIRECTORY } else { FILE };
        let opened = openat(CWD, &*job.path, flags, Mode::empty()).map_err(&failed)?;
        self.link.send_opened(Opened::default())?;
        let mut packing = Packing {
            link: &mut self.link,
            outgoing: Outgoing::new(),
            linked: HashMap::new(),
            entries: 0,
            bytes: 0,
        };
        if file_type.is_dir() {
            packing.directory(opened, stat.st_dev)?;
        } else {
            let name = split(&job.path).map_or(&b"file"[..], |(_, name)| name);
            packing.file(name, &opened)?;
        }
        packing.end()
    }
}

struct Packing<'a> {
    link: &'a mut Link,
    outgoing: Outgoing,
    /// Files with several names: where the first of them is in the archive.
    linked: HashMap<(u64, u64), Vec<u8>>,
    entries: u64,
    bytes: u64,
}

/// A directory that is being read, and how it is called in the archive.
struct Level {
    directory: OwnedFd,
    entries: Dir,
    name: Vec<u8>,
}

impl Level {
    fn new(directory: OwnedFd, name: Vec<u8>) -> Result<Self, JobError> {
        let entries = Dir::read_from(&directory).map_err(JobError::at(&name))?;
        Ok(Self { directory, entries, name })
    }
}

impl Packing<'_> {
    fn directory(&mut self, directory: OwnedFd, device: u64) -> Result<(), JobError> {
        let mut levels = vec![Level::new(directory, Vec::new())?];
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.entries.read() else {
                levels.pop();
                continue;
            };
            let entry = entry.map_err(JobError::at(&level.name))?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let path = [&*level.name, name].concat();
            match self.entry(level.directory.as_fd(), name, path, device) {
                Ok(Some(below)) => levels.push(below),
                Ok(None) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// One entry, called `path` in the archive; what is to be read next if it is a directory.
    fn entry(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        mut path: Vec<u8>,
        device: u64,
    ) -> Result<Option<Level>, JobError> {
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // Removed meanwhile.
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(JobError::at(&path)(error)),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if self.is_another_name(&stat, &path)? => {}
            FileType::RegularFile => match openat(directory, name, FILE | OFlags::NOFOLLOW, Mode::empty()) {
                Ok(file) => self.file(&path, &file)?,
                Err(Errno::NOENT) => {}
                Err(error) => return Err(JobError::at(&path)(error)),
            },
            FileType::Symlink => {
                let target = readlinkat(directory, name, Vec::new()).map_err(JobError::at(&path))?;
                self.header(&path, &stat, EntryType::Symlink, 0, target.as_bytes())?;
            }
            FileType::Directory => {
                let opened = openat(directory, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
                let opened = opened.map_err(JobError::at(&path))?;
                path.push(b'/');
                self.header(&path, &stat, EntryType::Directory, 0, b"")?;
                if stat.st_dev == device {
                    return Level::new(opened, path).map(Some);
                }
            }
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => {}
        }
        Ok(None)
    }

    /// Puts out a link if the file is in the archive already.
    fn is_another_name(&mut self, stat: &Stat, path: &[u8]) -> Result<bool, JobError> {
        if stat.st_nlink < 2 {
            return Ok(false);
        }
        let identity = (stat.st_dev, stat.st_ino);
        let Some(first) = self.linked.get(&identity).cloned() else {
            self.linked.insert(identity, path.to_vec());
            return Ok(false);
        };
        self.header(path, stat, EntryType::Link, 0, &first)?;
        Ok(true)
    }

    fn file(&mut self, path: &[u8], file: &OwnedFd) -> Result<(), JobError> {
        let failed = JobError::at(path);
        let stat = fstat(file).map_err(&failed)?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Ok(());
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        self.header(path, &stat, EntryType::Regular, size, b"")?;
        let mut left = size;
        while left > 0 {
            let room = self.outgoing.room();
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(room.len());
            let room = room.get_mut(..wanted).unwrap_or_default();
            let read = match rustix::io::read(file, &mut *room) {
                Ok(0) => {
                    room.fill(0);
                    wanted
                }
                Ok(read) => read,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(failed(error)),
            };
            self.filled(read)?;
            left -= read as u64;
        }
        self.bytes += size;
        self.put(ZEROS.get(..padding(size)).unwrap_or_default())
    }

    fn header(
        &mut self,
        path: &[u8],
        stat: &Stat,
        entry_type: EntryType,
        size: u64,
        link: &[u8],
    ) -> Result<(), JobError> {
        let records = [record("path", path), record("linkpath", link)].concat();
        if !records.is_empty() {
            let mut header = plain(EntryType::XHeader, records.len() as u64, b"././@PaxHeader", b"");
            self.put_header(&mut header)?;
            self.put(&records)?;
            self.put(ZEROS.get(..padding(records.len() as u64)).unwrap_or_default())?;
        }
        let mut header = plain(entry_type, size, path, link);
        header.set_mode(stat.st_mode & 0o7777);
        header.set_uid(stat.st_uid.into());
        header.set_gid(stat.st_gid.into());
        header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
        self.entries += 1;
        self.put_header(&mut header)
    }

    fn put_header(&mut self, header: &mut Header) -> Result<(), JobError> {
        header.set_cksum();
        self.put(header.as_bytes())
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<(), JobError> {
        while !bytes.is_empty() {
            let room = self.outgoing.room();
            let length = room.len().min(bytes.len());
            let (now, later) = bytes.split_at(length);
            room.get_mut(..length).unwrap_or_default().copy_from_slice(now);
            bytes = later;
            self.filled(length)?;
        }
        Ok(())
    }

    fn filled(&mut self, bytes: usize) -> Result<(), JobError> {
        self.outgoing.filled(bytes);
        if self.outgoing.is_full() { self.link.send_data(&mut self.outgoing) } else { Ok(()) }
    }

    fn end(mut self) -> Outcome {
        self.put(&[0; 2 * BLOCK])?;
        self.link.send_data(&mut self.outgoing)?;
        Ok(Done { entries: self.entries, bytes: self.bytes, ..Done::default() })
    }
}

fn plain(entry_type: EntryType, size: u64, path: &[u8], link: &[u8]) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(entry_type);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    let old = header.as_old_mut();
    for (field, text) in [(&mut old.name, path), (&mut old.linkname, link)] {
        for (byte, value) in field.iter_mut().zip(text) {
            *byte = *value;
        }
    }
    header
}

/// A PAX record, if a header can't hold the value: `length key=value\n`, the length counting itself.
fn record(key: &str, value: &[u8]) -> Vec<u8> {
    if value.len() <= NAME_BYTES {
        return Vec::new();
    }
    let rest = key.len() + value.len() + 3;
    let mut length = rest;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pax_record_counts_itself() {
        for bytes in [101, 988, 989, 990, 991, 9990, 9991] {
            let record = record("path", &vec![b'x'; bytes]);
            let text = String::from_utf8(record).unwrap();
            let (length, rest) = text.split_once(' ').unwrap();
            assert_eq!(length.parse(), Ok(text.len()), "{bytes}");
            assert!(rest.starts_with("path=x") && rest.ends_with("x\n"));
        }
        assert!(record("path", &[b'x'; NAME_BYTES]).is_empty());
    }
}
