//! Signs what tokens state, and checks it; anyone with the public key checks it too, without asking anybody.

use aws_lc_rs::{
    encoding::AsDer as _,
    signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use space_types::AttachClaims;

use super::AuthorityError;

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
        let mut token = claims.encode().to_vec();
        let signature = self.key.sign(&token);
        token.extend_from_slice(signature.as_ref());
        format!("{}{}", AttachClaims::PREFIX, URL_SAFE_NO_PAD.encode(token))
    }

    /// Signs bytes that begin with another version than an attach token's.
    pub(super) fn sign_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        self.key.sign(bytes).as_ref().to_vec()
    }

    /// What anybody checks signatures with: 32 bytes.
    pub(crate) fn public_key(&self) -> &[u8] {
        self.key.public_key().as_ref()
    }

    /// The claims of a genuine token that has not expired at `now` (Unix seconds).
    pub(crate) fn verify(&self, text: &str, now: i64) -> Option<AttachClaims> {
        let encoded = text.strip_prefix(AttachClaims::PREFIX)?;
        let right_length = encoded.len() == AttachClaims::ENCODED_CHARS;
        let token = right_length.then(|| URL_SAFE_NO_PAD.decode(encoded).ok()).flatten()?;
        let (claims, signature) = token.split_first_chunk::<{ AttachClaims::SIGNED_BYTES }>()?;
        self.public.verify(claims, signature).ok()?;
        AttachClaims::decode(claims).filter(|claims| now < claims.expires_at)
    }
}

#[cfg(test)]
mod tests {
    use space_types::{CommandId, SandboxId};

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
        let mut bytes = URL_SAFE_NO_PAD.decode(&token[AttachClaims::PREFIX.len()..]).unwrap();
        for index in 0..bytes.len() {
            bytes[index] ^= 1;
            let changed = format!("{}{}", AttachClaims::PREFIX, URL_SAFE_NO_PAD.encode(&bytes));
            assert_eq!(one.verify(&changed, 0), None, "byte {index}");
            bytes[index] ^= 1;
        }
        for text in ["", AttachClaims::PREFIX, &token[..token.len() - 1], &format!("{token}A")] {
            assert_eq!(one.verify(text, 0), None, "{text}");
        }
    }
}
