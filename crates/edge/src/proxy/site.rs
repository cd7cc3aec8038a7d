//! Whose page makes a request. All sandboxes are one site to a browser, which therefore sends a visitor's cookie along
//! when one sandbox's page calls another's: `SameSite` is no help. So a cookie counts only where the page is of the same
//! sandbox, or where somebody followed a link. Tokens in a header were put there on purpose, and count always.

use http::{HeaderMap, HeaderName, Method, Request, header};
use space_types::PortHost;

use crate::parse::host::port_host;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Whether a page that is not of `host`'s sandbox makes this request to it.
pub(super) fn is_foreign<B>(request: &Request<B>, host: PortHost, domain: &str) -> bool {
    let headers = request.headers();
    // What a browser says by itself, which no page can forge. Other ports of the sandbox are the same owner's.
    if let Some(origin) = text(headers, &header::ORIGIN) {
        return !is_of(origin, host, domain);
    }
    match text(headers, &FETCH_SITE) {
        Some("same-site" | "cross-site") => {
            let own = text(headers, &header::REFERER).is_some_and(|page| is_of(page, host, domain));
            !own && !is_followed_link(request)
        }
        // The page's own, or nobody's: typed in, or not of a browser.
        Some(_) | None => false,
    }
}

/// The whole window goes there, which the visitor sees, and nothing is changed by that.
fn is_followed_link<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    matches!(*request.method(), Method::GET | Method::HEAD)
        && text(headers, &FETCH_MODE) == Some("navigate")
        && text(headers, &FETCH_DEST) == Some("document")
}

fn is_of(url: &str, host: PortHost, domain: &str) -> bool {
    let authority =
        url.split_once("://").map(|(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let page = authority.and_then(|authority| port_host(authority, domain));
    page.is_some_and(|page| page.sandbox_id == host.sandbox_id)
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    // What isn't text names no page of ours.
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use space_types::SandboxId;

    use super::*;

    const DOMAIN: &str = "ports.example";

    fn host(port: u16, id: SandboxId) -> PortHost {
        PortHost { port: NonZeroU16::new(port).unwrap(), sandbox_id: id }
    }

    fn request(method: &Method, headers: &[(&str, &str)]) -> Request<()> {
        let builder = Request::builder().method(method).uri("/");
        headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value)).body(()).unwrap()
    }

    #[test]
    fn a_page_of_the_same_sandbox_is_no_stranger_and_others_are() {
        let own = host(80, SandboxId::new());
        let page = |host: PortHost| format!("https://{}.{DOMAIN}", host.label());
        let (same, sibling) = (page(own), page(host(81, own.sandbox_id)));
        let other = page(host(80, SandboxId::new()));
        let foreign = |headers: &[(&str, &str)]| is_foreign(&request(&Method::POST, headers), own, DOMAIN);
        for origin in [&same, &sibling, &format!("{sibling}:8443")] {
            assert!(!foreign(&[("origin", origin)]), "{origin}");
        }
        for origin in [&other, "null", "", "https://evil.example", &format!("https://x.{}", &same[8..])] {
            assert!(foreign(&[("origin", origin)]), "{origin}");
        }
        let from =
            |site, page: &str| foreign(&[("sec-fetch-site", site), ("referer", &format!("{page}/a?b"))]);
        assert!(!from("same-site", &sibling) && !from("same-origin", &same));
        assert!(from("same-site", &other) && from("cross-site", "https://evil.example"));
        assert!(foreign(&[("sec-fetch-site", "same-site")]), "it hides where it is");
        assert!(!foreign(&[("sec-fetch-site", "none")]) && !foreign(&[]));
    }

    #[test]
    fn a_link_may_be_followed_and_a_frame_may_not_be_filled() {
        let own = host(80, SandboxId::new());
        let navigation = |method, dest| {
            let headers =
                [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", dest)];
            is_foreign(&request(&method, &headers), own, DOMAIN)
        };
        assert!(!navigation(Method::GET, "document"));
        assert!(navigation(Method::POST, "document"));
        assert!(navigation(Method::GET, "iframe"));
    }
}
