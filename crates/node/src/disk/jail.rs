//! One jail's root directory, held open, and the only ways in which its contents are touched.
//!
//! Every lookup is `openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)`, never blocks on
//! a FIFO (`O_NONBLOCK` or `O_PATH`), and what was opened is looked at with `fstat` before it is used: kind,
//! owner and, for files, that no other name leads to it. So a symlink, FIFO, device or hard link planted by a
//! hostile VMM is an error and nothing else.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    time::Duration,
};

use camino::Utf8Path;
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, linkat, openat2},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with},
};
use tokio::time::{Instant, sleep_until};

#[derive(Debug, thiserror::Error)]
pub(crate) enum JailError {
    #[error("cannot open {name} in the jail")]
    Open {
        name: String,
        #[source]
        source: io::Error,
    },
    #[error("{name} in the jail is not what was put there: {what}")]
    Tampered { name: String, what: &'static str },
    #[error("cannot connect to {name} in the jail")]
    Connect {
        name: String,
        #[source]
        source: io::Error,
    },
    #[error("{name} in the jail took no connection in time")]
    Deadline { name: String },
}

/// An open jail.
#[derive(Debug)]
pub(crate) struct JailDir {
    root: OwnedFd,
    owner: u32,
}

const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

impl JailDir {
    /// Opens the directory at `path`; whatever its VM makes in there belongs to the user `owner`. The
    /// directories above it are root's alone.
    pub(crate) fn open(path: &Utf8Path, owner: u32) -> Result<Self, JailError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = openat2(CWD, path.as_str(), flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
            .map_err(|errno| open_error(path.as_str(), errno))?;
        Ok(Self { root, owner })
    }

    /// Makes the file `name`, which must not exist in any form. Still owned by root.
    pub(crate) fn create(&self, name: &str) -> Result<File, JailError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file =
            openat2(&self.root, name, flags, mode, BENEATH).map_err(|errno| open_error(name, errno))?;
        let seen = stat(name, &file)?;
        check(name, FileType::from_raw_mode(seen.st_mode) == FileType::RegularFile, "not a file")?;
        check(name, seen.st_nlink == 1, "it has another name")?;
        Ok(file.into())
    }

    /// Gives the open file `source`, owned by root and read-only, the name `name`, sharing its inode.
    pub(crate) fn link(&self, source: &Utf8Path, name: &str) -> Result<(), JailError> {
        linkat(CWD, source.as_str(), &self.root, name, AtFlags::empty())
            .map_err(|errno| open_error(name, errno))
    }

    /// Connects to the listening socket `name`. Retries while nobody accepts, until `deadline`: neither
    /// `bind` nor `listen` nor a full backlog wakes anybody up. Cancel safe.
    pub(crate) async fn connect(&self, name: &str, deadline: Instant) -> Result<OwnedFd, JailError> {
        const FIRST: Duration = Duration::from_millis(1);
        const LONGEST: Duration = Duration::from_millis(40);
        let mut pause = FIRST;
        loop {
            match self.try_connect(name) {
                Ok(connection) => return Ok(connection),
                Err(error) if !is_early(&error) => return Err(error),
                Err(_early) if Instant::now() + pause >= deadline => {
                    return Err(JailError::Deadline { name: name.to_owned() });
                }
                Err(_early) => {
                    sleep_until(Instant::now() + pause).await;
                    // Prompt at first, and cheap on a machine where all of this takes seconds.
                    pause = (pause + pause / 4).min(LONGEST);
                }
            }
        }
    }

    fn try_connect(&self, name: &str) -> Result<OwnedFd, JailError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = openat2(&self.root, name, flags, Mode::empty(), BENEATH)
            .map_err(|errno| open_error(name, errno))?;
        let seen = stat(name, &found)?;
        check(name, FileType::from_raw_mode(seen.st_mode) == FileType::Socket, "not a socket")?;
        check(name, seen.st_uid == self.owner, "owned by another user")?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let connect_error = |errno: Errno| JailError::Connect { name: name.to_owned(), source: errno.into() };
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(connect_error)?;
        // The only way to name an inode that is held open; it follows to that inode and no further.
        let address =
            SocketAddrUnix::new(format!("/proc/self/fd/{}", found.as_raw_fd())).map_err(connect_error)?;
        connect(&socket, &address).map_err(connect_error)?;
        Ok(socket)
    }
}

/// Not there yet, not listening yet, or its backlog is full.
fn is_early(error: &JailError) -> bool {
    match error {
        JailError::Open { source, .. } => source.kind() == io::ErrorKind::NotFound,
        JailError::Connect { source, .. } => {
            matches!(source.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock)
        }
        JailError::Tampered { .. } | JailError::Deadline { .. } => false,
    }
}

fn stat(name: &str, file: impl AsFd) -> Result<Stat, JailError> {
    fstat(file).map_err(|errno| open_error(name, errno))
}

fn check(name: &str, holds: bool, what: &'static str) -> Result<(), JailError> {
    if holds { Ok(()) } else { Err(JailError::Tampered { name: name.to_owned(), what }) }
}

fn open_error(name: &str, errno: Errno) -> JailError {
    JailError::Open { name: name.to_owned(), source: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::{fs::symlink, net::UnixListener};

    fn jail() -> (tempfile::TempDir, JailDir) {
        let directory = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(directory.path()).unwrap();
        let owner = rustix::process::getuid().as_raw();
        let jail = JailDir::open(path, owner).unwrap();
        (directory, jail)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(50)
    }

    #[test]
    fn a_planted_symlink_is_never_written_through() {
        let (directory, jail) = jail();
        let honeytoken = tempfile::NamedTempFile::new().unwrap();
        symlink(honeytoken.path(), directory.path().join("disk.img")).unwrap();
        assert!(matches!(jail.create("disk.img"), Err(JailError::Open { .. })));
    }

    #[test]
    fn no_path_leads_out() {
        let (directory, jail) = jail();
        symlink("/", directory.path().join("up")).unwrap();
        for name in ["../x", "/etc/x", "up/tmp/x"] {
            assert!(jail.create(name).is_err(), "{name}");
        }
    }

    #[tokio::test]
    async fn a_fifo_in_the_place_of_a_socket_is_refused_at_once() {
        let (directory, jail) = jail();
        let path = directory.path().join("api.sock");
        rustix::fs::mkfifoat(CWD, &path, Mode::RUSR).unwrap();
        assert!(matches!(jail.connect("api.sock", soon()).await, Err(JailError::Tampered { .. })));
    }

    #[tokio::test]
    async fn a_symlink_to_a_real_socket_is_refused() {
        let (directory, jail) = jail();
        let _listener = UnixListener::bind(directory.path().join("real")).unwrap();
        symlink("real", directory.path().join("api.sock")).unwrap();
        assert!(matches!(jail.connect("api.sock", soon()).await, Err(JailError::Tampered { .. })));
    }

    #[tokio::test]
    async fn a_socket_that_nobody_listens_on_ends_with_the_deadline() {
        let (directory, jail) = jail();
        drop(UnixListener::bind(directory.path().join("api.sock")).unwrap());
        assert!(matches!(jail.connect("api.sock", soon()).await, Err(JailError::Deadline { .. })));
    }

    #[tokio::test]
    async fn a_listening_socket_is_connected_to() {
        let (directory, jail) = jail();
        let _listener = UnixListener::bind(directory.path().join("api.sock")).unwrap();
        jail.connect("api.sock", soon()).await.unwrap();
    }
}
