//! Firecracker's API: the few calls that a VM needs, over the Unix socket in its jail.
//!
//! A VM is configured in two halves: what is the same for all of them while it waits in the pool, the rest
//! when a sandbox claims it. After the guest has started nothing more is asked of Firecracker, so no answer
//! of a VMM that a guest may have taken over is ever parsed; before that the limits hold all the same.

mod client;
mod device;
mod version;

pub(crate) use client::{FirecrackerClient, FirecrackerError};
pub(crate) use device::{MachineShape, TAP_NAME, claim_calls, pool_calls, start_call};
pub(crate) use version::vmm_version;
