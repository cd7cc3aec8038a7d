//! What touches the kernel directly: the inherited descriptor, and what this process gives up at its start.

mod harden;
mod inherited;
mod seccomp;
mod watched;

pub use harden::{HardenError, harden};
pub use inherited::{InheritedError, node_socket};
pub use watched::watched;
