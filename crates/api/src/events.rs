//! The event log: `GET /v1/events` and `GET /v1/sandboxes/{id}/events`, both server-sent events.
//!
//! On the wire `event:` is the kind, `data:` an [`Event`], and `id:` its sequence number. `Last-Event-ID: n`
//! continues after `n` (`0`: from the beginning of the log); without it a stream begins with what happens next.

use serde::{Deserialize, Serialize};
use space_types::{EventId, Reason, SandboxId, SandboxState};
use utoipa::{IntoParams, ToSchema};

use crate::{Timestamp, operations::Operation};

/// One thing that happened to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    pub id: EventId,
    /// Grows along the tenant's log, with holes.
    pub sequence: i64,
    pub kind: EventKind,
    pub sandbox_id: SandboxId,
    pub at: Timestamp,
    pub data: EventData,
}

/// What an event tells beside its kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventData {
    /// The sandbox's state since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<SandboxState>,
    /// Why, for `sandbox.stopped` and `sandbox.failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// For `operation.finished`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
}

macro_rules! event_kinds {
    // `tt` for the code: the schema's derive doesn't see through a `literal`, and would name the variant.
    ($($(#[$doc:meta])* $name:ident = $code:tt;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        pub enum EventKind {
            $($(#[$doc])* #[serde(rename = $code)] $name,)*
        }

        impl EventKind {
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }
        }
    };
}

event_kinds! {
    /// The sandbox was accepted.
    SandboxCreated = "sandbox.created";
    /// Its agent has answered: commands can be run.
    SandboxRunning = "sandbox.running";
    /// It came to an orderly end.
    SandboxStopped = "sandbox.stopped";
    /// It came to any other end, or never began.
    SandboxFailed = "sandbox.failed";
    /// Deletion was accepted.
    SandboxDeleting = "sandbox.deleting";
    /// Nothing of it is left.
    SandboxDeleted = "sandbox.deleted";
    /// An operation succeeded or failed.
    OperationFinished = "operation.finished";
}

impl EventKind {
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.code() == code)
    }
}

/// Query of `GET /v1/events`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Events of this sandbox alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxId>,
}
