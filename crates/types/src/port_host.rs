//! The names under which ports of sandboxes are reached: `<port>-<id>.<domain>`, the id without its prefix.

use std::num::NonZeroU16;

use uuid::Uuid;

use crate::SandboxId;

/// What a port's host name names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortHost {
    pub port: NonZeroU16,
    pub sandbox_id: SandboxId,
}

impl PortHost {
    /// The label in front of the domain, at most 38 characters.
    pub fn label(self) -> String {
        format!("{}-{}", self.port, self.sandbox_id.label())
    }

    /// Reads a label. One spelling alone is a name, but for letter case, which DNS ignores: no leading zero, no sign,
    /// no dashes in the id.
    pub fn from_label(label: &str) -> Option<Self> {
        let (port, id) = label.split_once('-')?;
        let plain = !port.starts_with('0') && port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit());
        let port = plain.then(|| port.parse().ok()).flatten()?;
        let hex = id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit());
        let id = hex.then(|| Uuid::try_parse(id).ok()).flatten()?;
        Some(Self { port, sandbox_id: SandboxId::from_uuid(id) })
    }

    /// Reads a host name, without a port of its own, that must lie directly under `domain`. `domain` is in lower case.
    pub fn from_host(host: &str, domain: &str) -> Option<Self> {
        let host = host.strip_suffix('.').unwrap_or(host);
        let at = host.len().checked_sub(domain.len() + 1)?;
        let (label, rest) = host.split_at_checked(at)?;
        let under = rest.strip_prefix('.').is_some_and(|rest| rest.eq_ignore_ascii_case(domain));
        under.then(|| Self::from_label(label)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "0192f3a4b5c67d8e9fa0b1c2d3e4f506";

    fn host(text: &str) -> Option<PortHost> {
        PortHost::from_host(text, "sandbox.example")
    }

    #[test]
    fn a_name_survives_the_round_trip() {
        let name = PortHost { port: NonZeroU16::MAX, sandbox_id: SandboxId::new() };
        assert_eq!(name.label().len(), 38);
        assert_eq!(host(&format!("{}.sandbox.example", name.label())), Some(name));
        assert_eq!(host(&format!("{}.SANDBOX.example.", name.label().to_uppercase())), Some(name));
    }

    #[test]
    fn other_spellings_name_nothing() {
        for text in [
            String::new(),
            "sandbox.example".to_owned(),
            ".sandbox.example".to_owned(),
            format!("80-{ID}.sandbox.example.evil"),
            format!("80-{ID}.evilsandbox.example"),
            format!("x.80-{ID}.sandbox.example"),
            format!("80-{ID}sandbox.example"),
            format!("080-{ID}.sandbox.example"),
            format!("+80-{ID}.sandbox.example"),
            format!("0-{ID}.sandbox.example"),
            format!("65536-{ID}.sandbox.example"),
            format!("80-sbx_{ID}.sandbox.example"),
            format!("80-{}.sandbox.example", &ID[1..]),
            format!("80-{}é.sandbox.example", &ID[2..]),
        ] {
            assert_eq!(host(&text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_does_harm(text in any::<String>()) {
            if let Some(name) = PortHost::from_label(&text) {
                prop_assert!(name.label().eq_ignore_ascii_case(&text));
            }
            host(&text);
        }
    }
}
