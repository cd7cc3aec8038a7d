//! The socket to noded, inherited as descriptor 3.

use std::{
    io,
    os::fd::{BorrowedFd, FromRawFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    io::FdFlags,
    net::{SocketType, sockopt},
};

const NODE_SOCKET: i32 = 3;

#[derive(Debug, thiserror::Error)]
pub enum InheritedError {
    #[error("descriptor 3 is missing or no socket; this program is started by space-noded")]
    NoSocket(#[source] io::Error),
    #[error("descriptor 3 is a socket of another type than SOCK_SEQPACKET")]
    Type,
    #[error("descriptor 3 was taken already")]
    Taken,
}

/// Takes descriptor 3 over, close-on-exec from now on. Works once.
pub fn node_socket() -> Result<OwnedFd, InheritedError> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::AcqRel) {
        return Err(InheritedError::Taken);
    }
    check()?;
    #[expect(unsafe_code, reason = "an inherited descriptor is a number; owning it can only be asserted")]
    // SAFETY: `check` has seen that the descriptor is open, noded passes it for this purpose alone, and the flag
    // above keeps a second owner from being made. It is called before anything else opens descriptors.
    Ok(unsafe { OwnedFd::from_raw_fd(NODE_SOCKET) })
}

fn check() -> Result<(), InheritedError> {
    #[expect(unsafe_code, reason = "see `node_socket`; the borrow ends with this function")]
    // SAFETY: the descriptor is only asked for its type; if it isn't open the kernel answers EBADF.
    let socket = unsafe { BorrowedFd::borrow_raw(NODE_SOCKET) };
    let kind = sockopt::socket_type(socket).map_err(|e| InheritedError::NoSocket(e.into()))?;
    if kind != SocketType::SEQPACKET {
        return Err(InheritedError::Type);
    }
    rustix::io::fcntl_setfd(socket, FdFlags::CLOEXEC).map_err(|e| InheritedError::NoSocket(e.into()))
}
