//! The names under which ports are served, from `ports.base_url`.

use space_types::PortHost;

use super::base_url::{BaseUrl, BaseUrlError};

/// Labels are put before the name, so a name it must be.
#[derive(Debug)]
pub(crate) struct PortNames(BaseUrl);

impl PortNames {
    pub(crate) fn parse(text: &str) -> Result<Self, BaseUrlError> {
        let error = || BaseUrlError {
            setting: "ports.base_url",
            value: text.to_owned(),
            example: "`https://sandbox.example.com` or `http://localhost:8710`",
        };
        let is_name = |host: &str| {
            let name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
            host.bytes().all(name) && host.parse::<std::net::Ipv4Addr>().is_err()
        };
        BaseUrl::parse(text).filter(|base| is_name(base.host())).map(Self).ok_or_else(error)
    }

    pub(crate) fn url(&self, host: PortHost) -> String {
        format!("{}://{}.{}", self.0.scheme, host.label(), self.0.authority)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use space_types::SandboxId;

    use super::*;

    #[test]
    fn a_label_goes_before_the_name() {
        let host = PortHost { port: NonZeroU16::MIN, sandbox_id: SandboxId::new() };
        let label = host.label();
        for (base, url) in [
            ("https://sandbox.example.com", format!("https://{label}.sandbox.example.com")),
            ("http://LOCALHOST:8710/", format!("http://{label}.localhost:8710")),
        ] {
            assert_eq!(PortNames::parse(base).unwrap().url(host), url);
        }
    }

    #[test]
    fn what_no_label_can_go_before_is_refused() {
        for text in [
            "",
            "sandbox.example.com",
            "ftp://sandbox.example.com",
            "https://",
            "https://sandbox.example.com/path",
            "https://sandbox.example.com?query",
            "https://user@sandbox.example.com",
            "https://127.0.0.1:8710",
            "https://[::1]:8710",
        ] {
            assert!(PortNames::parse(text).is_err(), "{text}");
        }
    }
}
