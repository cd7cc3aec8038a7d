//! Where edges are reached, as the configuration says: a scheme, a host and a port, and nothing behind them.

use http::uri::{Scheme, Uri};

#[derive(Debug, thiserror::Error)]
#[error("{setting} is {value:?}, not as {example}")]
pub struct BaseUrlError {
    pub(super) setting: &'static str,
    pub(super) value: String,
    pub(super) example: &'static str,
}

/// In lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BaseUrl {
    pub(super) scheme: &'static str,
    pub(super) authority: String,
}

impl BaseUrl {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let url: Uri = text.parse().ok()?;
        let scheme = match url.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => "https",
            Some(scheme) if *scheme == Scheme::HTTP => "http",
            Some(_) | None => return None,
        };
        let authority = url.authority()?.as_str();
        let (_, behind) = text.split_once("://")?;
        let bare = behind.split_once('/').is_none_or(|(_, path)| path.is_empty()) && url.query().is_none();
        let plain = bare && !authority.contains('@') && !url.host()?.is_empty();
        plain.then(|| Self { scheme, authority: authority.to_ascii_lowercase() })
    }

    /// Without the port.
    pub(super) fn host(&self) -> &str {
        let end = self.authority.rfind(':').filter(|at| !self.authority[*at..].contains(']'));
        &self.authority[..end.unwrap_or(self.authority.len())]
    }
}

/// `commands.attach_base_url`: where command streams are read.
#[derive(Debug)]
pub(crate) struct AttachUrl(BaseUrl);

impl AttachUrl {
    pub(crate) fn parse(text: &str) -> Result<Self, BaseUrlError> {
        let error = || BaseUrlError {
            setting: "commands.attach_base_url",
            value: text.to_owned(),
            example: "`https://streams.sandbox.example.com` or `http://127.0.0.1:8710`",
        };
        BaseUrl::parse(text).map(Self).ok_or_else(error)
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.0.scheme, self.0.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_goes_behind_an_address_or_a_name() {
        for (base, url) in [
            ("https://streams.Example.com", "https://streams.example.com/x"),
            ("http://127.0.0.1:8710/", "http://127.0.0.1:8710/x"),
            ("http://[::1]:8710", "http://[::1]:8710/x"),
        ] {
            assert_eq!(AttachUrl::parse(base).unwrap().url("/x"), url);
        }
    }

    #[test]
    fn a_host_is_what_stands_before_the_port() {
        for (base, host) in [("http://a:1", "a"), ("http://[::1]:8710", "[::1]"), ("http://[::1]", "[::1]")] {
            assert_eq!(BaseUrl::parse(base).unwrap().host(), host);
        }
    }

    #[test]
    fn what_is_more_or_less_is_refused() {
        for text in
            ["", "a", "ftp://a", "https://", "https://:80", "https://a/b", "https://a?b", "https://a@b"]
        {
            assert!(AttachUrl::parse(text).is_err(), "{text}");
        }
    }
}
