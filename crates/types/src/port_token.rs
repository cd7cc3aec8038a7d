//! What a token for a port states, as the bytes that are signed. Who signs is control, who checks an edge; neither is
//! here.
//!
//! A token is [`PortClaims::PREFIX`] and base64url, without padding, of these 31 bytes followed by their Ed25519
//! signature. Positions are fixed, so there is nothing to parse:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version 2 (an attach token, signed with the same key, is version 1) |
//! | 16 | the sandbox's UUID |
//! | 2 | the port, big-endian |
//! | 4 | the port's epoch, big-endian |
//! | 8 | the end in Unix seconds, big-endian |

use std::num::NonZeroU16;

use uuid::Uuid;

use crate::{PortHost, SandboxId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortClaims {
    pub host: PortHost,
    /// Tokens of an older epoch than the port's are void.
    pub epoch: u32,
    /// Unix seconds.
    pub expires_at: i64,
}

impl PortClaims {
    pub const PREFIX: &'static str = "space_port_";
    pub const SIGNED_BYTES: usize = 1 + 16 + 2 + 4 + 8;
    pub const SIGNATURE_BYTES: usize = 64;
    /// Behind the prefix; nothing longer needs to be decoded.
    pub const ENCODED_CHARS: usize = 127;
    const VERSION: u8 = 2;

    pub fn encode(&self) -> [u8; Self::SIGNED_BYTES] {
        let mut bytes = [0; Self::SIGNED_BYTES];
        bytes[0] = Self::VERSION;
        bytes[1..17].copy_from_slice(self.host.sandbox_id.uuid().as_bytes());
        bytes[17..19].copy_from_slice(&self.host.port.get().to_be_bytes());
        bytes[19..23].copy_from_slice(&self.epoch.to_be_bytes());
        bytes[23..].copy_from_slice(&self.expires_at.to_be_bytes());
        bytes
    }

    /// The claims in `bytes`, whose signature the caller has checked or is about to check.
    pub fn decode(bytes: &[u8; Self::SIGNED_BYTES]) -> Option<Self> {
        let [version, rest @ ..] = bytes;
        let (uuid, rest) = rest.split_first_chunk::<16>()?;
        let (port, rest) = rest.split_first_chunk::<2>()?;
        let (epoch, rest) = rest.split_first_chunk::<4>()?;
        let end = rest.first_chunk::<8>()?;
        let port = NonZeroU16::new(u16::from_be_bytes(*port))?;
        (*version == Self::VERSION).then(|| Self {
            host: PortHost { port, sandbox_id: SandboxId::from_uuid(Uuid::from_bytes(*uuid)) },
            epoch: u32::from_be_bytes(*epoch),
            expires_at: i64::from_be_bytes(*end),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> PortClaims {
        let host = PortHost { port: NonZeroU16::new(8000).unwrap(), sandbox_id: SandboxId::new() };
        PortClaims { host, epoch: 7, expires_at: 1_800_000_000 }
    }

    #[test]
    fn claims_survive_the_round_trip() {
        let claims = claims();
        assert_eq!(PortClaims::decode(&claims.encode()), Some(claims));
        let bytes = PortClaims::SIGNED_BYTES + PortClaims::SIGNATURE_BYTES;
        assert_eq!((bytes * 8).div_ceil(6), PortClaims::ENCODED_CHARS);
    }

    #[test]
    fn another_version_or_port_zero_states_nothing() {
        let mut attach = claims().encode();
        attach[0] = 1;
        assert_eq!(PortClaims::decode(&attach), None);
        let mut zero = claims().encode();
        zero[17..19].fill(0);
        assert_eq!(PortClaims::decode(&zero), None);
    }
}
