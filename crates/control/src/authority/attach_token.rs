//! Attach tokens: signed statements that whoever holds one may attach to one command until some time. Anyone
//! with the public key checks one without asking anybody.
//!
//! A token is `space_attach_` and base64url of 41 bytes of claims followed by their Ed25519 signature:
//! version 1, the sandbox's and the command's UUID, and the end in Unix seconds, big-endian. Fixed positions leave
//! nothing to parse.

use aws_lc_rs::{
    encoding::AsDer as _,
    signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use space_types::{CommandId, SandboxId};
use uuid::Uuid;

use super::AuthorityError;

const PREFIX: &str = "space_attach_";
const VERSION: u8 = 1;
const CLAIMS: usize = 1 + 16 + 16 + 8;
const SIGNATURE: usize = 64;

/// What a token states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttachClaims {
    pub(crate) sandbox_id: SandboxId,
    pub(crate) command_id: CommandId,
    /// Unix seconds.
    pub(crate) expires_at: i64,
}

pub(crate) struct AttachSigner {
    key: Ed25519KeyPair,
    public: UnparsedPublicKey<Vec<u8>>,
}

impl AttachSigner {
    pub(super) fn new_key() -> Result<Vec<u8>, AuthorityError> {
        let key = Ed25519KeyPair::generate().map_err(|_unspecified| AuthorityError::Random)?;
        let der: aws_lc_rs::encoding::Pkcs8V1Der<'_> =
            key.as_der().map_err(|_unspecified| AuthorityError::Random)?;
        Ok(der.as_ref().to_vec())
    }

    pub(super) fn new(pkcs8: &[u8]) -> Option<Self> {
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8).ok()?;
        let public = UnparsedPublicKey::new(&ED25519, key.public_key().as_ref().to_vec());
        Some(Self { key, public })
    }

    pub(crate) fn sign(&self, claims: &AttachClaims) -> String {
        let mut token = encode(claims);
        let signature = self.key.sign(&token);
        token.extend_from_slice(signature.as_ref());
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(token))
    }

    /// Signs bytes that begin with another version than an attach token's.
    pub(super) fn sign_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        self.key.sign(bytes).as_ref().to_vec()
    }

    /// What anybody checks signatures with: 32 bytes.
    pub(crate) fn public_key(&self) -> &[u8] {
        self.key.public_key().as_ref()
    }

    /// Whether a bearer value is meant as an attach token at all.
    pub(crate) fn looks_like_one(text: &str) -> bool {
        text.starts_with(PREFIX)
    }

    /// The claims of a genuine token that has not expired at `now` (Unix seconds).
    pub(crate) fn verify(&self, text: &str, now: i64) -> Option<AttachClaims> {
        let encoded = text.strip_prefix(PREFIX)?;
        // 105 bytes make 140 characters; nothing longer is decoded.
        let token = (encoded.len() == 140).then(|| URL_SAFE_NO_PAD.decode(encoded).ok()).flatten()?;
        let (claims, signature) = token.split_at_checked(CLAIMS)?;
        if signature.len() != SIGNATURE || claims.first() != Some(&VERSION) {
            return None;
        }
        self.public.verify(claims, signature).ok()?;
        decode(claims).filter(|claims| now < claims.expires_at)
    }
}

fn encode(claims: &AttachClaims) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(CLAIMS + SIGNATURE);
    bytes.push(VERSION);
    bytes.extend_from_slice(claims.sandbox_id.uuid().as_bytes());
    bytes.extend_from_slice(claims.command_id.uuid().as_bytes());
    bytes.extend_from_slice(&claims.expires_at.to_be_bytes());
    bytes
}

fn decode(claims: &[u8]) -> Option<AttachClaims> {
    let uuid = |range: std::ops::Range<usize>| Uuid::from_slice(claims.get(range)?).ok();
    Some(AttachClaims {
        sandbox_id: SandboxId::from_uuid(uuid(1..17)?),
        command_id: CommandId::from_uuid(uuid(17..33)?),
        expires_at: i64::from_be_bytes(claims.get(33..CLAIMS)?.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer() -> AttachSigner {
        AttachSigner::new(&AttachSigner::new_key().unwrap()).unwrap()
    }

    fn claims() -> AttachClaims {
        AttachClaims { sandbox_id: SandboxId::new(), command_id: CommandId::new(), expires_at: 1000 }
    }

    #[test]
    fn a_token_states_what_was_signed_until_it_expires() {
        let (signer, claims) = (signer(), claims());
        let token = signer.sign(&claims);
        assert_eq!(signer.verify(&token, 999), Some(claims));
        assert_eq!(signer.verify(&token, 1000), None);
    }

    #[test]
    fn another_signer_or_a_changed_bit_is_refused() {
        let (one, token) = (signer(), signer().sign(&claims()));
        assert_eq!(one.verify(&token, 0), None);
        let token = one.sign(&claims());
        let mut bytes = URL_SAFE_NO_PAD.decode(&token[PREFIX.len()..]).unwrap();
        for index in 0..bytes.len() {
            bytes[index] ^= 1;
            let changed = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(&bytes));
            assert_eq!(one.verify(&changed, 0), None, "byte {index}");
            bytes[index] ^= 1;
        }
        for text in ["", PREFIX, &token[..token.len() - 1], &format!("{token}A")] {
            assert_eq!(one.verify(text, 0), None, "{text}");
        }
    }
}
