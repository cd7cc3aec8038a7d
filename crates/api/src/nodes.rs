//! Nodes, for admins: `GET /v1/nodes`, and `POST /v1/join-tokens` to add one.

use serde::{Deserialize, Serialize};
use space_types::NodeId;
use utoipa::ToSchema;

use crate::{FieldErrors, Timestamp, limits};

/// A machine that runs sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    pub id: NodeId,
    pub name: String,
    pub state: NodeState,
    /// Of its own gRPC listener.
    pub address: String,
    pub version: String,
    /// What it offers to sandboxes.
    pub capacity: NodeResources,
    /// What sandboxes hold of that.
    pub used: NodeResources,
    /// Sandboxes that hold memory there.
    pub sandboxes: u64,
    pub joined_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It holds a lease: sandboxes may be placed there.
    Ready,
    /// It has been silent for longer than its lease.
    Lost,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeResources {
    pub vcpus: u32,
    pub memory_mib: u64,
    /// As capacity: free in the pool now. As use: the sum of the sandboxes' disk sizes.
    pub disk_mib: u64,
}

/// Who may join with a token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JoinTokenKind {
    #[default]
    Node,
    Edge,
}

impl JoinTokenKind {
    pub const fn code(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Edge => "edge",
        }
    }
}

/// Body of `POST /v1/join-tokens`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateJoinToken {
    /// How long the token is good, 1 to 86400.
    #[schema(minimum = 1, maximum = 86_400)]
    pub valid_seconds: u32,
    /// A node unless it says otherwise.
    pub kind: JoinTokenKind,
}

impl Default for CreateJoinToken {
    fn default() -> Self {
        Self { valid_seconds: 3600, kind: JoinTokenKind::Node }
    }
}

impl CreateJoinToken {
    pub fn validate(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::default();
        errors.require(
            (1..=limits::JOIN_TOKEN_SECONDS).contains(&self.valid_seconds),
            "valid_seconds",
            format!("must be 1 to {}", limits::JOIN_TOKEN_SECONDS),
        );
        errors.finish()
    }
}

/// Good for one node, or one edge, to join with, once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinToken {
    /// Absent when the answer repeats an earlier one: a secret is shown once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    pub expires_at: Timestamp,
}

impl std::fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinToken").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}
