//! Operations: what a change of a sandbox is doing. `GET /v1/operations/{id}` and its event stream.

use serde::{Deserialize, Serialize};
use space_types::{OperationId, SandboxId};
use utoipa::ToSchema;

use crate::{Problem, Timestamp};

/// One asynchronous change of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    pub id: OperationId,
    pub kind: OperationKind,
    pub sandbox_id: SandboxId,
    pub status: OperationStatus,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    Create,
    Delete,
}

impl OperationKind {
    pub const ALL: [Self; 2] = [Self::Create, Self::Delete];

    pub const fn code(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationStatus {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl OperationStatus {
    pub const ALL: [Self; 4] = [Self::Pending, Self::Running, Self::Succeeded, Self::Failed];

    pub const fn code(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        }
    }

    /// Nothing more will change.
    pub const fn is_done(self) -> bool {
        match self {
            Self::Succeeded | Self::Failed => true,
            Self::Pending | Self::Running => false,
        }
    }
}

/// Name of the events on `GET /v1/operations/{id}/events`. Each carries the whole [`Operation`]; the stream
/// begins with the present state and ends after the last.
pub const OPERATION_EVENT: &str = "operation";
