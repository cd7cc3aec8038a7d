//! Errors as gRPC has them, by the table at the head of `proto/commands.proto`.
//!
//! Where a guest refused, the metadata entry `space-refusal` names why with one word, for callers that tell
//! refusals of the same code apart.

use space_guest_proto::{InvalidRequest, message::RefusalCode};
use tonic::{Code, Status, metadata::MetadataValue};

use crate::{guest::CallError, sandboxes::FindError};

const REFUSAL: &str = "space-refusal";

pub(super) fn invalid(error: &InvalidRequest) -> Status {
    Status::invalid_argument(error.to_string())
}

impl From<FindError> for Status {
    fn from(error: FindError) -> Self {
        let code = match error {
            FindError::NotFound => Code::NotFound,
            FindError::Generation => Code::FailedPrecondition,
        };
        Self::new(code, error.to_string())
    }
}

impl From<CallError> for Status {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused { code, message } => refusal(code, &message),
            CallError::Silent | CallError::Lost | CallError::Ended(_) => Self::unavailable(error.to_string()),
            CallError::TooMany => Self::resource_exhausted(error.to_string()),
            CallError::Unreadable => Self::data_loss(error.to_string()),
            CallError::TooLarge => Self::invalid_argument(error.to_string()),
        }
    }
}

fn refusal(code: RefusalCode, message: &str) -> Status {
    let (grpc, word, text) = match code {
        RefusalCode::Invalid => (Code::InvalidArgument, "invalid", "the guest takes no such request"),
        RefusalCode::StdinHole => {
            (Code::InvalidArgument, "stdin_hole", "bytes before this offset are missing")
        }
        RefusalCode::NotFound => (Code::NotFound, "not_found", "no such command"),
        RefusalCode::Forgotten => (Code::NotFound, "forgotten", "the command was forgotten to make room"),
        RefusalCode::AlreadyExists => {
            (Code::AlreadyExists, "already_exists", "the id belongs to a command with another specification")
        }
        RefusalCode::NotRunning => (Code::FailedPrecondition, "not_running", "the command is not running"),
        RefusalCode::StdinClosed => {
            (Code::FailedPrecondition, "stdin_closed", "the command's stdin is closed")
        }
        RefusalCode::NoTerminal => (Code::FailedPrecondition, "no_terminal", "the command has no terminal"),
        RefusalCode::StaleGeneration => (Code::FailedPrecondition, "stale_generation", "an older generation"),
        RefusalCode::NoRoot => (Code::FailedPrecondition, "no_root", "the sandbox has no root filesystem"),
        RefusalCode::Exhausted => (Code::ResourceExhausted, "exhausted", "a limit of the guest is reached"),
        RefusalCode::Unsupported => {
            (Code::Unimplemented, "unsupported", "the guest's agent is too old for this")
        }
        RefusalCode::Busy => (Code::Unavailable, "busy", "another write to this stdin is waiting"),
        RefusalCode::NotPersonalised => (Code::Unavailable, "not_personalised", "the guest is not ready yet"),
        RefusalCode::ShuttingDown => (Code::Unavailable, "shutting_down", "the guest is going down"),
        RefusalCode::Unspecified | RefusalCode::Version | RefusalCode::Protocol | RefusalCode::Internal => {
            (Code::Unavailable, "internal", "the guest could not do it")
        }
    };
    let text = if message.is_empty() { text.to_owned() } else { format!("{text}: {message}") };
    let mut status = Status::new(grpc, text);
    status.metadata_mut().insert(REFUSAL, MetadataValue::from_static(word));
    status
}
