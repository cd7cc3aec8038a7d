//! Signed links: the target of a request as the edge gets it, the token in its query, and where the visitor is sent.
//!
//! - What is left of a query has no token, and is byte for byte what it was without any, wherever they stood.
//! - Where a visitor is sent is a target on the same host, and of the same path and query.

use http::uri::PathAndQuery;
use space_edge::parse::query::{PARAMETER, local_target, take_token};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    assert!(stays_here(&local_target(text, "")) || text.contains(['\t', '\r', '\n']), "{text:?}");
    let Ok(target) = PathAndQuery::try_from(text) else { return };
    let query = target.query().unwrap_or_default();
    let is_token = |pair: &str| pair == PARAMETER || pair.starts_with(&format!("{PARAMETER}="));
    let taken = take_token(query);
    assert_eq!(taken.is_some(), query.split('&').any(is_token), "{query:?}");
    let rest = taken.map_or_else(|| query.to_owned(), |(_, rest)| rest);
    assert_eq!(take_token(&rest), None, "a token is left of {query:?}");
    is_left_alone(&rest);
    is_sent_on(target.path(), &rest);
}

/// Whatever stands around it, a token is taken from the query `rest`, and nothing else.
fn is_left_alone(rest: &str) {
    let pairs: Vec<&str> = rest.split('&').filter(|_| !rest.is_empty()).collect();
    for place in 0..=pairs.len() {
        let mut with: Vec<&str> = pairs.clone();
        with.insert(place, "space_port_token=one");
        with.push("space_port_token=two");
        assert_eq!(take_token(&with.join("&")), Some(("one", rest.to_owned())));
    }
}

fn is_sent_on(path: &str, query: &str) {
    let target = local_target(path, query);
    let parsed =
        PathAndQuery::try_from(target.as_str()).unwrap_or_else(|error| panic!("{target:?}: {error}"));
    assert!(stays_here(&target), "{target:?} leads elsewhere");
    assert_eq!(parsed.query().unwrap_or_default(), query);
    // `OPTIONS *` has no place of its own.
    let path = if path == "*" { "/" } else { path };
    let dotted = path[1..].starts_with(['/', '\\']);
    assert_eq!(parsed.path().strip_prefix("/.").filter(|_| dotted).unwrap_or(parsed.path()), path);
}

/// As browsers read it (URL standard): a second slash of either kind would begin a host.
fn stays_here(target: &str) -> bool {
    let seen: String = target.chars().filter(|character| !"\t\r\n".contains(*character)).collect();
    seen.starts_with('/') && !seen[1..].starts_with(['/', '\\'])
}
