//! Slots: everything that a VM needs outside of itself, made ahead of the request where possible.
//!
//! A prepared slot is a namespace with a TAP, a cgroup, a console FIFO, a jail with the shared boot files, and
//! a Firecracker under its jailer that has answered and is configured as far as all VMs are alike.

mod pool;
mod prepare;
mod release;

pub(crate) use pool::{BootGuard, SlotPool};
pub(crate) use prepare::{PrepareError, PreparedVm, SlotMaker};
pub(crate) use release::{ReleaseError, Releaser};
