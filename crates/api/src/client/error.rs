//! Why a call failed.

use std::time::Duration;

use crate::{Problem, sse::StreamLimitError};

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server refused, and says why.
    #[error("{}", .0.detail)]
    Problem(Box<Problem>),
    #[error("no answer from {url}")]
    Unreachable {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// Something answered that does not speak this API.
    #[error("{url} answered with status {status} and no explanation")]
    Status { status: u16, url: String },
    #[error("the answer (status {status}) is not what this client expects")]
    Answer {
        status: u16,
        #[source]
        source: serde_json::Error,
    },
    #[error("`{url}` is not the address of an API; one looks like http://127.0.0.1:8700")]
    Url { url: String },
    #[error("the HTTP client can't be set up")]
    Setup {
        #[source]
        source: reqwest::Error,
    },
    #[error("the request can't be written as JSON")]
    Request {
        #[source]
        source: serde_json::Error,
    },
    /// The server went silent or away in the middle of a stream.
    #[error("the stream from {url} broke off")]
    StreamLost { url: String },
    #[error("the stream is not readable")]
    StreamLimit(#[from] StreamLimitError),
    #[error("the stream has a `{name}` event that is not readable")]
    StreamEvent {
        name: String,
        #[source]
        source: serde_json::Error,
    },
    /// The server refused something that this client said on a WebSocket.
    #[error("the server closed the connection: {reason} ({code})")]
    Closed { code: u16, reason: String },
    #[error("still not done after {} seconds", .after.as_secs())]
    Deadline { after: Duration },
}

impl ClientError {
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            Self::Unreachable { .. }
            | Self::Status { .. }
            | Self::Answer { .. }
            | Self::Url { .. }
            | Self::Setup { .. }
            | Self::Request { .. }
            | Self::StreamLost { .. }
            | Self::StreamLimit(_)
            | Self::StreamEvent { .. }
            | Self::Closed { .. }
            | Self::Deadline { .. } => None,
        }
    }

    /// Whether the same request, sent again soon, may well be answered.
    pub fn is_worth_repeating(&self) -> bool {
        match self {
            Self::Problem(problem) => super::is_about_the_server(problem.code),
            Self::Unreachable { source, .. } => !source.is_builder(),
            Self::Status { status, .. } => super::is_gateway_status(*status),
            Self::StreamLost { .. } => true,
            Self::Answer { .. }
            | Self::Url { .. }
            | Self::Setup { .. }
            | Self::Request { .. }
            | Self::StreamLimit(_)
            | Self::StreamEvent { .. }
            | Self::Closed { .. }
            | Self::Deadline { .. } => false,
        }
    }

    /// What the server said about when to try again.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        self.problem()?.retry_after.map(|seconds| Duration::from_secs(seconds.into()))
    }
}
