//! Network namespaces that outlive the thread that made them, held by a bind mount.
//!
//! Namespaces belong to threads, so a thread is made for each and thrown away: no thread of the runtime ever
//! changes its own.

#![expect(clippy::disallowed_methods, reason = "a namespace is held by a bind mount")]

use std::{fs, io, thread};

use camino::Utf8Path;
use nix::sched::{CloneFlags, unshare};
use rustix::{
    io::Errno,
    mount::{UnmountFlags, mount_bind, unmount},
};

/// Makes a network namespace, runs `furnish` inside it and leaves it mounted at `path`. Blocks.
///
/// If `furnish` fails nothing stays behind; a crash in between leaves at most the mount, for
/// [`unmake_namespace`].
pub(crate) fn make_namespace(
    path: &Utf8Path,
    furnish: impl FnOnce() -> io::Result<()> + Send,
) -> io::Result<()> {
    fs::OpenOptions::new().create_new(true).write(true).open(path)?;
    let made = thread::scope(|scope| {
        let inside = thread::Builder::new().name("namespace".to_owned()).spawn_scoped(scope, || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            mount_bind("/proc/thread-self/ns/net", path.as_str())?;
            furnish()
        })?;
        inside.join().map_err(|_panic| io::Error::other("the namespace's thread panicked"))?
    });
    if made.is_err() {
        unmake_namespace(path)?;
    }
    made
}

/// Unmounts and removes `path`; the kernel then drops the namespace and all that is in it. Idempotent.
pub(crate) fn unmake_namespace(path: &Utf8Path) -> io::Result<()> {
    loop {
        // More than one mount may lie on top of each other if somebody mounted by hand; none may stay.
        match unmount(path.as_str(), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOENT) => break,
            Err(error) => return Err(error.into()),
        }
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
