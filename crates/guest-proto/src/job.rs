//! Jobs: one file operation or tunnel each, on a connection of its own to [`JOB_PORT`](crate::JOB_PORT).
//!
//! ```text
//! host                                   guest
//! OpenJob ────────────────────────────▶
//!         ◀──────────────────────────── Opened      reads, writes, archives, watches, tunnels
//! Data* Finish ───────────────────────▶             writes, archives to the guest, tunnels
//!         ◀──────────────────────────── Data* | Entries* | Changes*
//!         ◀──────────────────────────── Done        always last: the result, or why not
//! ```
//! The connection's own flow control is the only one: who doesn't read stops the other side. A host that closes
//! the connection before [`Done`] cancels the job; what it did to the disk until then is undone where that is
//! possible (a file that was being written never appears).
//!
//! A guest that breaks the order, or a limit, is closed on, like everywhere in this protocol.

use bytes::{Buf as _, BufMut, Bytes, BytesMut};
use prost::{
    Enumeration, Message, Oneof,
    encoding::{DecodeContext, decode_key, skip_field},
};

use crate::{
    frame::{self, RawFrame, kind},
    limits,
    wire::{DecodeError, EncodeError, put_message},
};

/// The first frame of a connection, from the host.
#[derive(Clone, PartialEq, Message)]
pub struct OpenJob {
    /// The version that the host speaks, one that the agent named in its `Hello`.
    #[prost(uint32, tag = "1")]
    pub protocol: u32,
    /// Name or uid. Empty: as for commands. The kernel decides what that user may do.
    #[prost(string, tag = "2")]
    pub user: String,
    #[prost(oneof = "Job", tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20")]
    pub job: Option<Job>,
}

/// Paths are bytes without NUL, at most 4,095; relative ones begin at the user's home.
#[derive(Clone, PartialEq, Oneof)]
pub enum Job {
    #[prost(message, tag = "10")]
    Stat(StatFile),
    #[prost(message, tag = "11")]
    List(ListDirectory),
    #[prost(message, tag = "12")]
    Read(ReadFile),
    #[prost(message, tag = "13")]
    Write(WriteFile),
    #[prost(message, tag = "14")]
    MakeDirectory(MakeDirectory),
    #[prost(message, tag = "15")]
    Move(MoveFile),
    #[prost(message, tag = "16")]
    Remove(RemoveFile),
    #[prost(message, tag = "17")]
    Watch(WatchFiles),
    #[prost(message, tag = "18")]
    ReadArchive(ReadArchive),
    #[prost(message, tag = "19")]
    WriteArchive(WriteArchive),
    #[prost(message, tag = "20")]
    Tunnel(OpenTunnel),
}

/// `Done.info` tells.
#[derive(Clone, PartialEq, Message)]
pub struct StatFile {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// Of what a symbolic link points at, rather than of the link.
    #[prost(bool, tag = "2")]
    pub follow: bool,
}

/// In `Entries`, in the order of their paths compared part by part, bytewise; symbolic links are not followed
/// below `path`.
#[derive(Clone, PartialEq, Message)]
pub struct ListDirectory {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// 1: the directory's own entries. At most [`limits::LIST_DEPTH`].
    #[prost(uint32, tag = "2")]
    pub depth: u32,
    /// Only what comes behind this path, relative to `path`, in that order. Empty: from the beginning.
    #[prost(bytes = "bytes", tag = "3")]
    pub after: Bytes,
    /// At most so many entries; `Done.more` says whether there are others.
    #[prost(uint32, tag = "4")]
    pub limit: u32,
}

/// Regular files and what else reads like one; never blocks on a FIFO or a device.
#[derive(Clone, PartialEq, Message)]
pub struct ReadFile {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// Absent: to the end.
    #[prost(uint64, optional, tag = "3")]
    pub length: Option<u64>,
}

/// Data, then `Finish`, then `Done` with the file's `info`. The file appears whole, under its name and with its
/// mode and owner, or not at all.
#[derive(Clone, PartialEq, Message)]
pub struct WriteFile {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// Permission bits. Absent: those of the file that it replaces, else 0644.
    #[prost(uint32, optional, tag = "2")]
    pub mode: Option<u32>,
    /// Directories that are missing on the way are made.
    #[prost(bool, tag = "3")]
    pub parents: bool,
    /// Refuse to replace a file.
    #[prost(bool, tag = "4")]
    pub exclusive: bool,
    /// Set: the data is kept under this id when the connection breaks, and another write continues it at its end.
    #[prost(message, optional, tag = "5")]
    pub upload: Option<Upload>,
    /// Name or uid of the owner; a group may follow a colon. Empty: the user.
    #[prost(string, tag = "6")]
    pub owner: String,
}

/// A write in several connections.
#[derive(Clone, PartialEq, Message)]
pub struct Upload {
    /// 1 to 64 of `A-Z a-z 0-9 _ -`.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Where the data begins. Any other than the end of what is kept fails with `Offset`, and `Done.next_offset`
    /// tells the right one; 0 begins anew.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// `Finish` completes the file. Otherwise it keeps what has come.
    #[prost(bool, tag = "3")]
    pub complete: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct MakeDirectory {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// Missing directories on the way are made, and one that is there already is no error.
    #[prost(bool, tag = "2")]
    pub parents: bool,
    /// Absent: 0755.
    #[prost(uint32, optional, tag = "3")]
    pub mode: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct MoveFile {
    #[prost(bytes = "bytes", tag = "1")]
    pub from: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub to: Bytes,
    /// Otherwise a file at `to` is an error.
    #[prost(bool, tag = "3")]
    pub replace: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct RemoveFile {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// A directory with all it holds. Never follows a symbolic link, and stays on one filesystem.
    #[prost(bool, tag = "2")]
    pub recursive: bool,
}

/// `Opened` says that from now on no change is missed.
#[derive(Clone, PartialEq, Message)]
pub struct WatchFiles {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(bool, tag = "2")]
    pub recursive: bool,
}

/// A POSIX tar stream as `Data`, of a file or of what a directory holds, with names relative to it.
#[derive(Clone, PartialEq, Message)]
pub struct ReadArchive {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
}

/// A tar stream as `Data`, put out below `path`, which is made if it is missing. An entry that would lie
/// elsewhere fails the job. `Done` counts.
#[derive(Clone, PartialEq, Message)]
pub struct WriteArchive {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
}

/// A TCP connection to the guest's own loopback. `Data` in both directions; `Finish` from the host, and `Done`
/// from the guest, end a direction each.
#[derive(Clone, PartialEq, Message)]
pub struct OpenTunnel {
    #[prost(uint32, tag = "1")]
    pub port: u32,
}

/// The job is under way.
#[derive(Clone, PartialEq, Message)]
pub struct Opened {
    /// Of the file that is read.
    #[prost(message, optional, tag = "1")]
    pub info: Option<FileInfo>,
}

/// A part of a listing. Never empty; at most [`limits::LIST_ENTRIES`].
#[derive(Clone, PartialEq, Message)]
pub struct Entries {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<FileInfo>,
}

/// What a watch has seen. Never empty; at most [`limits::FRAME_CHANGES`].
#[derive(Clone, PartialEq, Message)]
pub struct Changes {
    #[prost(message, repeated, tag = "1")]
    pub changes: Vec<Change>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Change {
    #[prost(enumeration = "ChangeKind", tag = "1")]
    pub kind: i32,
    /// Absolute. Empty for `Lost`.
    #[prost(bytes = "bytes", tag = "2")]
    pub path: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum ChangeKind {
    Unspecified = 0,
    Created = 1,
    Written = 2,
    /// Also what a move leaves behind.
    Removed = 3,
    /// Mode, owner or times.
    Attributes = 4,
    /// Moved to this path, from another one.
    Moved = 5,
    /// More happened than could be told: look again.
    Lost = 6,
}

/// The last frame of a job.
#[derive(Clone, PartialEq, Message)]
pub struct Done {
    #[prost(message, optional, tag = "1")]
    pub failure: Option<Failure>,
    #[prost(message, optional, tag = "2")]
    pub info: Option<FileInfo>,
    /// Of a list: there are more entries.
    #[prost(bool, tag = "3")]
    pub more: bool,
    /// Of an upload, also when it failed with `Offset`.
    #[prost(uint64, tag = "4")]
    pub next_offset: u64,
    /// Of an archive: entries put out, and bytes of file data in them.
    #[prost(uint64, tag = "5")]
    pub entries: u64,
    #[prost(uint64, tag = "6")]
    pub bytes: u64,
}

/// Why a job did not do what it was for.
#[derive(Clone, PartialEq, Message)]
pub struct Failure {
    #[prost(enumeration = "FailureKind", tag = "1")]
    pub kind: i32,
    /// For people. Guest-made text: at most [`limits::TEXT_BYTES`].
    #[prost(string, tag = "2")]
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum FailureKind {
    /// Something that has no kind of its own; the message tells.
    Unspecified = 0,
    NotFound = 1,
    AlreadyExists = 2,
    Permission = 3,
    NotADirectory = 4,
    IsADirectory = 5,
    NotEmpty = 6,
    NoSpace = 7,
    ReadOnly = 8,
    /// A symbolic link in a circle, a name that is too long, an entry outside of the archive's directory.
    Path = 9,
    /// A FIFO, a socket or a device, where a file or directory is needed.
    Type = 10,
    /// See [`Upload::offset`].
    Offset = 11,
    /// A limit on watches, memory or processes.
    Exhausted = 12,
    /// A move between filesystems.
    CrossDevice = 13,
    /// What came is no tar stream.
    Archive = 14,
    /// A field of the job is out of range.
    Invalid = 15,
    NoUser = 16,
    /// Nothing listens on the port.
    Refused = 17,
    /// Not before the guest is personalised.
    NotPersonalised = 18,
    /// The agent doesn't know the job.
    Unsupported = 19,
    Busy = 20,
}

#[derive(Clone, PartialEq, Message)]
pub struct FileInfo {
    /// Absolute, with symbolic links in it as they were asked for.
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(enumeration = "FileType", tag = "2")]
    pub file_type: i32,
    /// Permission bits with set-uid, set-gid and sticky: 0 to 0o7777.
    #[prost(uint32, tag = "3")]
    pub mode: u32,
    #[prost(uint32, tag = "4")]
    pub uid: u32,
    #[prost(uint32, tag = "5")]
    pub gid: u32,
    /// Empty: the guest has no name for it.
    #[prost(string, tag = "6")]
    pub owner: String,
    #[prost(string, tag = "7")]
    pub group: String,
    #[prost(uint64, tag = "8")]
    pub size: u64,
    /// What it takes on the disk; less than `size` where it has holes.
    #[prost(uint64, tag = "9")]
    pub allocated: u64,
    /// Unix time in nanoseconds.
    #[prost(sint64, tag = "10")]
    pub modified_ns: i64,
    /// Of a symbolic link.
    #[prost(bytes = "bytes", tag = "11")]
    pub link_target: Bytes,
    /// Differs whenever the content may differ: made of device, inode, size, modification and change time.
    #[prost(fixed64, tag = "12")]
    pub version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum FileType {
    Unspecified = 0,
    File = 1,
    Directory = 2,
    Symlink = 3,
    Fifo = 4,
    Socket = 5,
    BlockDevice = 6,
    CharacterDevice = 7,
}

/// A frame from the host on a job's connection.
#[derive(Debug, Clone, PartialEq)]
pub enum HostJobFrame {
    Open(Box<OpenJob>),
    /// 1 to [`limits::JOB_DATA_BYTES`].
    Data(Bytes),
    Finish,
}

/// A frame from the guest on a job's connection.
#[derive(Debug, Clone, PartialEq)]
pub enum GuestJobFrame {
    Opened(Box<Opened>),
    /// 1 to [`limits::JOB_DATA_BYTES`].
    Data(Bytes),
    Entries(Entries),
    Changes(Changes),
    Done(Box<Done>),
}

impl HostJobFrame {
    /// The next whole frame at the front of `buffer`; `None` when more bytes are needed.
    pub fn decode(buffer: &mut BytesMut) -> Result<Option<Self>, DecodeError> {
        let Some(RawFrame { kind, payload, .. }) = frame::take(buffer)? else { return Ok(None) };
        Ok(Some(match kind {
            kind::JOB_OPEN => Self::Open(Box::new(message(kind, payload)?)),
            kind::JOB_DATA => Self::Data(data(payload)?),
            kind::JOB_FINISH if payload.is_empty() => Self::Finish,
            other => return Err(DecodeError::Kind(other)),
        }))
    }

    /// Appends the frame to `buffer`, or leaves it as it was.
    pub fn encode(&self, buffer: &mut BytesMut) -> Result<(), EncodeError> {
        match self {
            Self::Open(open) => put_message(kind::JOB_OPEN, 0, open.as_ref(), buffer),
            Self::Data(data) => put_data(data, buffer),
            Self::Finish => {
                frame::put_header(kind::JOB_FINISH, 0, 0, buffer);
                Ok(())
            }
        }
    }
}

impl GuestJobFrame {
    /// The next whole frame at the front of `buffer`; `None` when more bytes are needed.
    pub fn decode(buffer: &mut BytesMut) -> Result<Option<Self>, DecodeError> {
        let Some(RawFrame { kind, payload, .. }) = frame::take(buffer)? else { return Ok(None) };
        Ok(Some(match kind {
            kind::JOB_OPENED => Self::Opened(Box::new(message(kind, payload)?)),
            kind::JOB_DATA => Self::Data(data(payload)?),
            kind::JOB_ENTRIES => Self::Entries(parts(kind, payload, limits::LIST_ENTRIES as usize)?),
            kind::JOB_CHANGES => Self::Changes(parts(kind, payload, limits::FRAME_CHANGES)?),
            kind::JOB_DONE => Self::Done(Box::new(message(kind, payload)?)),
            other => return Err(DecodeError::Kind(other)),
        }))
    }

    /// Appends the frame to `buffer`, or leaves it as it was.
    pub fn encode(&self, buffer: &mut BytesMut) -> Result<(), EncodeError> {
        match self {
            Self::Opened(opened) => put_message(kind::JOB_OPENED, 0, opened.as_ref(), buffer),
            Self::Data(data) => put_data(data, buffer),
            Self::Entries(entries) => put_message(kind::JOB_ENTRIES, 0, entries, buffer),
            Self::Changes(changes) => put_message(kind::JOB_CHANGES, 0, changes, buffer),
            Self::Done(done) => put_message(kind::JOB_DONE, 0, done.as_ref(), buffer),
        }
    }
}

/// The header of a data frame, for those who send its data from elsewhere (by `writev`, say) and not by way of
/// this buffer. `bytes` is 1 to [`limits::JOB_DATA_BYTES`].
pub fn data_header(bytes: usize) -> [u8; frame::HEADER_BYTES] {
    debug_assert!((1..=limits::JOB_DATA_BYTES).contains(&bytes));
    let mut header = [0; frame::HEADER_BYTES];
    header[..4].copy_from_slice(&u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes());
    header[4] = kind::JOB_DATA;
    header
}

fn put_data(data: &[u8], buffer: &mut BytesMut) -> Result<(), EncodeError> {
    if data.is_empty() || data.len() > limits::JOB_DATA_BYTES {
        return Err(EncodeError::TooLarge(data.len()));
    }
    frame::put_header(kind::JOB_DATA, 0, data.len(), buffer);
    buffer.put_slice(data);
    Ok(())
}

fn data(payload: Bytes) -> Result<Bytes, DecodeError> {
    if payload.is_empty() { Err(DecodeError::EmptyData) } else { Ok(payload) }
}

fn message<M: Message + Default>(kind: u8, payload: Bytes) -> Result<M, DecodeError> {
    M::decode(payload).map_err(|source| DecodeError::Payload { kind, source })
}

/// A message of nothing but parts, which are counted before anything is made of them.
fn parts<M: Message + Default>(kind: u8, payload: Bytes, limit: usize) -> Result<M, DecodeError> {
    let failed = |source| DecodeError::Payload { kind, source };
    let mut rest = payload.clone();
    let mut count = 0;
    while rest.has_remaining() {
        let (tag, wire_type) = decode_key(&mut rest).map_err(failed)?;
        skip_field(wire_type, tag, &mut rest, DecodeContext::default()).map_err(failed)?;
        count += 1;
        if count > limit {
            return Err(DecodeError::Parts { kind, limit });
        }
    }
    message(kind, payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_framed_the_same_by_both_ways() {
        let mut whole = BytesMut::new();
        HostJobFrame::Data(Bytes::from_static(b"abc")).encode(&mut whole).unwrap();
        assert_eq!(&whole[..frame::HEADER_BYTES], &data_header(3));
        let frame = GuestJobFrame::decode(&mut whole).unwrap();
        assert_eq!(frame, Some(GuestJobFrame::Data(Bytes::from_static(b"abc"))));
        assert!(whole.is_empty());
    }

    #[test]
    fn a_side_does_not_take_what_only_it_may_send() {
        let mut buffer = BytesMut::new();
        GuestJobFrame::Done(Box::default()).encode(&mut buffer).unwrap();
        assert!(matches!(HostJobFrame::decode(&mut buffer), Err(DecodeError::Kind(kind::JOB_DONE))));
    }

    #[test]
    fn empty_and_oversized_data_can_not_be_sent() {
        let mut buffer = BytesMut::new();
        for data in [Bytes::new(), Bytes::from(vec![0; limits::JOB_DATA_BYTES + 1])] {
            assert!(HostJobFrame::Data(data).encode(&mut buffer).is_err());
            assert!(buffer.is_empty());
        }
    }
}
