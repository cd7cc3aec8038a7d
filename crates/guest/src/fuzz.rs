//! What is private here and must stand hostile bytes, for the fuzz targets of `space-fuzz`.

use std::{
    io::{self, Write as _},
    net::Shutdown,
    os::unix::{ffi::OsStrExt as _, net::UnixStream},
    path::Path,
};

use bytes::{Bytes, BytesMut};
use space_guest_proto::job::HostJobFrame;

use crate::job;

/// Puts an archive out into `directory`, as a job does whose data comes in frames of this length (1 to
/// [`JOB_DATA_BYTES`](space_guest_proto::limits::JOB_DATA_BYTES)). How many entries and bytes there were, or why not.
/// The archive must fit a socket's buffer.
pub fn unpack(archive: &[u8], frame_bytes: usize, directory: &Path) -> Result<(u64, u64), String> {
    let sent = send(archive, frame_bytes).map_err(|error| error.to_string())?;
    // Kept until the end: the job answers on it.
    let (_host, guest) = sent;
    let done = job::unpack(guest.into(), directory.as_os_str().as_bytes())?;
    Ok((done.entries, done.bytes))
}

fn send(archive: &[u8], frame_bytes: usize) -> io::Result<(UnixStream, UnixStream)> {
    let mut frames = BytesMut::new();
    let data = archive.chunks(frame_bytes).map(|piece| HostJobFrame::Data(Bytes::copy_from_slice(piece)));
    for frame in data.chain([HostJobFrame::Finish]) {
        frame.encode(&mut frames).map_err(io::Error::other)?;
    }
    let (mut host, guest) = UnixStream::pair()?;
    host.set_nonblocking(true)?;
    host.write_all(&frames)?;
    host.shutdown(Shutdown::Write)?;
    Ok((host, guest))
}
