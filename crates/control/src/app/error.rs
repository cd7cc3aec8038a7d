//! The one closed list of ways in which a request fails. `http/problem.rs` gives each its answer.

use space_api::FieldErrors;
use space_types::{MachineClass, Reason, SandboxState, TemplateRef};

use super::file_error::FileError;
use crate::{
    authority::CertificateError,
    store::{StoreError, idempotency::Claimed, sandbox_changes::CreateSandboxError},
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum AppError {
    #[error("no valid key or token")]
    Unauthorized,
    #[error(transparent)]
    Forbidden(#[from] crate::grants::Lack),
    #[error(transparent)]
    TooFast(#[from] crate::rate_limit::TooFast),
    #[error("there is no such {0}")]
    NotFound(&'static str),
    #[error("{0}")]
    Conflict(String),
    #[error("invalid fields")]
    Invalid(FieldErrors),
    #[error("there is no template {0}")]
    TemplateNotFound(TemplateRef),
    #[error("no node has room for {} vCPU and {} of memory", .0.vcpus, .0.memory)]
    NoCapacity(MachineClass),
    #[error("{0}")]
    QuotaExceeded(space_api::quotas::QuotaExcess),
    #[error("the idempotency key was used for another request")]
    IdempotencyReused,
    #[error("the first request with this idempotency key still runs")]
    IdempotencyInUse,
    #[error("the sandbox is {state}{}", .reason.map(|reason| format!(" ({reason})")).unwrap_or_default())]
    SandboxNotRunning { state: SandboxState, reason: Option<Reason> },
    #[error("the command exists with another specification")]
    CommandExists,
    #[error("the command does not run")]
    CommandNotRunning,
    #[error("input before offset {0} is missing")]
    StdinOffset(u64),
    #[error("standard input is closed")]
    StdinClosed,
    #[error("the command has no terminal")]
    NoTerminal,
    #[error("the sandbox's agent is older than this and does not know it")]
    AgentTooOld,
    #[error("the sandbox has too many commands")]
    TooManyCommands,
    #[error(transparent)]
    File(Box<FileError>),
    #[error("no edge serves ports here: `ports.base_url` is not set")]
    NoEdge,
    #[error("the body broke off before its end")]
    BodyBroken,
    #[error("the body was silent for too long")]
    BodySilent,
    #[error("the sandbox's node does not answer")]
    NodeUnavailable,
    #[error("the sandbox's agent does not answer")]
    GuestUnavailable,
    #[error("it took too long")]
    Timeout,
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error("the worker refused the request: {0}")]
    Refused(String),
    #[error("unexpected answer of a worker")]
    Worker(#[source] Box<tonic::Status>),
    /// A stream's last event, for a caller who wanted no stream.
    #[error("{0}")]
    Stream(Box<space_api::Problem>),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("the system gives no random bytes")]
    Random,
}

impl From<FieldErrors> for AppError {
    fn from(errors: FieldErrors) -> Self {
        Self::Invalid(errors)
    }
}

impl From<CreateSandboxError> for AppError {
    fn from(error: CreateSandboxError) -> Self {
        match error {
            CreateSandboxError::TemplateNotFound(reference) => Self::TemplateNotFound(reference),
            CreateSandboxError::DiskTooSmall { image_mib } => Self::Invalid(FieldErrors::one(
                "disk_mib",
                format!("must be at least {image_mib}, the size of the template's image"),
            )),
            CreateSandboxError::NoProject => {
                Self::Invalid(FieldErrors::one("project_id", "there is no such project"))
            }
            CreateSandboxError::QuotaExceeded(excess) => Self::QuotaExceeded(excess),
            CreateSandboxError::NoCapacity(class) => Self::NoCapacity(class),
            CreateSandboxError::Store(error) => Self::Store(error),
        }
    }
}

/// An answer, new or repeated.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    New(T),
    Repeated(crate::store::idempotency::StoredResponse),
}

impl<T> Answer<T> {
    pub(crate) fn from_claimed(claimed: Claimed<T>) -> Result<Self, AppError> {
        match claimed {
            Claimed::Done(value) => Ok(Self::New(value)),
            Claimed::Repeated(response) => Ok(Self::Repeated(response)),
            Claimed::Reused => Err(AppError::IdempotencyReused),
            Claimed::InUse => Err(AppError::IdempotencyInUse),
        }
    }

    pub(crate) fn map<U>(self, convert: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Self::New(value) => Answer::New(convert(value)),
            Self::Repeated(response) => Answer::Repeated(response),
        }
    }
}

impl AppError {
    /// Ours to repair, not the caller's.
    pub(crate) const fn is_fault(&self) -> bool {
        match self {
            Self::Worker(_) | Self::Certificate(_) | Self::Random => true,
            Self::Store(error) => !matches!(error, StoreError::Unavailable(_)),
            Self::Unauthorized
            | Self::Forbidden(_)
            | Self::TooFast(_)
            | Self::NotFound(_)
            | Self::Conflict(_)
            | Self::Invalid(_)
            | Self::TemplateNotFound(_)
            | Self::NoCapacity(_)
            | Self::QuotaExceeded(_)
            | Self::IdempotencyReused
            | Self::IdempotencyInUse
            | Self::SandboxNotRunning { .. }
            | Self::CommandExists
            | Self::CommandNotRunning
            | Self::StdinOffset(_)
            | Self::StdinClosed
            | Self::NoTerminal
            | Self::AgentTooOld
            | Self::TooManyCommands
            | Self::File(_)
            | Self::NoEdge
            | Self::BodyBroken
            | Self::BodySilent
            | Self::NodeUnavailable
            | Self::GuestUnavailable
            | Self::Timeout
            | Self::ShuttingDown
            | Self::Refused(_)
            | Self::Stream(_) => false,
        }
    }
}
