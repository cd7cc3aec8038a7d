//! The vsock listener.
#![expect(unsafe_code, reason = "rustix has no vsock addresses")]

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, listen, socket_with};

/// `linux/socket.h`
const AF_VSOCK: libc::sa_family_t = 40;

/// Listens on `port`, whatever the guest's CID.
pub(crate) fn listener(port: u32, backlog: i32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::VSOCK, SocketType::STREAM, flags, None)?;
    // SAFETY: all-zero is a valid address; its fields are set below.
    let mut address: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
    address.svm_family = AF_VSOCK;
    address.svm_port = port;
    address.svm_cid = libc::VMADDR_CID_ANY;
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_vm>()).map_err(io::Error::other)?;
    // SAFETY: the address is a whole sockaddr_vm of the length given, alive during the call.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    listen(&socket, backlog)?;
    Ok(socket)
}
