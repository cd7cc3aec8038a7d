//! Who attaches to which command: the path, and the token that control signed for it (`space_types::AttachClaims`).

use space_types::{AttachClaims, CommandId, SandboxId};

use super::token::{PublicKey, signed_bytes};

/// A command, as its path names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachPath {
    pub sandbox: SandboxId,
    pub command: CommandId,
}

/// Reads `/v1/sandboxes/<id>/commands/<id>/attach`, in this one spelling.
pub fn attach_path(path: &str) -> Option<AttachPath> {
    let (sandbox, rest) = path.strip_prefix("/v1/sandboxes/")?.split_once('/')?;
    let command = rest.strip_prefix("commands/")?.strip_suffix("/attach")?;
    Some(AttachPath { sandbox: sandbox.parse().ok()?, command: command.parse().ok()? })
}

/// Whether one of `keys` signed `token`, it is for `asked`, and it has not ended at `now` (Unix seconds).
pub fn opens(token: &str, keys: &[PublicKey], asked: AttachPath, now: i64) -> bool {
    let encoded = token.strip_prefix(AttachClaims::PREFIX);
    let signed = encoded.and_then(|encoded| signed_bytes(encoded, AttachClaims::ENCODED_CHARS, keys));
    signed.as_ref().and_then(AttachClaims::decode).is_some_and(|claims| {
        claims.sandbox_id == asked.sandbox && claims.command_id == asked.command && now < claims.expires_at
    })
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    use proptest::prelude::*;

    use super::*;

    fn asked() -> AttachPath {
        AttachPath { sandbox: SandboxId::new(), command: CommandId::new() }
    }

    #[test]
    fn one_spelling_alone_names_a_command() {
        let AttachPath { sandbox, command } = asked();
        let path = format!("/v1/sandboxes/{sandbox}/commands/{command}/attach");
        assert_eq!(attach_path(&path), Some(AttachPath { sandbox, command }));
        for other in [
            format!("{path}/"),
            format!("/{path}"),
            path.replace("/v1", "/v2"),
            path.replace("attach", "stdin"),
            path.replace("commands/", "commands//"),
            format!("/v1/sandboxes/{command}/commands/{sandbox}/attach"),
            "/v1/sandboxes//commands//attach".to_owned(),
        ] {
            assert_eq!(attach_path(&other), None, "{other}");
        }
    }

    #[test]
    fn a_token_opens_its_own_command_until_its_end_and_every_bit_counts() {
        let pair = Ed25519KeyPair::generate().unwrap();
        let key: PublicKey = pair.public_key().as_ref().try_into().unwrap();
        let asked = asked();
        let claims = AttachClaims { sandbox_id: asked.sandbox, command_id: asked.command, expires_at: 100 };
        let mut bytes = claims.encode().to_vec();
        bytes.extend_from_slice(pair.sign(&claims.encode()).as_ref());
        let text = |bytes: &[u8]| format!("{}{}", AttachClaims::PREFIX, URL_SAFE_NO_PAD.encode(bytes));
        assert!(opens(&text(&bytes), &[[0; 32], key], asked, 99));
        assert!(!opens(&text(&bytes), &[key], asked, 100), "it has ended");
        assert!(!opens(&text(&bytes), &[], asked, 99), "no keys");
        let others = [
            AttachPath { command: CommandId::new(), ..asked },
            AttachPath { sandbox: SandboxId::new(), ..asked },
        ];
        assert!(others.iter().all(|other| !opens(&text(&bytes), &[key], *other, 99)));
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!opens(&text(&changed), &[key], asked, 0), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn no_text_does_harm(path in any::<String>(), token in any::<String>()) {
            attach_path(&path);
            prop_assert!(!opens(&token, &[[0; 32]], asked(), 0));
        }
    }
}
