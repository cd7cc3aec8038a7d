//! Descriptors in the runtime's reactor.

use std::{io, os::fd::OwnedFd};

use tokio::io::{Interest, unix::AsyncFd};

/// `descriptor`, with a way to wait for its readiness.
pub(crate) fn watch(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is an open descriptor for as long as it lives, which is all that is asked for.
    #[expect(unsafe_code, reason = "the reactor has no safe constructor")]
    let registered = unsafe { AsyncFd::register_with_interest(descriptor, interest) };
    Ok(registered?)
}
