//! Which cookies a sandbox may set: for its own host alone, and never the edge's.
//!
//! Pages of all sandboxes lie under one domain. A cookie for that domain, or one above it, would be sent to the
//! others.

/// Whether `header`, a value of `Set-Cookie` from the guest at `host` (lower case, no port), may pass.
pub fn may_pass(header: &[u8], host: &str, own: &[&str]) -> bool {
    // What isn't text, browsers read as they please.
    let Ok(header) = std::str::from_utf8(header) else { return false };
    let mut parts = header.split(';');
    let pair = parts.next().unwrap_or_default();
    !names_own(pair, own) && parts.all(|attribute| keeps_to(attribute, host))
}

/// A cookie without a name is sent as its value alone, and that may look like one with a name.
fn names_own(pair: &str, own: &[&str]) -> bool {
    let (name, value) = pair.split_once('=').unwrap_or(("", pair));
    let (name, value) = (name.trim(), value.trim());
    let text = if name.is_empty() { value } else { name };
    let begins = |own: &&str| text.get(..own.len()).is_some_and(|head| head.eq_ignore_ascii_case(own));
    own.iter().any(|own| if name.is_empty() { begins(own) } else { name.eq_ignore_ascii_case(own) })
}

fn keeps_to(attribute: &str, host: &str) -> bool {
    let Some((name, value)) = attribute.split_once('=') else { return true };
    if !name.trim().eq_ignore_ascii_case("domain") {
        return true;
    }
    let value = value.trim();
    let domain = value.strip_prefix('.').unwrap_or(value).to_ascii_lowercase();
    // An empty one means the host itself.
    value.is_empty() || domain == host
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "80-0192f3a4b5c67d8e9fa0b1c2d3e4f506.ports.example";

    fn passes(header: &str) -> bool {
        may_pass(header.as_bytes(), HOST, &["space_port", "__Host-space_port"])
    }

    #[test]
    fn a_cookie_for_the_own_host_passes() {
        assert!(passes("a=1; Path=/; HttpOnly"));
        assert!(passes("a=1; Domain="));
        assert!(passes(&format!("a=1; domain=.{HOST}; Secure")));
        assert!(passes("a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT"));
    }

    #[test]
    fn a_cookie_for_others_does_not() {
        for domain in ["ports.example", ".ports.example", "PORTS.example", "example", "other.ports.example"] {
            assert!(!passes(&format!("a=1; Domain={domain}")), "{domain}");
            assert!(!passes(&format!("a=1; Domain=; dOmAiN = {domain} ")), "{domain}");
        }
    }

    #[test]
    fn the_edges_own_cookie_does_not() {
        for header in [
            "space_port=x",
            " __Host-space_port = x",
            "__HOST-SPACE_PORT=x",
            "=__Host-space_port=x",
            "space_port",
            "=space_port=x",
        ] {
            assert!(!passes(header), "{header}");
        }
        assert!(!may_pass(b"a=\xff; Domain=ports.example", HOST, &[]));
    }
}
