//! Tokens of ports: one that was signed, and perhaps one change to it.
//!
//! - A token opens its own port until its end; nothing else that looks like one does.
//! - There is one spelling of a token.

use std::{num::NonZeroU16, sync::LazyLock};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use space_edge::parse::token::{PublicKey, check};
use space_types::{PortClaims, PortHost, SandboxId};

use crate::script::Script;

struct Signer {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

#[expect(clippy::expect_used, reason = "a seed of 32 bytes is one")]
static SIGNER: LazyLock<Signer> = LazyLock::new(|| {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a seed");
    let public = pair.public_key().as_ref().try_into().expect("32 bytes");
    Signer { pair, public }
});

pub(crate) fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let claims = PortClaims {
        host: host(&mut script),
        epoch: script.byte().into(),
        expires_at: script.number().cast_signed(),
    };
    let now = script.number().cast_signed();
    let asked = if script.byte() == 0 { claims.host } else { host(&mut script) };
    let token = sign(claims);
    let is_good = asked == claims.host && claims.expires_at > now;
    assert_eq!(check(&token, &keys(), asked, now), is_good.then_some(claims));
    assert_eq!(check(&token, &[[1; 32]], asked, now), None, "another installation's");
    if let Some(changed) = change(&token, &mut script) {
        assert_eq!(check(&changed, &keys(), claims.host, i64::MIN), None, "{changed} is no {token}");
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert_eq!(check(text, &keys(), claims.host, i64::MIN), None, "{text:?} was not signed");
    }
}

fn keys() -> [PublicKey; 2] {
    [[0; 32], SIGNER.public]
}

fn host(script: &mut Script<'_>) -> PortHost {
    let port = NonZeroU16::new(u16::from_be_bytes([script.byte(), script.byte()]));
    let id = u128::from(script.byte());
    PortHost {
        port: port.unwrap_or(NonZeroU16::MIN),
        sandbox_id: SandboxId::from_uuid(uuid::Uuid::from_u128(id)),
    }
}

fn sign(claims: PortClaims) -> String {
    let mut bytes = claims.encode().to_vec();
    bytes.extend_from_slice(SIGNER.pair.sign(&claims.encode()).as_ref());
    format!("{}{}", PortClaims::PREFIX, URL_SAFE_NO_PAD.encode(bytes))
}

/// The token with a piece of the input in place of some of its characters; none where that changes nothing.
fn change(token: &str, script: &mut Script<'_>) -> Option<String> {
    let (at, out) = (usize::from(script.byte()), usize::from(script.byte()));
    let begin = at.min(token.len());
    let end = begin.saturating_add(out).min(token.len());
    let changed = format!("{}{}{}", &token[..begin], script.text(), &token[end..]);
    (changed != token).then_some(changed)
}
