//! What a tar stream holds, put out on the disk.
//!
//! The stream is hostile. Names are taken part by part, and the kernel resolves them below the archive's own
//! directory (`RESOLVE_BENEATH`), whatever symbolic links the stream, or somebody else, has put there. What is in
//! an entry's place is removed first, never written through. Entries before one that fails stay.

use std::{
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
};

use bytes::{Buf, Bytes};
use rustix::{
    fs::{
        AtFlags, CWD, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT, Uid, chownat, fchmod,
        fchown, ftruncate, futimens, linkat, mkdirat, openat, seek, symlinkat, unlinkat, utimensat,
    },
    io::Errno,
    process::geteuid,
};
use space_guest_proto::{
    job::{Done, FailureKind, Opened, WriteArchive},
    limits,
};
use tar::{Archive, Entry, EntryType, Header};

use super::beneath::{Root, beneath_error, checked_parts, outside};
use crate::job::{
    Context, Outcome,
    failure::JobError,
    link::{Incoming, Link},
    target::open_or_make,
    write::write_all,
};

const NEW_FILE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Context {
    pub(in crate::job) fn write_archive(&mut self, job: &WriteArchive) -> Outcome {
        let directory = open_or_make(CWD, &job.path).map_err(JobError::at(&job.path))?;
        self.link.send_opened(Opened::default())?;
        let stream = Stream { link: &mut self.link, data: Bytes::new(), finished: false, failed: None };
        let mut archive = Archive::new(stream);
        let mut unpacking = Unpacking {
            root: Root::new(directory),
            buffer: vec![0; limits::JOB_DATA_BYTES],
            directories: Vec::new(),
            entries: 0,
            bytes: 0,
        };
        let unpacked = unpacking.all(&mut archive);
        let mut stream = archive.into_inner();
        match (unpacked, stream.failed.take()) {
            (_, Some(error)) | (Err(UnpackError::Job(error)), None) => return Err(error),
            (Err(UnpackError::Stream(error)), None) => {
                return Err(JobError::new(FailureKind::Archive, error.to_string()));
            }
            (Ok(()), None) => {}
        }
        stream.read_end()?;
        unpacking.finish_directories()?;
        Ok(Done { entries: unpacking.entries, bytes: unpacking.bytes, ..Done::default() })
    }
}

/// The data of the job's frames, one behind the other.
struct Stream<'a> {
    link: &'a mut Link,
    data: Bytes,
    finished: bool,
    /// Why reading failed, for what can't be said in an `io::Error`.
    failed: Option<JobError>,
}

impl Stream<'_> {
    /// Drops what follows the archive's end. A stream that was over before has no end.
    fn read_end(&mut self) -> Result<(), JobError> {
        if self.finished {
            return Err(JobError::new(FailureKind::Archive, "the stream ends before the archive does"));
        }
        while let Incoming::Data(_) = self.link.receive_data()? {}
        Ok(())
    }
}

impl Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.data.is_empty() && !self.finished {
            match self.link.receive_data() {
                Ok(Incoming::Data(data)) => self.data = data,
                Ok(Incoming::Finish) => self.finished = true,
                Err(error) => {
                    self.failed = Some(error);
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            }
        }
        let length = buffer.len().min(self.data.len());
        self.data.copy_to_slice(buffer.get_mut(..length).unwrap_or_default());
        Ok(length)
    }
}

enum UnpackError {
    Job(JobError),
    /// Of the stream, or of its being no tar.
    Stream(io::Error),
}

impl From<JobError> for UnpackError {
    fn from(error: JobError) -> Self {
        Self::Job(error)
    }
}

impl From<io::Error> for UnpackError {
    fn from(error: io::Error) -> Self {
        Self::Stream(error)
    }
}

struct Unpacking {
    root: Root,
    buffer: Vec<u8>,
    /// Their modes and times are set at the end: a directory may forbid to write into it.
    directories: Vec<(Vec<u8>, Attributes)>,
    entries: u64,
    bytes: u64,
}

/// Where an entry goes.
struct Place {
    parent: OwnedFd,
    name: Vec<u8>,
    /// As the archive has it, for messages.
    path: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Attributes {
    mode: Mode,
    /// Only root gives files away.
    owner: Option<(Uid, Gid)>,
    modified_s: i64,
}

impl Unpacking {
    fn all(&mut self, archive: &mut Archive<Stream<'_>>) -> Result<(), UnpackError> {
        for entry in archive.entries()? {
            self.entry(entry?)?;
        }
        Ok(())
    }

    fn entry(&mut self, mut entry: Entry<'_, Stream<'_>>) -> Result<(), UnpackError> {
        let path = entry.path_bytes().into_owned();
        let entry_type = entry.header().entry_type();
        if matches!(
            entry_type,
            EntryType::XGlobalHeader | EntryType::Char | EntryType::Block | EntryType::Fifo
        ) {
            return Ok(());
        }
        let Some(place) = self.place(&path)? else { return Ok(()) };
        let attributes = Attributes::of(entry.header())?;
        // As it was before there were types, a name may say that it is a directory's.
        if entry_type.is_dir() || entry_type.is_file() && path.ends_with(b"/") {
            self.make_directory(&place, attributes)?;
        } else if entry_type.is_file() || entry_type.is_contiguous() || entry_type.is_gnu_sparse() {
            self.write_file(&place, attributes, &mut entry)?;
        } else if entry_type.is_symlink() {
            make_symlink(&place, attributes, &link_name(&entry)?)?;
        } else if entry_type.is_hard_link() {
            self.make_link(&place, &link_name(&entry)?)?;
        } else {
            let text = format!("{}: of unknown type {entry_type:?}", String::from_utf8_lossy(&path));
            return Err(JobError::new(FailureKind::Archive, text).into());
        }
        self.entries += 1;
        Ok(())
    }

    /// `None`: the archive's own directory.
    fn place(&self, path: &[u8]) -> Result<Option<Place>, JobError> {
        let mut names = checked_parts(path)?;
        let Some(name) = names.pop() else { return Ok(None) };
        let parent = self.root.open_or_make(&names).map_err(beneath_error(path))?;
        Ok(Some(Place { parent, name: name.to_vec(), path: path.to_vec() }))
    }

    fn make_directory(&mut self, place: &Place, attributes: Attributes) -> Result<(), JobError> {
        let made = mkdirat(&place.parent, &*place.name, Mode::from_raw_mode(0o700));
        match made {
            // Also a symbolic link to a directory, if it leads nowhere else.
            Err(Errno::EXIST) => {
                let names = checked_parts(&place.path)?;
                self.root.open(&names).map_err(beneath_error(&place.path))?;
            }
            made => made.map_err(JobError::at(&place.path))?,
        }
        self.directories.push((place.path.clone(), attributes));
        Ok(())
    }

    fn write_file(
        &mut self,
        place: &Place,
        attributes: Attributes,
        entry: &mut Entry<'_, Stream<'_>>,
    ) -> Result<(), UnpackError> {
        let failed = JobError::at(&place.path);
        let create = || openat(&place.parent, &*place.name, NEW_FILE, Mode::from_raw_mode(0o600));
        let file = replace(place, create)?;
        let mut left = entry.size();
        let has_holes = entry.header().entry_type().is_gnu_sparse();
        if has_holes {
            // The filesystem refuses a file that it could never hold, before its zeros are gone through.
            ftruncate(&file, left).map_err(&failed)?;
        }
        while left > 0 {
            let read = match entry.read(&mut self.buffer) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let data = self.buffer.get(..read).unwrap_or_default();
            if has_holes && data.iter().all(|byte| *byte == 0) {
                seek(&file, SeekFrom::Current(i64::try_from(read).unwrap_or(0))).map_err(&failed)?;
            } else {
                write_all(file.as_fd(), data).map_err(&failed)?;
            }
            left = left.saturating_sub(read as u64);
            self.bytes += read as u64;
        }
        attributes.give(&file).map_err(&failed)?;
        Ok(())
    }

    /// A hard link to an entry that came before, or to what lay there.
    fn make_link(&self, place: &Place, target: &[u8]) -> Result<(), JobError> {
        let mut names = checked_parts(target)?;
        let name = names.pop().ok_or_else(|| outside(target))?;
        let parent = self.root.open(&names).map_err(beneath_error(target))?;
        replace(place, || linkat(&parent, name, &place.parent, &*place.name, AtFlags::empty()))
    }

    /// From the inside out. What was there before may be somebody else's, and stays as it is then.
    fn finish_directories(&mut self) -> Result<(), JobError> {
        for (path, attributes) in std::mem::take(&mut self.directories).into_iter().rev() {
            let names = checked_parts(&path)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = self.root.open_with(&names, flags);
            match opened.and_then(|directory| attributes.give(&directory)) {
                Ok(()) | Err(Errno::PERM | Errno::ACCESS | Errno::NOENT) => {}
                Err(error) => return Err(beneath_error(&path)(error)),
            }
        }
        Ok(())
    }
}

impl Attributes {
    fn of(header: &Header) -> io::Result<Self> {
        let number = |number: u64| u32::try_from(number).map_err(io::Error::other);
        let owner = if geteuid().is_root() {
            Some((Uid::from_raw(number(header.uid()?)?), Gid::from_raw(number(header.gid()?)?)))
        } else {
            None
        };
        let modified_s = i64::try_from(header.mtime()?).map_err(io::Error::other)?;
        Ok(Self { mode: Mode::from_raw_mode(header.mode()? & 0o7777), owner, modified_s })
    }

    fn timestamps(&self) -> Timestamps {
        Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: self.modified_s, tv_nsec: 0 },
        }
    }

    /// The owner first: changing it clears set-uid.
    fn give(&self, file: &OwnedFd) -> Result<(), Errno> {
        if let Some((uid, gid)) = self.owner {
            fchown(file, Some(uid), Some(gid))?;
        }
        fchmod(file, self.mode)?;
        futimens(file, &self.timestamps())
    }
}

fn make_symlink(place: &Place, attributes: Attributes, target: &[u8]) -> Result<(), JobError> {
    replace(place, || symlinkat(target, &place.parent, &*place.name))?;
    let failed = JobError::at(&place.path);
    if let Some((uid, gid)) = attributes.owner {
        chownat(&place.parent, &*place.name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(&failed)?;
    }
    utimensat(&place.parent, &*place.name, &attributes.timestamps(), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(&failed)
}

/// Makes something, in the place of what may be there.
fn replace<T>(place: &Place, make: impl Fn() -> Result<T, Errno>) -> Result<T, JobError> {
    let made = match make() {
        Err(Errno::EXIST) => unlinkat(&place.parent, &*place.name, AtFlags::empty()).and_then(|()| make()),
        made => made,
    };
    made.map_err(JobError::at(&place.path))
}

fn link_name(entry: &Entry<'_, Stream<'_>>) -> io::Result<Vec<u8>> {
    let name = entry.link_name_bytes().ok_or(io::ErrorKind::InvalidData)?;
    if name.contains(&0) { Err(io::ErrorKind::InvalidData.into()) } else { Ok(name.into_owned()) }
}
