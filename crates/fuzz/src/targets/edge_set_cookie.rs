//! `Set-Cookie` of a guest, as browsers read it (RFC 6265bis, 5.6).
//!
//! - What passes is for the guest's own host, and is never sent back as what the edge would read as its own.
//! - A cookie that says nothing of a domain and isn't the edge's passes.

use http::HeaderValue;
use space_edge::{
    fuzz::COOKIES,
    parse::{cookies, set_cookie::may_pass},
};

use super::edge_cookies::is_own;

const HOST: &str = "80-0192f3a4b5c67d8e9fa0b1c2d3e4f506.sandbox.example";

pub(crate) fn run(bytes: &[u8]) {
    // Everything else is no header, to hyper.
    let Ok(value) = HeaderValue::from_bytes(bytes) else { return };
    let passes = may_pass(value.as_bytes(), HOST, &COOKIES);
    let Ok(text) = std::str::from_utf8(bytes) else { return assert!(!passes, "{bytes:?}") };
    let (domains, sent) = (domains(text), sent_back(text));
    if passes {
        assert!(domains.iter().all(|domain| domain.is_empty() || domain == HOST), "{text:?} for {domains:?}");
        assert!(!is_own(&sent), "{text:?} is sent as {sent:?}");
        assert!(COOKIES.iter().all(|own| cookies::values(&sent, own).is_empty()), "{text:?}");
    } else {
        let looks_own =
            COOKIES.iter().any(|own| sent.to_ascii_lowercase().contains(&own.to_ascii_lowercase()));
        assert!(looks_own || text.to_ascii_lowercase().contains("domain"), "{text:?} is refused for nothing");
    }
}

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t')
}

/// What it says of a domain, more than once perhaps.
fn domains(text: &str) -> Vec<String> {
    let attributes = text.split(';').skip(1).filter_map(|attribute| attribute.split_once('='));
    let named = attributes.filter(|(name, _)| name.trim_matches(is_space).eq_ignore_ascii_case("domain"));
    let plain = |value: &str| {
        let value = value.trim_matches(is_space).to_ascii_lowercase();
        value.strip_prefix('.').map(str::to_owned).unwrap_or(value)
    };
    named.map(|(_, value)| plain(value)).collect()
}

/// As it comes in a later `Cookie`.
fn sent_back(text: &str) -> String {
    let pair = text.split(';').next().unwrap_or_default();
    let (name, value) = pair.split_once('=').unwrap_or(("", pair));
    let (name, value) = (name.trim_matches(is_space), value.trim_matches(is_space));
    if name.is_empty() { value.to_owned() } else { format!("{name}={value}") }
}
