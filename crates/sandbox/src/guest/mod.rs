//! One hostile guest: an owner task with the only connection to its agent, and what the rest of the worker has of
//! it, a [`GuestClient`].
//!
//! ```text
//!           noded's descriptor           hello, personalised            lost
//!   start ────────────────────▶ connected ─────────────────▶ serving ────────┐
//!     ▲  closed, silent: rest                                   │            │
//!     └──────────────────────────◀──────────────────────────────┼────────────┘
//!   no answer until the deadline, a broken rule, no common version, released: [`Fate`], for good
//! ```
//! Everything that arrives passes three checks before it is believed: the frame (`space-guest-proto`'s decoder),
//! the rules of the connection (its `HostConnection`), and [`check`] for what a reply says. The first failure
//! ends the sandbox's connection and streams for good, and touches nothing else.
//!
//! What callers wait for survives a lost connection: requests that may be repeated are, and each command's spooler goes
//! on behind the last event in its spool. Readers read there ([`crate::spool`]) and notice nothing.

pub(crate) mod check;
mod client;
mod events;
mod handshake;
mod link;
mod open;
mod owner;
mod spoolers;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use client::{CallError, GuestClient};
pub(crate) use events::exit;
pub(crate) use handshake::{HandshakeError, handshake};
pub(crate) use owner::{Assignment, Owner, Setup};
pub(crate) use text::printable;

use space_node_proto::worker::UnreadyReason;

/// How a sandbox ended for this worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// noded took it back, or the worker leaves.
    Released,
    /// Its agent did not answer in time.
    Silent,
    /// Its agent broke the protocol.
    Protocol,
    /// Its agent speaks versions that this worker does not.
    Version,
}

impl Fate {
    /// What noded is told, where it doesn't know.
    pub(crate) const fn unready(self) -> Option<UnreadyReason> {
        match self {
            Self::Released => None,
            Self::Silent => Some(UnreadyReason::Silent),
            Self::Protocol => Some(UnreadyReason::Protocol),
            Self::Version => Some(UnreadyReason::Version),
        }
    }

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Released => "the sandbox is not served here any more",
            Self::Silent => "the sandbox's agent does not answer",
            Self::Protocol => "the sandbox's agent broke the protocol",
            Self::Version => "the sandbox's agent speaks another protocol version",
        }
    }
}
