//! Host names of ports, and what their tokens state.
//!
//! - One spelling alone names a port, but for letter case and a dot at the end.
//! - No name of another domain names one.
//! - Claims that are read are written as they were.

use space_types::{PortClaims, PortHost};

const DOMAIN: &str = "sandbox.example";

pub(crate) fn run(bytes: &[u8]) {
    if let Some(bytes) = bytes.first_chunk::<{ PortClaims::SIGNED_BYTES }>()
        && let Some(claims) = PortClaims::decode(bytes)
    {
        assert_eq!(claims.encode(), *bytes);
        assert_eq!(PortHost::from_label(&claims.host.label()), Some(claims.host));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(host) = PortHost::from_label(text) {
        assert!(host.label().eq_ignore_ascii_case(text), "{text} is another spelling");
        assert_eq!(PortHost::from_host(&format!("{text}.{DOMAIN}"), DOMAIN), Some(host));
        assert_eq!(PortHost::from_host(&format!("{text}.{DOMAIN}.evil"), DOMAIN), None);
        assert_eq!(PortHost::from_host(&format!("{text}-{DOMAIN}"), DOMAIN), None);
        assert_eq!(PortHost::from_host(&format!("x.{text}.{DOMAIN}"), DOMAIN), None);
    }
    if let Some(host) = PortHost::from_host(text, DOMAIN) {
        let expected = format!("{}.{DOMAIN}", host.label());
        let text = text.strip_suffix('.').unwrap_or(text);
        assert!(expected.eq_ignore_ascii_case(text), "{text} is another spelling");
    }
}
