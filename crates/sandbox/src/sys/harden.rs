//! What the worker gives up before it reads its first byte. It runs under a user of its own and without
//! capabilities already; this keeps what a guest would gain by taking it over to the descriptors it holds.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit};

use super::seccomp::{self, SeccompError};

#[derive(Debug, thiserror::Error)]
pub enum HardenError {
    #[error("cannot make the process undumpable")]
    Dumpable(#[source] io::Error),
    #[error("cannot set no_new_privs")]
    NoNewPrivileges(#[source] io::Error),
    #[error("cannot forbid core dumps")]
    Core(#[source] io::Error),
    #[error("cannot install the system call filter")]
    Seccomp(#[from] SeccompError),
}

/// Call first, while the process has a single thread: the filter covers the calling thread and its children.
pub fn harden() -> Result<(), HardenError> {
    // Nobody with the same uid reads the private key out of /proc/<pid>/mem.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| HardenError::Dumpable(e.into()))?;
    rustix::thread::set_no_new_privs(true).map_err(|e| HardenError::NoNewPrivileges(e.into()))?;
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Core, none).map_err(|e| HardenError::Core(e.into()))?;
    seccomp::install()?;
    Ok(())
}
