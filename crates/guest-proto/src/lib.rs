//! The protocol between a host and the agent in a guest: length-prefixed frames over vsock.
//!
//! `PROTOCOL.md` beside this crate is the reference: frames, types, limits, errors, versions and how the
//! protocol may grow. An agent that was built today sits in snapshots that are restored months from now, so
//! nothing here may change its meaning; see "Evolution" there.
//!
//! - [`limits`]: every number that bounds something.
//! - [`message`]: payloads, as `prost` messages with explicit tags.
//! - [`frame`]: the 12-byte header and the split of a byte stream into frames.
//! - [`wire`]: frames as typed values, [`HostFrame`] (host to guest) and [`GuestFrame`] (guest to host).
//! - [`job`]: the same for the connections of file operations and tunnels, one each.
//! - [`HostCodec`], [`GuestCodec`]: the same for tokio-util (feature `codec`).
//! - [`rules`]: who may send what when. Both sides feed each frame they send or receive through
//!   [`HostConnection`] or [`GuestConnection`]; what breaks a rule closes the connection.
//! - [`validate`]: limits on what a request holds.
//!
//! The crate does no I/O and knows no clock. It never panics on bytes from outside: see `tests/`.
//!
//! # A host's side in short
//! ```text
//! connect, send Hello (requests may follow at once, without waiting for the guest's Hello)
//! send AttachCommand { id: 7, credit, create: Some(spec) }
//!   receive Reply 7 (AttachCommand), then Event/Output 7 …, then End 7
//!   send Credit 7 for the bytes of output that were passed on
//! ```

#[cfg(feature = "codec")]
mod codec;
pub mod frame;
pub mod job;
pub mod limits;
pub mod message;
pub mod rules;
pub mod validate;
pub mod wire;

#[cfg(feature = "codec")]
pub use codec::{GuestCodec, HostCodec};
pub use frame::FrameError;
pub use rules::{GuestConnection, HostConnection, Misuse, Violation};
pub use validate::InvalidRequest;
pub use wire::{DecodeError, EncodeError, GuestFrame, HostFrame, Output, OutputHead, Reply, Request, Stream};

/// The vsock port that the agent listens on.
pub const AGENT_PORT: u32 = 1024;
/// The vsock port that takes [`job`]s, one a connection.
pub const JOB_PORT: u32 = 1025;

/// Bits of [`Hello::features`](message::Hello::features).
pub mod feature {
    /// The agent gives a command a terminal where its specification asks for one. A host must not send such a
    /// specification to an agent without it: unknown fields are skipped in silence.
    pub const TERMINAL: u64 = 1;
}

/// Oldest protocol version that this build speaks.
pub const PROTOCOL_MIN: u32 = 1;
/// Newest protocol version that this build speaks.
pub const PROTOCOL_MAX: u32 = 1;
