//! One tenant's worker on a node. It speaks to guests, which are hostile, and serves their commands and files to control.
//!
//! ```text
//!   noded ── SEQPACKET, descriptors ──▶ worker ◀── mTLS gRPC ── control, edge
//!                                        │   one owner task a sandbox
//!                              frames over vsock, console FIFO
//!                                        ▼
//!                                      guests
//! ```
//! - [`worker`]: the loop that noded talks to; everything else is started from it.
//! - `sandboxes`, `guest`: what is served, and one owner task for each with its connection, requests and
//!   spoolers.
//! - [`spool`]: the output of commands, on the node's disk.
//! - `job`: file operations, each on a connection of its own.
//! - `service`: the gRPC services; `tls` and `listener` see to who may call.
//! - [`limits`]: every number that bounds what a peer can cost.
//! - [`sys`]: what the process gives up at its start.
//!
//! The process has no capabilities, a user of its own, and makes no socket itself: what it speaks through comes from
//! noded. A guest that takes it over has what the tenant's other guests could have told it, and no more.

mod channel;
pub mod config;
mod console;
pub mod fail_point;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod guest;
mod job;
pub mod limits;
mod listener;
mod metrics;
mod node;
mod sandboxes;
mod service;
pub mod spool;
pub mod sys;
mod tls;
pub mod worker;

pub use config::SandboxdConfig;
