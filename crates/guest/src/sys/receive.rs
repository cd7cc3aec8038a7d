//! Receiving into memory that nobody has cleared first.
#![expect(unsafe_code, reason = "`BytesMut` has no safe way to take what a system call filled")]

use std::os::fd::AsFd;

use bytes::BytesMut;
use rustix::net::RecvFlags;

/// Receives once into the spare room of `buffer`; how much.
pub(crate) fn receive(
    socket: impl AsFd,
    buffer: &mut BytesMut,
    flags: RecvFlags,
) -> rustix::io::Result<usize> {
    let ((filled, _), _) = rustix::net::recv(socket, buffer.spare_capacity_mut(), flags)?;
    let received = filled.len();
    // SAFETY: the kernel has filled so many bytes behind the present end, within the capacity.
    unsafe { buffer.set_len(buffer.len() + received) };
    Ok(received)
}
