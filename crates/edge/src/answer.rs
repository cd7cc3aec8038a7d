//! The edge's own answers: a problem for programs, a small page for people. Nothing that a visitor or a guest sent is
//! in one.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use http_body_util::{BodyExt as _, Empty, Full};

use crate::{Body, EdgeCode};

/// Tells the edge's answers from a guest's, which can't set it.
pub(crate) const MARK: HeaderName = HeaderName::from_static("x-space-edge");

/// Why a request gets no answer from the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: EdgeCode,
    pub(crate) detail: String,
    /// When the same may fare better.
    pub(crate) retry_after: Option<Duration>,
}

impl Refusal {
    pub(crate) fn new(code: EdgeCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), retry_after: None }
    }

    pub(crate) fn retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    /// The same for whatever is wrong: a stranger learns nothing from it.
    pub(crate) fn unauthorized() -> Self {
        let detail = "This port is private, or there is no such port. A token or a signed link opens it.";
        Self::new(EdgeCode::PortUnauthorized, detail)
    }

    /// As a page where `page` says so, as a problem elsewhere.
    pub(crate) fn into_response(self, page: bool) -> Response<Body> {
        let (kind, text) = if page { (HTML, self.page()) } else { (PROBLEM, self.problem()) };
        let mut response = Response::new(full(text));
        *response.status_mut() = self.code.status();
        let headers = response.headers_mut();
        headers.insert(MARK, HeaderValue::from_static(self.code.code()));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if self.code == EdgeCode::PortUnauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("SpacePort"));
        }
        if let Some(seconds) = self.retry_after_seconds() {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }

    /// The same for a connection whose request is not read, as bytes of HTTP/1.1.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let (status, code, body) = (self.code.status(), self.code.code(), self.problem());
        let retry = self.retry_after_seconds().map(|seconds| format!("Retry-After: {seconds}\r\n"));
        let (retry, length) = (retry.unwrap_or_default(), body.len());
        format!(
            "HTTP/1.1 {status}\r\nX-Space-Edge: {code}\r\nContent-Type: {PROBLEM}\r\n{retry}\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .into_bytes()
    }

    /// Rounded up.
    fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after.map(|wait| wait.as_secs() + u64::from(wait.subsec_nanos() > 0))
    }

    fn problem(&self) -> String {
        serde_json::json!({
            "type": format!("/problems/edge/{}", self.code.code()),
            "title": self.code.title(),
            "status": self.code.status().as_u16(),
            "code": self.code.code(),
            "detail": self.detail,
        })
        .to_string()
    }

    fn page(&self) -> String {
        let (title, detail, code) = (self.code.title(), escaped(&self.detail), self.code.code());
        format!(
            "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
             <title>{title}</title><style>{STYLE}</style><h1>{title}</h1><p>{detail}</p><p><code>{code}</code></p>\n"
        )
    }
}

const HTML: &str = "text/html; charset=utf-8";
const PROBLEM: &str = "application/problem+json";
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
const STYLE: &str = "body{font:1rem/1.5 system-ui,sans-serif;max-width:36rem;margin:20vh auto;padding:0 1rem}\
                     h1{font-size:1.3rem}code{color:#666}";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

pub(crate) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn full(text: String) -> Body {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}

/// Whether whoever asks would rather read a page.
pub(crate) fn wants_page(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepts.flat_map(|value| value.split(',')).any(|range| {
        let kind = range.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("text/html")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_for_those_who_name_html() {
        let accepts = |value: &str| {
            wants_page(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_str(value).unwrap())]))
        };
        assert!(accepts("text/html,application/xhtml+xml;q=0.9"));
        assert!(!accepts("*/*"));
        assert!(!accepts("application/json"));
        assert!(!wants_page(&HeaderMap::new()));
    }

    #[test]
    fn an_answer_in_bytes_is_as_long_as_it_says_and_names_the_time() {
        let refusal = Refusal::new(EdgeCode::AddressLimited, "é").retry_after(Duration::from_millis(1001));
        let text = String::from_utf8(refusal.into_bytes()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{head}");
        assert!(head.contains("\r\nRetry-After: 2\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(body).unwrap()["code"], "address_limited");
    }

    #[test]
    fn a_page_has_no_markup_of_others() {
        let page = Refusal::new(EdgeCode::PortSandboxNotRunning, "<script>").page();
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script>"));
    }
}
