//! Why a request about a sandbox was not fulfilled.

use space_types::Reason;

use super::Denial;

/// Shared by all who wait for the same result, so it carries text where a cause was already logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VmError {
    #[error(transparent)]
    Denied(#[from] Denial),
    /// Nothing of the sandbox is left; another node may have room.
    #[error("{}: {message}", reason.code())]
    Exhausted { reason: Reason, message: String },
    /// Nothing of the sandbox is left; later there may be time for it.
    #[error("the node has no processor time to start a VM")]
    Busy,
    #[error("the sandbox was removed while it booted")]
    Cancelled,
    #[error("the node is shutting down")]
    Stopping,
    #[error("the node failed; its log says why")]
    Internal,
}
