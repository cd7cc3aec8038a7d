//! Forking into a cgroup, and what only a forked child needs.
#![expect(unsafe_code, reason = "clone3, execve, close_range and signal masks have no safe wrapper")]

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
};

use rustix::process::Pid;

/// `linux/sched.h`; libc's constant has too narrow a type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

pub(crate) enum Forked {
    Parent(Pid),
    Child,
}

/// Forks, the child starting its life in `cgroup` if there is one: joining it later would take the kernel's
/// global lock for moving threads, whose writers wait for a grace period.
///
/// This process has one thread, so the child may do anything that its parent could.
pub(crate) fn fork(cgroup: Option<BorrowedFd<'_>>) -> io::Result<Forked> {
    // SAFETY: all-zero is the documented default of every field.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.exit_signal = libc::SIGCHLD as u64;
    if let Some(directory) = cgroup {
        arguments.flags = CLONE_INTO_CGROUP;
        arguments.cgroup = u64::try_from(directory.as_raw_fd()).map_err(io::Error::other)?;
    }
    // SAFETY: `arguments` is a whole clone_args, alive during the call. Without CLONE_VM and without a stack
    // of its own the child goes on with a copy of this one, as after fork. There are no other threads whose
    // locks it could find taken.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>()) };
    match i32::try_from(pid) {
        Ok(0) => Ok(Forked::Child),
        Ok(pid) => {
            Pid::from_raw(pid).filter(|_| pid > 0).map(Forked::Parent).ok_or_else(io::Error::last_os_error)
        }
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Replaces the program. Returns only if that failed.
pub(crate) fn execute(path: &CStr, arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: both arrays end with a null pointer and, as the strings they point to, outlive the call.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// Ends this process without running any destructor or exit handler.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes any number and does not return.
    unsafe { libc::_exit(code) }
}

/// Closes every descriptor from `first` on. For a forked child that is about to run another program:
/// whatever owned them must not be used any more.
pub(crate) fn close_from(first: u32) {
    // SAFETY: only a child between fork and exec calls this, and it touches none of them afterwards.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
}

/// The child's signals as a new program expects them: none blocked, none ignored.
pub(crate) fn reset_signals() {
    // SAFETY: plain calls on a local signal set; SIGPIPE is the one signal that Rust's runtime ignores.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// Sends a signal to every process but this one. Does nothing unless this is PID 1: elsewhere it would hit
/// the developer's whole session.
pub(crate) fn signal_everyone(signal: i32) {
    if std::process::id() == 1 {
        // SAFETY: kill has no memory effects here.
        unsafe { libc::kill(-1, signal) };
    }
}

/// Sends a signal to a process group, by its number as the protocol has it.
pub(crate) fn signal_group(leader: Pid, signal: i32) -> io::Result<()> {
    send_signal(-leader.as_raw_nonzero().get(), signal)
}

pub(crate) fn signal_process(pid: Pid, signal: i32) -> io::Result<()> {
    send_signal(pid.as_raw_nonzero().get(), signal)
}

fn send_signal(target: i32, signal: i32) -> io::Result<()> {
    // SAFETY: kill has no memory effects here.
    match unsafe { libc::kill(target, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives `descriptor` the number `number`, close-on-exec, whatever had that number before. Only for a forked
/// child before [`close_from`]: an owner of the old number would be left with somebody else's.
pub(crate) fn move_descriptor(descriptor: OwnedFd, number: i32) -> io::Result<OwnedFd> {
    if descriptor.as_raw_fd() == number {
        return Ok(descriptor);
    }
    // SAFETY: dup3 has no memory effects.
    if unsafe { libc::dup3(descriptor.as_raw_fd(), number, libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: whoever owned the number is a copy of a value in the parent that the child never drops.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
