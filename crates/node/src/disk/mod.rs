//! Files inside jails, and the pool that they lie in.
//!
//! Once Firecracker has started in a jail its contents belong to whoever may have broken out of the guest.
//! From then on they are touched only through [`JailDir`].

mod clone;
mod jail;
mod pool;
mod remove;

pub(crate) use clone::{CloneDiskError, clone_disk};
pub(crate) use jail::{JailDir, JailError};
pub(crate) use pool::{Room, require_reflinks};
pub(crate) use remove::remove_tree;
