//! A job's errors as gRPC has them, by the table at the head of `proto/files.proto`.

use space_guest_proto::job::FailureKind;
use tonic::{Code, Status, metadata::MetadataValue};
use tracing::warn;

use crate::{job::JobError, metrics::Metrics};

const WORD: &str = "space-file";
const NEXT_OFFSET: &str = "space-next-offset";

/// A lie is logged and counted here, where each job's end passes.
pub(super) fn status(metrics: &Metrics, sandbox_id: &str, error: JobError) -> Status {
    let text = error.to_string();
    match error {
        JobError::Failed { kind, message, next_offset } => failure(kind, &message, next_offset),
        JobError::Broken(broken) => {
            metrics.guest_protocol_violations.add(1);
            let error: &dyn std::error::Error = &broken;
            warn!(sandbox_id, error, "a guest broke the protocol of jobs");
            Status::unavailable(text)
        }
        JobError::Unsupported => with_word(Code::Unimplemented, "unsupported", text),
        JobError::TooMany => with_word(Code::ResourceExhausted, "exhausted", text),
        JobError::Agent(error) => error.into(),
        JobError::TooLarge(error) => Status::invalid_argument(error.to_string()),
        JobError::Connect(_) | JobError::Silent | JobError::Lost | JobError::Ended => {
            Status::unavailable(text)
        }
    }
}

fn failure(kind: FailureKind, message: &str, next_offset: u64) -> Status {
    let (code, word, text) = match kind {
        FailureKind::NotFound => (Code::NotFound, "not_found", "no such file or directory"),
        FailureKind::AlreadyExists => (Code::AlreadyExists, "already_exists", "the file exists"),
        FailureKind::Permission => (Code::PermissionDenied, "permission", "the user may not do this"),
        FailureKind::NotADirectory => (Code::FailedPrecondition, "not_a_directory", "not a directory"),
        FailureKind::IsADirectory => (Code::FailedPrecondition, "is_a_directory", "a directory"),
        FailureKind::NotEmpty => (Code::FailedPrecondition, "not_empty", "the directory is not empty"),
        FailureKind::NoSpace => (Code::ResourceExhausted, "no_space", "no space left"),
        FailureKind::ReadOnly => (Code::FailedPrecondition, "read_only", "a read-only filesystem"),
        FailureKind::Path => (Code::InvalidArgument, "path", "a path that can't be followed"),
        FailureKind::Type => (Code::FailedPrecondition, "type", "neither file nor directory"),
        FailureKind::Offset => (Code::Aborted, "offset", "the upload goes on at another offset"),
        FailureKind::Exhausted => (Code::ResourceExhausted, "exhausted", "a limit of the guest is reached"),
        FailureKind::CrossDevice => (Code::FailedPrecondition, "cross_device", "another filesystem"),
        FailureKind::Archive => (Code::InvalidArgument, "archive", "not a tar stream"),
        FailureKind::NoUser => (Code::InvalidArgument, "no_user", "no such user"),
        FailureKind::Busy => (Code::Unavailable, "busy", "in use by another operation"),
        FailureKind::Unsupported => (Code::Unimplemented, "unsupported", "the agent can't do this"),
        FailureKind::Refused | FailureKind::Unspecified => (Code::Unknown, "other", "it did not work"),
        FailureKind::Invalid => {
            return Status::invalid_argument(joined("the guest takes no such request", message));
        }
        FailureKind::NotPersonalised => return Status::unavailable("the guest is not ready yet"),
    };
    let mut status = with_word(code, word, joined(text, message));
    if kind == FailureKind::Offset {
        status.metadata_mut().insert(NEXT_OFFSET, MetadataValue::from(next_offset));
    }
    status
}

fn joined(text: &str, message: &str) -> String {
    if message.is_empty() { text.to_owned() } else { format!("{text}: {message}") }
}

fn with_word(code: Code, word: &'static str, text: String) -> Status {
    let mut status = Status::new(code, text);
    status.metadata_mut().insert(WORD, MetadataValue::from_static(word));
    status
}
