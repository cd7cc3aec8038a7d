//! What a visitor shows: tokens, taken off the request before anything else is done with it.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, header};
use space_types::{PortClaims, PortHost};

use crate::{
    keys::unix_now,
    parse::{
        cookies,
        token::{self, PublicKey},
    },
    routes::PortRoute,
};

pub(super) const HEADER: HeaderName = HeaderName::from_static("x-space-port-token");
/// Set over TLS: no page of another host can plant it.
const SECURE_COOKIE: &str = "__Host-space_port";
const PLAIN_COOKIE: &str = "space_port";
/// Both are the edge's own, whichever is in use.
pub(crate) const COOKIES: [&str; 2] = [SECURE_COOKIE, PLAIN_COOKIE];

pub(crate) const fn cookie_name(tls: bool) -> &'static str {
    if tls { SECURE_COOKIE } else { PLAIN_COOKIE }
}

/// What valid tokens state. Which epochs are void, a route says.
pub(super) struct Credentials {
    claims: Vec<PortClaims>,
    unchecked: bool,
}

impl Credentials {
    /// `foreign`: a page of somebody else makes the request, and the visitor's cookie is none of its business.
    pub(super) fn take<B>(
        request: &mut Request<B>,
        host: PortHost,
        keys: &[PublicKey],
        tls: bool,
        foreign: bool,
    ) -> Self {
        let tokens = take_tokens(request, (!foreign).then(|| cookie_name(tls)));
        let now = unix_now();
        let claims: Vec<_> = tokens.iter().filter_map(|text| token::check(text, keys, host, now)).collect();
        Self { claims, unchecked: keys.is_empty() }
    }

    /// Whether they open the port that `route` leads to.
    pub(super) fn open(&self, route: &PortRoute) -> bool {
        self.claims.iter().any(|claims| claims.epoch >= route.epoch)
    }

    /// There is a token that control signed for this port.
    pub(super) fn are_shown(&self) -> bool {
        !self.claims.is_empty()
    }

    /// There are no keys to check any token with.
    pub(super) fn unchecked(&self) -> bool {
        self.unchecked
    }
}

/// What may be a token, at most [`MOST`], in the cookie of this name as well; the request is left without any.
pub(crate) fn take_tokens<B>(request: &mut Request<B>, cookie: Option<&str>) -> Vec<String> {
    let tokens = shown(request, cookie);
    strip(request.headers_mut());
    tokens
}

fn shown<B>(request: &Request<B>, cookie: Option<&str>) -> Vec<String> {
    let headers = request.headers();
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    let mut tokens: Vec<String> = headers.get_all(HEADER).iter().take(2).filter_map(text).collect();
    if request.method() == Method::CONNECT {
        let value = headers.get(header::PROXY_AUTHORIZATION).and_then(text);
        tokens.extend(value.as_deref().and_then(bearer).map(str::to_owned));
    }
    if let Some(cookie) = cookie {
        let cookie_headers = headers.get_all(header::COOKIE).iter().filter_map(text);
        tokens.extend(cookie_headers.flat_map(|value| {
            cookies::values(&value, cookie).into_iter().map(str::to_owned).collect::<Vec<_>>()
        }));
    }
    tokens.truncate(MOST);
    tokens
}

/// Signatures that are checked for one request.
const MOST: usize = 8;

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn strip(headers: &mut HeaderMap) {
    headers.remove(HEADER);
    headers.remove(header::PROXY_AUTHORIZATION);
    // HTTP/2 may split them over several fields. What isn't text may hide a token from us, and is taken off whole.
    let sent: Vec<String> = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| std::str::from_utf8(value.as_bytes()).ok().map(str::to_owned))
        .collect();
    headers.remove(header::COOKIE);
    let kept = cookies::without(&sent.join("; "), &COOKIES)
        .and_then(|kept| HeaderValue::from_bytes(kept.as_bytes()).ok());
    if let Some(kept) = kept {
        headers.insert(header::COOKIE, kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_carries_a_token_is_taken_off() {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_static("t"));
        headers.append(HEADER, HeaderValue::from_static("u"));
        headers.insert(header::PROXY_AUTHORIZATION, HeaderValue::from_static("Bearer t"));
        headers.append(header::COOKIE, HeaderValue::from_static("a=1; space_port=t"));
        headers.append(header::COOKIE, HeaderValue::from_static("__Host-space_port=t"));
        headers.append(header::COOKIE, HeaderValue::from_bytes("b=é".as_bytes()).unwrap());
        headers.append(header::COOKIE, HeaderValue::from_bytes(b"space_port=t\xff").unwrap());
        strip(&mut headers);
        let left: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(left, [("cookie", "a=1; b=é".as_bytes())]);
    }
}
