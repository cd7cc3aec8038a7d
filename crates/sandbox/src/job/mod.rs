//! Jobs: one file operation or tunnel each, on a connection of its own to the guest's port 1025.
//!
//! ```text
//!   place in the sandbox and the worker ──▶ noded's descriptor ──▶ CONNECT 1025 ──▶ OpenJob
//!     ──▶ Opened ──▶ data, by turns of whoever is ready ──▶ Done
//! ```
//! Nothing is buffered beyond a frame in each direction: a client that doesn't read stops the guest's process, and a
//! guest that doesn't read stops the client. Dropping a job closes its connection, which cancels it in the guest.
//!
//! *Deadlines* count silence, and only while it is the guest's turn: `Opened`, each further piece of what is read,
//! room for each piece of what is written, `Done`. A job that waits for its client, or a watch for something to
//! happen, may last for as long as it likes; the caller sees to its own side. A tunnel has a deadline to open, and none
//! from then on.
//!
//! *A guest that lies* ends the job, and is counted. It does not end the sandbox's other connections, unlike a lie on
//! the agent's: what speaks here is a process of the user whom the job is for, so any program of that user could have
//! taken it over, and must not be able to end other users' commands.

pub(crate) mod check;
mod client;
mod link;
mod stream;
mod tunnel;

use space_guest_proto::{EncodeError, job::FailureKind};

pub(crate) use check::Broken;
pub(crate) use client::{JobClient, JobPlaces};
pub(crate) use stream::{Changing, Reading, Writing};
pub(crate) use tunnel::{Moved, Tunnel};

use crate::{guest::CallError, node::ConnectError};

/// Why a job did not do what it was for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JobError {
    /// The guest's kernel said no, or its agent. The text is the guest's, made printable.
    #[error("{message}")]
    Failed { kind: FailureKind, message: String, next_offset: u64 },
    #[error("no connection to the sandbox")]
    Connect(#[from] ConnectError),
    /// The agent answers, but not on this port: it is older than jobs are.
    #[error("the sandbox's agent has no file operations")]
    Unsupported,
    #[error("the sandbox's agent can't be reached")]
    Agent(#[from] CallError),
    #[error("the guest does not go on")]
    Silent,
    #[error("the connection to the guest was lost")]
    Lost,
    #[error("the guest broke the protocol")]
    Broken(#[from] Broken),
    #[error("too many file operations in this sandbox at a time")]
    TooMany,
    #[error("the request does not fit a frame")]
    TooLarge(#[from] EncodeError),
    #[error("the sandbox is not served here any more")]
    Ended,
}
