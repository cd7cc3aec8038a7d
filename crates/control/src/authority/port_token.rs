//! Tokens for ports: signed with the key of attach tokens, told apart from those by their first byte (see
//! [`PortClaims`]). Edges check them with the public key alone.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use space_types::PortClaims;

use super::AttachSigner;

impl AttachSigner {
    pub(crate) fn sign_port(&self, claims: &PortClaims) -> String {
        let mut token = claims.encode().to_vec();
        let signature = self.sign_bytes(&token);
        token.extend_from_slice(&signature);
        format!("{}{}", PortClaims::PREFIX, URL_SAFE_NO_PAD.encode(token))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
    use space_types::{PortHost, SandboxId};

    use super::*;

    #[test]
    fn a_token_is_checked_with_the_public_key_and_is_no_attach_token() {
        let signer = AttachSigner::new(&AttachSigner::new_key().unwrap()).unwrap();
        let host = PortHost { port: NonZeroU16::MIN, sandbox_id: SandboxId::new() };
        let claims = PortClaims { host, epoch: 3, expires_at: 1000 };
        let token = signer.sign_port(&claims);
        let encoded = token.strip_prefix(PortClaims::PREFIX).unwrap();
        assert_eq!(encoded.len(), PortClaims::ENCODED_CHARS);
        let bytes = URL_SAFE_NO_PAD.decode(encoded).unwrap();
        let (signed, signature) = bytes.split_first_chunk::<{ PortClaims::SIGNED_BYTES }>().unwrap();
        assert_eq!(PortClaims::decode(signed), Some(claims));
        assert_eq!(signer.public_key().len(), 32);
        UnparsedPublicKey::new(&ED25519, signer.public_key()).verify(signed, signature).unwrap();
        assert_eq!(signer.verify(&token, 0), None);
        assert_eq!(signer.verify(&format!("space_attach_{encoded}"), 0), None);
    }
}
