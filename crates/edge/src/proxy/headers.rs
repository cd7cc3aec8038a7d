//! Header fields that end at the edge, and those that it says itself.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::credentials::COOKIES;
use crate::{
    answer::MARK,
    parse::{query::PARAMETER, set_cookie},
};

/// RFC 9110, 7.6.1, and what was used before it.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// What the client says of whom it came from: only the edge knows.
const CLAIMED: [HeaderName; 6] = [
    header::FORWARDED,
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("x-client-ip"),
    HeaderName::from_static("true-client-ip"),
    HeaderName::from_static("cf-connecting-ip"),
    HeaderName::from_static("x-forwarded-port"),
];
/// What a guest may not clear for a whole site, which other sandboxes are part of.
const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");

/// The protocol that both ends may change to, if `Connection` and `Upgrade` name one.
pub(super) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let named = tokens(headers).any(|token| token.eq_ignore_ascii_case("upgrade"));
    named.then(|| headers.get(header::UPGRADE).cloned()).flatten()
}

/// Whether trailers are asked for, as gRPC does. Browsers ask for them too, of servers that know no HTTP/2.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let is = |name, text: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).is_some_and(|value| value.starts_with(text))
    };
    is(header::TE, "trailers") && is(header::CONTENT_TYPE, "application/grpc")
}

fn tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Takes off what is for the next hop alone, that which `Connection` names included.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = tokens(headers)
        .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
        // What frames and addresses a message is not the hop's to take away.
        .filter(|name| *name != header::HOST && *name != header::CONTENT_LENGTH)
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// The page that a link was followed from may be the link itself, whose token is not for the guest.
pub(super) fn forget_links(headers: &mut HeaderMap) {
    let carries = |value: &HeaderValue| {
        let bytes = value.as_bytes();
        bytes.windows(PARAMETER.len()).any(|part| part == PARAMETER.as_bytes())
    };
    if headers.get_all(header::REFERER).iter().any(carries) {
        headers.remove(header::REFERER);
    }
}

/// Says who asks, in place of whatever the client said.
pub(super) fn set_forwarded(headers: &mut HeaderMap, ip: IpAddr, tls: bool, authority: &str) {
    for name in CLAIMED {
        headers.remove(name);
    }
    // Gateways of the CGI kind take `x_forwarded_for` for `x-forwarded-for`.
    let ambiguous: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().contains('_')).cloned().collect();
    for name in ambiguous {
        headers.remove(name);
    }
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static(if tls { "https" } else { "http" }));
    if let Ok(ip) = HeaderValue::from_str(&ip.to_canonical().to_string()) {
        headers.insert(FORWARDED_FOR, ip);
    }
    if let Ok(authority) = HeaderValue::from_str(authority) {
        headers.insert(FORWARDED_HOST, authority.clone());
        headers.insert(header::HOST, authority);
    }
}

/// Takes off an answer what a guest may not say to a visitor of `host` (lower case, no port): cookies that would reach
/// others, that the answer is the edge's, and that the host is served elsewhere.
pub(super) fn strip_answer(headers: &mut HeaderMap, host: &str) {
    strip_hop_by_hop(headers);
    headers.remove(MARK);
    headers.remove(header::ALT_SVC);
    headers.remove(CLEAR_SITE_DATA);
    let cookies: Vec<HeaderValue> = headers.get_all(header::SET_COOKIE).iter().cloned().collect();
    headers.remove(header::SET_COOKIE);
    for cookie in cookies.into_iter().filter(|cookie| set_cookie::may_pass(cookie.as_bytes(), host, &COOKIES))
    {
        headers.append(header::SET_COOKIE, cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_is_for_one_hop_ends_here() {
        let mut fields = headers(&[
            ("connection", "close, X-Own , host, content-length"),
            ("x-own", "1"),
            ("keep-alive", "1"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("host", "a"),
            ("content-length", "1"),
            ("accept", "x"),
        ]);
        strip_hop_by_hop(&mut fields);
        assert_eq!(names(&fields), ["accept", "content-length", "host"]);
    }

    #[test]
    fn the_clients_word_on_who_it_is_counts_for_nothing() {
        let mut fields = headers(&[
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-proto", "https"),
            ("x-real-ip", "1.1.1.1"),
            ("x_forwarded_for", "1.1.1.1"),
            ("true-client-ip", "1.1.1.1"),
            ("forwarded", "for=1.1.1.1"),
        ]);
        set_forwarded(&mut fields, "::ffff:192.0.2.1".parse().unwrap(), false, "host:1");
        assert_eq!(fields["x-forwarded-for"], "192.0.2.1");
        assert_eq!(fields["x-forwarded-proto"], "http");
        assert_eq!(fields["x-forwarded-host"], "host:1");
        assert_eq!(fields.len(), 4);
    }

    #[test]
    fn an_upgrade_needs_both_fields() {
        assert!(upgrade(&headers(&[("upgrade", "websocket")])).is_none());
        let both = headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(upgrade(&both).unwrap(), "websocket");
    }
}
