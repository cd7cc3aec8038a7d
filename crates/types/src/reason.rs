//! Why a sandbox stopped or failed: a closed list, so that nothing a guest says ends up in a state.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    // `tt` for the code: the schema's derive doesn't see through a `literal`, and would name the variant.
    ($($(#[$doc:meta])* $name:ident = $code:tt;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
        pub enum Reason {
            $($(#[$doc])* #[serde(rename = $code)] $name,)*
        }

        impl Reason {
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }
        }
    };
}

reasons! {
    /// The guest powered itself off.
    GuestShutdown = "guest_shutdown";
    /// The guest asked for a reboot; a microVM ends instead.
    GuestReboot = "guest_reboot";
    /// The VM ended in an orderly way without having said why.
    GuestExit = "guest_exit";
    /// The guest's kernel panicked.
    GuestPanic = "guest_panic";
    /// Firecracker died.
    VmmDied = "vmm_died";
    /// Firecracker was killed for exceeding its memory.
    VmmOom = "vmm_oom";
    /// The agent did not answer in time.
    AgentSilent = "agent_silent";
    /// The agent broke the protocol.
    AgentProtocol = "agent_protocol";
    /// The node's machine restarted under the sandbox.
    NodeRestarted = "node_restarted";
    /// The node has been silent for longer than its lease.
    NodeLost = "node_lost";
    /// No node had room.
    NoCapacity = "no_capacity";
    /// The node's disk pool is full.
    NoDiskSpace = "no_disk_space";
    /// The template's image could not be fetched, or is not what its digest says.
    TemplateUnavailable = "template_unavailable";
    /// The node could not start the VM; its log says why.
    NodeError = "node_error";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("unknown reason code")]
pub struct UnknownReason;

impl FromStr for Reason {
    type Err = UnknownReason;

    fn from_str(text: &str) -> Result<Self, UnknownReason> {
        Self::ALL.iter().copied().find(|reason| reason.code() == text).ok_or(UnknownReason)
    }
}
