//! A VM whose guest runs: the handles by which its owner knows it.

use std::{io, sync::Arc};

use crate::{
    cgroup::Cgroup,
    disk::JailDir,
    place::Place,
    sys::{ExitStatus, Pidfd},
};

#[derive(Debug)]
pub(crate) struct LiveVm {
    pub(crate) place: Place,
    pub(crate) process: Pidfd,
    pub(crate) jail: Arc<JailDir>,
    pub(crate) cgroup: Cgroup,
}

/// A VM that was found alive at the start.
#[derive(Debug)]
pub(crate) struct Survivor {
    pub(crate) vm: LiveVm,
    /// Where its commands were served last; empty if nobody wrote that down.
    pub(crate) address: String,
}

impl LiveVm {
    /// Answers when Firecracker has ended. Cancel safe.
    pub(crate) async fn ended(&self) -> ExitStatus {
        self.process.ended().await
    }

    pub(crate) fn kill(&self) -> io::Result<()> {
        self.process.kill()
    }

    /// Whether the kernel killed anything of it for want of memory.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        self.cgroup.oom_kills() > 0
    }
}
