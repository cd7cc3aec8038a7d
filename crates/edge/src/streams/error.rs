//! Why a reader gets no events, and what it is told: the API's own problems.

use space_api::{FieldErrors, Problem, ProblemCode, headers};
use space_attach::{Ended, is_transport};
use tonic::{Code, Status};

const SOON: u32 = 1;

/// Why a reader gets no events, or no more of them.
#[derive(Debug)]
pub(super) enum StreamError {
    Method,
    Unauthorized,
    /// What `Last-Event-ID` says.
    Position,
    NoSandbox,
    NotRunning(String),
    NoCommand,
    /// The worker knows the sandbox by another generation, or not at all.
    Moved,
    Unreachable,
    TooManyCommands,
    Timeout,
    NoControl,
    ShuttingDown,
    Refused,
}

impl From<Ended> for StreamError {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::ShuttingDown => Self::ShuttingDown,
            Ended::OtherGeneration => Self::NoCommand,
            Ended::Unavailable => Self::Unreachable,
        }
    }
}

impl From<Status> for StreamError {
    fn from(status: Status) -> Self {
        match status.code() {
            Code::NotFound => Self::NoCommand,
            Code::FailedPrecondition => Self::Moved,
            Code::ResourceExhausted => Self::TooManyCommands,
            Code::DeadlineExceeded | Code::Cancelled => Self::Timeout,
            Code::Unavailable => Self::Unreachable,
            Code::Ok
            | Code::Unknown
            | Code::InvalidArgument
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Internal
            | Code::DataLoss
            | Code::Unauthenticated => {
                tracing::warn!(code = ?status.code(), "an unexpected answer of a worker");
                if is_transport(&status) { Self::Unreachable } else { Self::Refused }
            }
        }
    }
}

impl StreamError {
    pub(super) fn problem(&self) -> Problem {
        let plain = |code, detail: &str| Problem::new(code, detail);
        let soon = |code, detail: &str| Problem::new(code, detail).with_retry_after(SOON);
        match self {
            Self::Method => plain(ProblemCode::MethodNotAllowed, "a command is attached to with GET"),
            Self::Unauthorized => plain(
                ProblemCode::Unauthorized,
                "send the attach token of this command as `Authorization: Bearer space_attach_…`",
            ),
            Self::Position => FieldErrors::one(headers::LAST_EVENT_ID, "not an id that a stream sent").into(),
            Self::NoSandbox => plain(ProblemCode::NotFound, "there is no such sandbox"),
            Self::NotRunning(state) => {
                Problem::new(ProblemCode::SandboxNotRunning, format!("the sandbox is {state}"))
            }
            Self::NoCommand => plain(ProblemCode::NotFound, "there is no such command"),
            Self::Moved | Self::Unreachable => {
                soon(ProblemCode::GuestUnavailable, "the sandbox does not answer")
            }
            Self::TooManyCommands => plain(ProblemCode::TooManyCommands, "the sandbox has too many commands"),
            Self::Timeout => plain(ProblemCode::Timeout, "it took too long"),
            Self::NoControl => {
                soon(ProblemCode::Unavailable, "the edge can't ask the control plane at the moment")
            }
            Self::ShuttingDown => soon(ProblemCode::ShuttingDown, "the edge is shutting down"),
            Self::Refused => plain(ProblemCode::Internal, "the edge's log has the cause"),
        }
    }
}
