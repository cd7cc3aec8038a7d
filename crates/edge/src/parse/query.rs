//! The token in a signed link (`?space_port_token=…`) and where its visitor is sent on to.

/// The query's parameter.
pub const PARAMETER: &str = "space_port_token";

/// The first token in `query` and what is left without any; `None` if there is none.
pub fn take_token(query: &str) -> Option<(&str, String)> {
    let token = query.split('&').find_map(token_of)?;
    let rest: Vec<&str> = query.split('&').filter(|pair| token_of(pair).is_none()).collect();
    Some((token, rest.join("&")))
}

fn token_of(pair: &str) -> Option<&str> {
    match pair.split_once('=') {
        Some((PARAMETER, token)) => Some(token),
        None if pair == PARAMETER => Some(""),
        Some(_) | None => None,
    }
}

/// A target on the same host, whatever `path` looks like: to a browser `//evil` and `/\evil` would be other hosts, so
/// a dot segment is put in front, which it takes away again without looking for a host.
pub fn local_target(path: &str, query: &str) -> String {
    let path = if path.starts_with('/') { path } else { "/" };
    let dot = if path[1..].starts_with(['/', '\\']) { "/." } else { "" };
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{dot}{path}{mark}{query}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_token_is_taken_and_the_rest_stays_as_sent() {
        assert_eq!(take_token("space_port_token=t&a=%20&b"), Some(("t", "a=%20&b".to_owned())));
        assert_eq!(take_token("a=1&space_port_token=t&space_port_token=u"), Some(("t", "a=1".to_owned())));
        assert_eq!(take_token("space_port_token"), Some(("", String::new())));
        assert_eq!(take_token("xspace_port_token=t"), None);
        assert_eq!(take_token("a=space_port_token=t"), None);
    }

    #[test]
    fn a_target_never_leaves_the_host() {
        assert_eq!(local_target("/a/b", ""), "/a/b");
        assert_eq!(local_target("/", "a=1"), "/?a=1");
        assert_eq!(local_target("//evil.example/x", ""), "/.//evil.example/x");
        assert_eq!(local_target("/\\evil.example", "q"), "/./\\evil.example?q");
        assert_eq!(local_target("*", ""), "/");
    }

    proptest! {
        #[test]
        fn no_target_begins_like_another_host(path in "[/\\\\.a]{0,8}", query in "[a=&/]{0,8}") {
            let target = local_target(&path, &query);
            prop_assert!(target.starts_with('/'));
            prop_assert!(!target[1..].starts_with(['/', '\\']));
        }

        #[test]
        fn no_token_is_left(query in "(space_port_token|=|&|a){0,12}") {
            if let Some((_, rest)) = take_token(&query) {
                prop_assert_eq!(take_token(&rest), None);
            }
        }
    }
}
