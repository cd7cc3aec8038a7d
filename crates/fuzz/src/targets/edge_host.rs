//! Authorities as visitors of ports send them, two in a line each.
//!
//! - What names a port is spelled in one way, but for letter case, a dot at the end and a port of its own.
//! - Two authorities that count as the same name the same port.

use space_edge::parse::host::{port_host, same_authority};

use crate::script::Script;

const DOMAIN: &str = "sandbox.example";

pub(crate) fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let (Ok(first), Ok(second)) = (std::str::from_utf8(script.line()), std::str::from_utf8(script.line()))
    else {
        return;
    };
    is_spelled_in_one_way(first);
    let same = same_authority(first, second);
    assert_eq!(same, same_authority(second, first), "{first:?} and {second:?}");
    assert!(same_authority(first, first));
    if same {
        assert_eq!(port_host(first, DOMAIN), port_host(second, DOMAIN), "{first:?} and {second:?}");
    }
}

fn is_spelled_in_one_way(authority: &str) {
    let Some(host) = port_host(authority, DOMAIN) else { return };
    let name = format!("{}.{DOMAIN}", host.label());
    for spelling in [name.clone(), name.to_uppercase(), format!("{name}."), format!("{name}:8443")] {
        assert_eq!(port_host(&spelling, DOMAIN), Some(host), "{spelling}");
    }
    let sent = authority.to_ascii_lowercase();
    let rest =
        sent.strip_prefix(&name).unwrap_or_else(|| panic!("{authority:?} is another spelling of {name}"));
    let rest = rest.strip_prefix('.').unwrap_or(rest);
    let port = rest.strip_prefix(':').unwrap_or_default();
    assert!(port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit()), "{authority:?}");
    assert!(rest.is_empty() || rest.starts_with(':'), "{authority:?}");
    for other in
        [format!("{name}.evil"), format!("evil@{name}"), format!("x.{name}"), format!("{name}:80:80")]
    {
        assert_eq!(port_host(&other, DOMAIN), None, "{other}");
    }
}
