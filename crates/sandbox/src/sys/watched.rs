//! Descriptors whose readiness the runtime watches.

use std::{io, os::fd::OwnedFd};

use tokio::io::{Interest, unix::AsyncFd};

/// Makes the descriptor non-blocking and has the runtime watch it. Call within a runtime.
pub fn watched(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(&descriptor, true)?;
    #[expect(unsafe_code, reason = "the runtime can't know that a descriptor stays open; an owned one does")]
    // SAFETY: an `OwnedFd` stays open, and the same, until it is dropped, which `AsyncFd` does only after it has
    // stopped watching it.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, interest) };
    Ok(watched?)
}
