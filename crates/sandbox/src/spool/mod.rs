//! The spool: what a sandbox's commands wrote, kept on the node's disk for readers of any pace.
//!
//! ```text
//!   guest ──▶ spooler ── append ──▶ spool of one command ── pread ──▶ reader ──▶ gRPC
//!             (`guest`)              segments 3, 4, 5 …   ── pread ──▶ reader ──▶ gRPC
//! ```
//! - `Spool`: one command's segments in order, and who reads them. It runs ahead of its furthest reader by a fixed
//!   number of bytes and then takes nothing more; what it drops at its old end reaches slower readers as a gap.
//! - `CommandStream`: one reader. It holds a position and what it has just read, and no task.
//! - `Shelf`: the directory of a sandbox, its budget, and what is found in it after a restart.
//!
//! Nothing here believes the guest: what arrives was checked, continues the event before it (`Position`), and costs
//! what `limits` says. No `fsync`: a machine that dies takes the commands with it. A disk that has no room makes the
//! spool small, never the stream wrong: see `docs/design/0006-the-output-spool.md`.

mod directory;
mod log;
mod position;
mod reader;
mod recover;
mod segment;
mod shelf;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use log::{Appended, Spool};
pub(crate) use position::Discontinuity;
pub(crate) use reader::CommandStream;
pub(crate) use shelf::Shelf;

use crate::limits;

/// The sizes of a sandbox's spools, in bytes of records. Smaller in tests.
#[derive(Debug, Clone, Copy)]
pub struct SpoolLimits {
    pub segment: u64,
    pub command: u64,
    pub sandbox: u64,
    pub memory: u64,
    pub window: u64,
    pub free_percent: u64,
}

impl Default for SpoolLimits {
    fn default() -> Self {
        Self {
            segment: limits::SPOOL_SEGMENT,
            command: limits::SPOOL,
            sandbox: limits::SPOOL_SANDBOX,
            memory: limits::SPOOL_MEMORY,
            window: limits::SPOOL_WINDOW,
            free_percent: limits::SPOOL_FREE_PERCENT,
        }
    }
}
