//! Streams that survive their connections.
//!
//! ```text
//!   connecting ──answer──▶ open ──exit──▶ done
//!       ▲                   │
//!       └── pause, resume ◀─┘ lost, or an error that passes
//! ```
//!
//! A resumed stream asks with `Last-Event-ID` for what comes after the last event it handed out, and drops what
//! it has handed out before: its user sees every event once and in order, whatever the connections did.

mod command;
mod event_log;

use std::time::Duration;

pub use command::CommandStream;
pub use event_log::EventStream;

/// How a stream deals with loss.
#[derive(Debug, Clone, Copy)]
pub struct StreamConfig {
    /// How long to go on reconnecting after a loss.
    pub patience: Duration,
    /// A connection without a byte for so long counts as lost. The server writes each 15 s.
    pub silence: Duration,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self { patience: Duration::from_mins(1), silence: Duration::from_secs(45) }
    }
}
