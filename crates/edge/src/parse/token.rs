//! A port token, checked with control's public keys: a signature over fixed bytes (`space_types::PortClaims`).

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use space_types::{PortClaims, PortHost};

pub type PublicKey = [u8; 32];

/// What `token` states, if one of `keys` signed it and it is for `host` and has not ended at `now` (Unix seconds).
/// Whether its epoch is void, the route knows.
pub fn check(token: &str, keys: &[PublicKey], host: PortHost, now: i64) -> Option<PortClaims> {
    let claims = signed_claims(token, keys)?;
    (claims.host == host && claims.expires_at > now).then_some(claims)
}

fn signed_claims(token: &str, keys: &[PublicKey]) -> Option<PortClaims> {
    let encoded = token.strip_prefix(PortClaims::PREFIX)?;
    PortClaims::decode(&signed_bytes(encoded, PortClaims::ENCODED_CHARS, keys)?)
}

/// The first `N` bytes of what `encoded` encodes, if the rest is a signature of theirs by one of `keys`.
pub(super) fn signed_bytes<const N: usize>(
    encoded: &str,
    chars: usize,
    keys: &[PublicKey],
) -> Option<[u8; N]> {
    if encoded.len() != chars {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(encoded).ok()?;
    let (claims, signature) = bytes.split_first_chunk::<N>()?;
    let signed = |key: &PublicKey| UnparsedPublicKey::new(&ED25519, key).verify(claims, signature).is_ok();
    keys.iter().any(signed).then_some(*claims)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
    use proptest::prelude::*;
    use space_types::SandboxId;

    use super::*;

    fn host(port: u16) -> PortHost {
        PortHost { port: NonZeroU16::new(port).unwrap(), sandbox_id: SandboxId::from_uuid(uuid::Uuid::nil()) }
    }

    fn signer() -> (Ed25519KeyPair, PublicKey) {
        let pair = Ed25519KeyPair::generate().unwrap();
        let public = pair.public_key().as_ref().try_into().unwrap();
        (pair, public)
    }

    fn sign(pair: &Ed25519KeyPair, claims: PortClaims) -> Vec<u8> {
        let mut bytes = claims.encode().to_vec();
        bytes.extend_from_slice(pair.sign(&claims.encode()).as_ref());
        bytes
    }

    fn text(bytes: &[u8]) -> String {
        format!("{}{}", PortClaims::PREFIX, URL_SAFE_NO_PAD.encode(bytes))
    }

    #[test]
    fn a_token_is_good_for_its_host_until_its_end() {
        let ((pair, key), (_, other)) = (signer(), signer());
        let claims = PortClaims { host: host(80), epoch: 3, expires_at: 100 };
        let token = text(&sign(&pair, claims));
        assert_eq!(check(&token, &[other, key], host(80), 99), Some(claims));
        assert_eq!(check(&token, &[key], host(80), 100), None, "it has ended");
        assert_eq!(check(&token, &[key], host(81), 99), None, "another port");
        assert_eq!(check(&token, &[other], host(80), 99), None, "another installation");
        assert_eq!(check(&token, &[], host(80), 99), None, "no keys");
    }

    #[test]
    fn every_bit_counts() {
        let (pair, key) = signer();
        let good = sign(&pair, PortClaims { host: host(80), epoch: 3, expires_at: 100 });
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(check(&text(&bytes), &[key], host(80), 0), None, "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn no_text_does_harm(token in any::<String>(), tail in "[A-Za-z0-9_-]{127}") {
            prop_assert_eq!(check(&token, &[[0; 32]], host(80), 0), None);
            prop_assert_eq!(check(&format!("space_port_{tail}"), &[[1; 32]], host(80), 0), None);
        }
    }
}
