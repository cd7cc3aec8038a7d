//! What a token for a command states, as the bytes that are signed: whoever holds one may attach to that command until
//! some time. Who signs is control, who checks is control or an edge; neither is here.
//!
//! A token is [`AttachClaims::PREFIX`] and base64url, without padding, of these 41 bytes followed by their Ed25519
//! signature. Positions are fixed, so there is nothing to parse:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version 1 (a port token, signed with the same key, is version 2) |
//! | 16 | the sandbox's UUID |
//! | 16 | the command's UUID |
//! | 8 | the end in Unix seconds, big-endian |

use uuid::Uuid;

use crate::{CommandId, SandboxId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachClaims {
    pub sandbox_id: SandboxId,
    pub command_id: CommandId,
    /// Unix seconds.
    pub expires_at: i64,
}

impl AttachClaims {
    pub const PREFIX: &'static str = "space_attach_";
    pub const SIGNED_BYTES: usize = 1 + 16 + 16 + 8;
    pub const SIGNATURE_BYTES: usize = 64;
    /// Behind the prefix; nothing longer needs to be decoded.
    pub const ENCODED_CHARS: usize = 140;
    const VERSION: u8 = 1;

    /// Whether a bearer value is meant as an attach token at all.
    pub fn looks_like_one(text: &str) -> bool {
        text.starts_with(Self::PREFIX)
    }

    pub fn encode(&self) -> [u8; Self::SIGNED_BYTES] {
        let mut bytes = [0; Self::SIGNED_BYTES];
        bytes[0] = Self::VERSION;
        bytes[1..17].copy_from_slice(self.sandbox_id.uuid().as_bytes());
        bytes[17..33].copy_from_slice(self.command_id.uuid().as_bytes());
        bytes[33..].copy_from_slice(&self.expires_at.to_be_bytes());
        bytes
    }

    /// The claims in `bytes`, whose signature the caller has checked or is about to check.
    pub fn decode(bytes: &[u8; Self::SIGNED_BYTES]) -> Option<Self> {
        let [version, rest @ ..] = bytes;
        let (sandbox, rest) = rest.split_first_chunk::<16>()?;
        let (command, rest) = rest.split_first_chunk::<16>()?;
        let end = rest.first_chunk::<8>()?;
        (*version == Self::VERSION).then(|| Self {
            sandbox_id: SandboxId::from_uuid(Uuid::from_bytes(*sandbox)),
            command_id: CommandId::from_uuid(Uuid::from_bytes(*command)),
            expires_at: i64::from_be_bytes(*end),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_survive_the_round_trip_and_another_version_states_nothing() {
        let claims = AttachClaims {
            sandbox_id: SandboxId::new(),
            command_id: CommandId::new(),
            expires_at: 1_800_000_000,
        };
        let mut bytes = claims.encode();
        assert_eq!(AttachClaims::decode(&bytes), Some(claims));
        let length = AttachClaims::SIGNED_BYTES + AttachClaims::SIGNATURE_BYTES;
        assert_eq!(length.div_ceil(3) * 4, AttachClaims::ENCODED_CHARS);
        bytes[0] = 2;
        assert_eq!(AttachClaims::decode(&bytes), None);
    }
}
