//! The one system call that needs `unsafe` here.

use std::os::unix::process::CommandExt;

use nix::sys::{prctl, signal::Signal};

/// Has the kernel send `signal` to the child when the thread that spawns it ends, so that nothing runs on
/// unsupervised after this process was killed.
#[expect(unsafe_code, reason = "the signal must be set in the child, between fork and exec")]
pub(crate) fn end_with_parent(command: &mut std::process::Command, signal: Signal) {
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing. It runs after
    // the change of user, which would clear the setting.
    unsafe {
        command.pre_exec(move || prctl::set_pdeathsig(signal).map_err(std::io::Error::from));
    }
}
