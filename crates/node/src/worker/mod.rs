//! Workers: one `space-sandboxd` a tenant, which speaks to that tenant's guests so that nobody else has to.
//!
//! ```text
//!             first assignment               Configured
//!   (none) ───────────────────▶ starting ───────────────▶ serving ──▶ no sandbox for a while ──▶ (none)
//!                                  ▲                         │
//!                                  └── pause ◀── died or broke the protocol
//! ```
//!
//! A worker may have been taken over by a guest. What it says is parsed strictly, believed only about
//! sandboxes that were assigned to it, and never makes anything happen outside its tenant. It gets connected
//! sockets, a console's reading end and a directory for the output of commands, none of which anybody here reads.

mod assign;
mod certificate;
mod channel;
mod incarnation;
mod owner;
mod registry;
mod renewal;

pub(crate) use assign::{Assignment, WorkerEvent};
pub(crate) use incarnation::WorkerContext;
pub(crate) use owner::{WorkersError, remove_worker};
pub(crate) use registry::{AssignError, Workers};
