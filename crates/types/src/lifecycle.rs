//! What a sandbox's state is, as a pure function of what was wanted and what was last seen.
//!
//! ```text
//!              EnsureSandbox            agent answers
//!   creating ───────────────▶ booting ───────────────▶ running ──▶ stopped{reason}
//!      │                         │                        │
//!      └──────── failed{reason} ◀┴────────────────────────┘
//!   any of them, once deletion is wanted: deleting ──▶ deleted
//! ```
//!
//! PostgreSQL keeps the result in a column for filtering, written in the same transaction as its two inputs.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::Reason;

/// What the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Desired {
    Running,
    Deleted,
}

impl Desired {
    pub const ALL: [Self; 2] = [Self::Running, Self::Deleted];

    pub const fn code(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Deleted => "deleted",
        }
    }
}

/// What the node last saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Observed {
    /// No node has reported on it yet.
    Pending,
    Booting,
    Running,
    Stopped(Reason),
    Failed(Reason),
    /// No node holds anything of it.
    Absent,
}

impl Observed {
    pub const fn code(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Booting => "booting",
            Self::Running => "running",
            Self::Stopped(_) => "stopped",
            Self::Failed(_) => "failed",
            Self::Absent => "absent",
        }
    }

    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::Stopped(reason) | Self::Failed(reason) => Some(reason),
            Self::Pending | Self::Booting | Self::Running | Self::Absent => None,
        }
    }

    /// Nothing more happens by itself.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Stopped(_) | Self::Failed(_) | Self::Absent => true,
            Self::Pending | Self::Booting | Self::Running => false,
        }
    }
}

/// The state that users see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SandboxState {
    Creating,
    Running,
    Stopped,
    Failed,
    Deleting,
    Deleted,
}

impl SandboxState {
    pub const ALL: [Self; 6] =
        [Self::Creating, Self::Running, Self::Stopped, Self::Failed, Self::Deleting, Self::Deleted];
    /// Commands can be run.
    pub const USABLE: [Self; 1] = [Self::Running];

    pub const fn code(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Deleting => "deleting",
            Self::Deleted => "deleted",
        }
    }

    /// Counts against its node's memory: a VM is there, or is about to be.
    pub const fn holds_memory(self) -> bool {
        match self {
            Self::Creating | Self::Running | Self::Deleting => true,
            Self::Stopped | Self::Failed | Self::Deleted => false,
        }
    }
}

impl fmt::Display for SandboxState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("unknown sandbox state")]
pub struct UnknownSandboxState;

impl FromStr for SandboxState {
    type Err = UnknownSandboxState;

    fn from_str(text: &str) -> Result<Self, UnknownSandboxState> {
        Self::ALL.into_iter().find(|state| state.code() == text).ok_or(UnknownSandboxState)
    }
}

/// The state shown for a sandbox that is wanted `desired` and was last seen `observed`.
pub const fn shown_state(desired: Desired, observed: Observed) -> SandboxState {
    match (desired, observed) {
        (Desired::Running, Observed::Pending | Observed::Booting) => SandboxState::Creating,
        (Desired::Running, Observed::Running) => SandboxState::Running,
        (Desired::Running, Observed::Stopped(_)) => SandboxState::Stopped,
        // A sandbox that should exist and is nowhere has failed, whoever lost it.
        (Desired::Running, Observed::Failed(_) | Observed::Absent) => SandboxState::Failed,
        (Desired::Deleted, Observed::Absent) => SandboxState::Deleted,
        (
            Desired::Deleted,
            Observed::Pending
            | Observed::Booting
            | Observed::Running
            | Observed::Stopped(_)
            | Observed::Failed(_),
        ) => SandboxState::Deleting,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    fn every_observed() -> Vec<Observed> {
        let mut all = vec![Observed::Pending, Observed::Booting, Observed::Running, Observed::Absent];
        all.extend(Reason::ALL.iter().map(|reason| Observed::Stopped(*reason)));
        all.extend(Reason::ALL.iter().map(|reason| Observed::Failed(*reason)));
        all
    }

    #[test]
    fn the_table_of_states_is_as_documented() {
        let mut table = String::new();
        for desired in Desired::ALL {
            for observed in every_observed() {
                let reason = observed.reason().map_or(String::new(), |reason| format!("{{{reason}}}"));
                let shown = shown_state(desired, observed);
                let seen = format!("{}{reason}", observed.code());
                writeln!(table, "{:<8} {seen:<32} {shown}", desired.code()).unwrap();
            }
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn deleted_is_shown_only_when_nothing_is_left() {
        for observed in every_observed() {
            let gone = shown_state(Desired::Deleted, observed) == SandboxState::Deleted;
            assert_eq!(gone, observed == Observed::Absent, "{observed:?}");
        }
    }

    #[test]
    fn state_codes_parse_back() {
        for state in SandboxState::ALL {
            assert_eq!(state.code().parse::<SandboxState>().unwrap(), state);
        }
    }
}
