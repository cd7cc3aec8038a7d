//! What the kernel of a sandbox, or its agent, said to an operation on files.

use space_api::{Problem, ProblemCode};
use tonic::{Code, Status};

use space_attach::is_transport;

use super::AppError;

/// Guest-made text in a detail.
const TEXT_CHARS: usize = 300;

/// By the word of the worker (see the head of `files.proto`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub(crate) struct FileError {
    code: ProblemCode,
    detail: String,
    /// Of an upload.
    next_offset: Option<u64>,
}

impl FileError {
    pub(crate) fn problem(&self) -> Problem {
        let problem = Problem::new(self.code, self.detail.clone());
        match (self.code, self.next_offset) {
            (_, Some(next)) => problem.with_field("offset").with_next_offset(next),
            (ProblemCode::UserNotFound, None) => problem.with_field("user"),
            (ProblemCode::FileExhausted | ProblemCode::FileBusy, None) => problem.with_retry_after(1),
            (_, None) => problem,
        }
    }

    fn from_word(word: &str, status: &Status) -> Option<Self> {
        let code = match word {
            "not_found" => ProblemCode::FileNotFound,
            "already_exists" => ProblemCode::FileExists,
            "permission" => ProblemCode::FilePermission,
            "not_a_directory" => ProblemCode::FileNotADirectory,
            "is_a_directory" => ProblemCode::FileIsADirectory,
            "not_empty" => ProblemCode::DirectoryNotEmpty,
            "no_space" => ProblemCode::FileNoSpace,
            "read_only" => ProblemCode::FileReadOnly,
            "path" => ProblemCode::FilePath,
            "type" => ProblemCode::FileType,
            "offset" => ProblemCode::UploadOffset,
            "exhausted" => ProblemCode::FileExhausted,
            "cross_device" => ProblemCode::FileCrossDevice,
            "archive" => ProblemCode::ArchiveMalformed,
            "no_user" => ProblemCode::UserNotFound,
            "unsupported" => ProblemCode::FileUnsupported,
            "busy" => ProblemCode::FileBusy,
            "other" => ProblemCode::FileFailed,
            _ => return None,
        };
        let next =
            status.metadata().get("space-next-offset").and_then(|next| next.to_str().ok()?.parse().ok());
        let next_offset = (code == ProblemCode::UploadOffset).then(|| next.unwrap_or(0));
        Some(Self { code, detail: status.message().chars().take(TEXT_CHARS).collect(), next_offset })
    }
}

/// By the table at the head of `files.proto`.
pub(super) fn from_status(status: Status) -> AppError {
    let word = status.metadata().get("space-file").and_then(|word| word.to_str().ok()).unwrap_or_default();
    if let Some(error) = FileError::from_word(word, &status) {
        return AppError::File(Box::new(error));
    }
    match status.code() {
        Code::InvalidArgument => AppError::Refused(status.message().chars().take(TEXT_CHARS).collect()),
        Code::DeadlineExceeded | Code::Cancelled => AppError::Timeout,
        // A worker of before there were files.
        Code::Unimplemented => AppError::File(Box::new(FileError {
            code: ProblemCode::FileUnsupported,
            detail: "the sandbox's worker has no file operations".to_owned(),
            next_offset: None,
        })),
        _ if is_transport(&status) => AppError::NodeUnavailable,
        // Of another generation, or not at this worker, or the agent does not answer: the next report tells.
        Code::Unavailable | Code::FailedPrecondition | Code::NotFound => AppError::GuestUnavailable,
        Code::Ok
        | Code::Unknown
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::OutOfRange
        | Code::Internal
        | Code::DataLoss
        | Code::Unauthenticated => AppError::Worker(Box::new(status)),
    }
}

#[cfg(test)]
mod tests {
    use tonic::metadata::MetadataValue;

    use super::*;

    #[test]
    fn where_an_upload_goes_on_is_told() {
        let mut status = Status::aborted("elsewhere");
        status.metadata_mut().insert("space-file", MetadataValue::from_static("offset"));
        status.metadata_mut().insert("space-next-offset", MetadataValue::from(7_u64));
        let problem = from_status(status).problem();
        assert_eq!((problem.status, problem.next_offset), (409, Some(7)));
    }

    #[test]
    fn a_status_without_a_word_is_about_the_sandbox() {
        assert!(matches!(from_status(Status::not_found("")), AppError::GuestUnavailable));
        assert!(matches!(from_status(Status::unavailable("")), AppError::GuestUnavailable));
        assert!(matches!(from_status(Status::internal("")), AppError::Worker(_)));
    }
}
