//! Signals as a descriptor, so that the event loop needs no handlers.
#![expect(unsafe_code, reason = "signalfd and signal masks have no safe wrapper")]

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
};

/// Holds SIGTERM off for as long as it lives. For a job, at moments when it would leave something behind.
pub(crate) struct Uninterrupted {
    before: libc::sigset_t,
}

impl Uninterrupted {
    pub(crate) fn new() -> Self {
        // SAFETY: both sets are local, and initialised or written by the call before they are read.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGTERM);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            Self { before }
        }
    }
}

impl Drop for Uninterrupted {
    fn drop(&mut self) {
        // SAFETY: the set is the one that the kernel gave.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut()) };
    }
}

pub(crate) struct SignalFd(OwnedFd);

impl SignalFd {
    /// Blocks the signals for this process and delivers them here. For PID 1 blocking also matters because
    /// the kernel drops signals that it has no handler for, unless they are blocked.
    pub(crate) fn new(signals: &[i32]) -> io::Result<Self> {
        // SAFETY: the set is local and initialised before use; signalfd returns a new descriptor or -1.
        let descriptor = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// The next signal that arrived, if there is one.
    pub(crate) fn next(&self) -> Option<i32> {
        let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
        let read = rustix::io::read(&self.0, &mut info).ok()?;
        let number = info.get(..read)?.first_chunk::<4>()?;
        i32::try_from(u32::from_ne_bytes(*number)).ok()
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
