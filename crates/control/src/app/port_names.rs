//! The names under which ports are served, from `ports.base_url`.

use http::uri::{Scheme, Uri};
use space_types::PortHost;

#[derive(Debug, thiserror::Error)]
pub enum PortsUrlError {
    #[error("ports.base_url is {0:?}, not as `https://sandbox.example.com` or `http://localhost:8710`")]
    Form(String),
}

/// Scheme and authority of the base URL, in lower case.
#[derive(Debug)]
pub(crate) struct PortNames {
    scheme: &'static str,
    authority: String,
}

impl PortNames {
    /// Nothing but a scheme, a name and a port makes sense: labels are put before the name.
    pub(crate) fn parse(text: &str) -> Result<Self, PortsUrlError> {
        let wrong = || PortsUrlError::Form(text.to_owned());
        let url: Uri = text.parse().map_err(|_unparsed: http::uri::InvalidUri| wrong())?;
        let scheme = match url.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => "https",
            Some(scheme) if *scheme == Scheme::HTTP => "http",
            Some(_) | None => return Err(wrong()),
        };
        let authority = url.authority().ok_or_else(wrong)?;
        let name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        let host = authority.host();
        let is_name = host.bytes().all(name) && host.parse::<std::net::Ipv4Addr>().is_err();
        let tail = text.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
        let plain = tail.is_none_or(|(_, path)| path.is_empty()) && url.query().is_none();
        if host.is_empty() || !is_name || !plain || authority.as_str().contains('@') {
            return Err(wrong());
        }
        Ok(Self { scheme, authority: authority.as_str().to_ascii_lowercase() })
    }

    pub(crate) fn url(&self, host: PortHost) -> String {
        format!("{}://{}.{}", self.scheme, host.label(), self.authority)
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
