//! The one place that says what each error means to a caller.

use space_api::{Problem, ProblemCode};

use super::AppError;
use crate::store::StoreError;

/// Seconds after which trying again makes sense.
const SOON: u32 = 1;
const LATER: u32 = 5;

impl AppError {
    /// Without anything that only concerns us: of our own faults a caller learns that they happened.
    pub(crate) fn problem(&self) -> Problem {
        let plain = |code| Problem::new(code, self.to_string());
        match self {
            Self::Unauthorized => Problem::new(
                ProblemCode::Unauthorized,
                "send a valid API key as `Authorization: Bearer space_…`",
            ),
            Self::Forbidden(_) => plain(ProblemCode::Forbidden),
            Self::TooFast(excess) => plain(ProblemCode::RateLimited).with_retry_after(excess.retry_after()),
            Self::NotFound(_) => plain(ProblemCode::NotFound),
            Self::Conflict(_) => plain(ProblemCode::Conflict),
            Self::Invalid(errors) => errors.clone().into(),
            Self::TemplateNotFound(_) => plain(ProblemCode::TemplateNotFound).with_field("template"),
            Self::NoCapacity(_) => plain(ProblemCode::NoCapacity).with_retry_after(LATER),
            Self::QuotaExceeded(excess) => plain(ProblemCode::QuotaExceeded).with_quota(*excess),
            Self::IdempotencyReused => plain(ProblemCode::IdempotencyKeyReused),
            Self::IdempotencyInUse => plain(ProblemCode::IdempotencyKeyInUse).with_retry_after(SOON),
            Self::SandboxNotRunning { .. } => plain(ProblemCode::SandboxNotRunning),
            Self::CommandExists => plain(ProblemCode::CommandExists),
            Self::CommandNotRunning => plain(ProblemCode::CommandNotRunning),
            Self::StdinOffset(_) => plain(ProblemCode::StdinOffset).with_field("offset"),
            Self::StdinClosed => plain(ProblemCode::StdinClosed),
            Self::NoTerminal => plain(ProblemCode::NoTerminal),
            Self::AgentTooOld => plain(ProblemCode::AgentTooOld),
            Self::TooManyCommands => plain(ProblemCode::TooManyCommands),
            Self::File(error) => error.problem(),
            Self::NoEdge => plain(ProblemCode::PortsNotConfigured),
            Self::NodeUnavailable => plain(ProblemCode::NodeUnavailable).with_retry_after(SOON),
            Self::GuestUnavailable => plain(ProblemCode::GuestUnavailable).with_retry_after(SOON),
            Self::Timeout | Self::BodySilent => plain(ProblemCode::Timeout),
            Self::ShuttingDown => plain(ProblemCode::ShuttingDown).with_retry_after(SOON),
            Self::Refused(_) | Self::BodyBroken => plain(ProblemCode::InvalidRequest),
            Self::Stream(problem) => (**problem).clone(),
            Self::Store(StoreError::Unavailable(_)) => {
                Problem::new(ProblemCode::Unavailable, "the database does not answer").with_retry_after(SOON)
            }
            Self::Worker(_)
            | Self::Store(StoreError::Database(_) | StoreError::Corrupt(_) | StoreError::Migrate(_))
            | Self::Certificate(_)
            | Self::Random => {
                Problem::new(ProblemCode::Internal, "the server's log has the cause under this request's id")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_faults_are_not_told_in_detail() {
        let problem = AppError::Store(StoreError::Corrupt("secret".into())).problem();
        assert_eq!(problem.code, ProblemCode::Internal);
        assert!(!problem.detail.contains("secret"));
    }
}
