//! The `Host` of a request: `<port>-<id>.<domain>`, with any port of its own.

use space_types::PortHost;

/// The name that `authority` (of a URI, or the value of `Host`) has under `domain`, which is in lower case. User
/// information, brackets and a port that is no number make it no name.
pub fn port_host(authority: &str, domain: &str) -> Option<PortHost> {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) => {
            let plain = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
            plain.then_some(host)?
        }
        None => authority,
    };
    PortHost::from_host(host, domain)
}

/// Whether two authorities mean the same place: letter case, and a port that the scheme implies, aside.
pub fn same_authority(left: &str, right: &str) -> bool {
    fn plain(authority: &str) -> &str {
        let stripped = authority.strip_suffix(":80").or_else(|| authority.strip_suffix(":443"));
        stripped.unwrap_or(authority)
    }
    plain(left).eq_ignore_ascii_case(plain(right))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAME: &str = "8000-0192f3a4b5c67d8e9fa0b1c2d3e4f506.ports.example";

    #[test]
    fn a_name_may_have_a_port() {
        for text in [NAME.to_owned(), format!("{NAME}:8443"), format!("{NAME}:"), NAME.to_uppercase()] {
            let host = port_host(&text, "ports.example").unwrap();
            assert_eq!(host.port.get(), 8000, "{text}");
        }
    }

    #[test]
    fn what_is_more_than_a_name_names_nothing() {
        for text in [
            format!("user@{NAME}"),
            format!("{NAME}:80:80"),
            format!("{NAME}:http"),
            format!("{NAME}:+1"),
            format!("[{NAME}]:80"),
            format!("{NAME}, {NAME}"),
            format!("{NAME}/"),
            "ports.example".to_owned(),
        ] {
            assert_eq!(port_host(&text, "ports.example"), None, "{text}");
        }
    }

    #[test]
    fn authorities_are_compared_without_case() {
        assert!(same_authority("A.example", "a.EXAMPLE:443"));
        assert!(!same_authority("a.example", "a.example.evil"));
        assert!(!same_authority("a.example:81", "a.example:82"));
    }

    proptest! {
        #[test]
        fn no_text_does_harm(text in any::<String>()) {
            port_host(&text, "ports.example");
        }
    }
}
