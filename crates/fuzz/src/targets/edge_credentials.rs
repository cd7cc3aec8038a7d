//! The fields of a visitor's request: no token of the edge's reaches the guest in one.
//!
//! - The fields for tokens are gone, and the edge's cookies with them, however many fields they were split over.
//! - Everything else is there byte for byte and in order.
//! - What is tried as a token stood in the request, and there are at most eight.

use http::{HeaderName, HeaderValue, Method, Request, header};
use space_edge::fuzz;

use super::edge_cookies::{is_own, pairs};
use crate::script::Script;

const TOKEN: HeaderName = HeaderName::from_static("x-space-port-token");
const NAMES: [HeaderName; 5] =
    [TOKEN, header::COOKIE, header::PROXY_AUTHORIZATION, header::AUTHORIZATION, header::ACCEPT];

pub(crate) fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let flags = script.byte();
    let mut request = Request::new(());
    if flags & 1 == 1 {
        *request.method_mut() = Method::CONNECT;
    }
    while !script.is_over() {
        let name = &NAMES[usize::from(script.byte()) % NAMES.len()];
        if let Ok(value) = HeaderValue::from_bytes(script.line()) {
            request.headers_mut().append(name, value);
        }
    }
    let before = request.headers().clone();
    let tokens = fuzz::take_tokens(&mut request, flags & 2 == 2);
    let after = request.headers();
    let all = |headers: &http::HeaderMap, name: &HeaderName| -> Vec<Vec<u8>> {
        headers.get_all(name).iter().map(|value| value.as_bytes().to_vec()).collect()
    };
    assert!(tokens.len() <= 8, "{} signatures to check", tokens.len());
    for token in &tokens {
        let stands_in = |value: &HeaderValue| value.to_str().is_ok_and(|text| text.contains(token.as_str()));
        assert!(before.values().any(stands_in), "{token:?}");
    }
    assert!(!after.contains_key(TOKEN) && !after.contains_key(header::PROXY_AUTHORIZATION), "{after:?}");
    for name in [header::AUTHORIZATION, header::ACCEPT] {
        assert_eq!(all(after, &name), all(&before, &name));
    }
    let text = |values: &[Vec<u8>]| -> Vec<String> {
        values.iter().filter_map(|value| String::from_utf8(value.clone()).ok()).collect()
    };
    let (sent, left) = (text(&all(&before, &header::COOKIE)), text(&all(after, &header::COOKIE)));
    let others: Vec<&str> = sent.iter().flat_map(|field| pairs(field)).filter(|pair| !is_own(pair)).collect();
    assert_eq!(left.iter().flat_map(|field| pairs(field)).collect::<Vec<_>>(), others, "{before:?}");
    assert!(left.len() <= 1, "HTTP/1.1 has one field of cookies");
}
