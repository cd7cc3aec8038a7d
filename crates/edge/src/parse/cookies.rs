//! The edge's own cookie in a `Cookie` header: read, and taken out.

/// More of them in one request than this are not tried.
const MOST: usize = 8;

/// The values of the cookies called `name`, at most eight.
pub fn values<'a>(header: &'a str, name: &str) -> Vec<&'a str> {
    pairs(header).filter(|(key, _)| *key == name).map(|(_, value)| value).take(MOST).collect()
}

/// `header` without any cookie whose name is one of `names`, in any letter case; as it was sent if it has none of those,
/// and `None` if nothing is left.
pub fn without(header: &str, names: &[&str]) -> Option<String> {
    let own = |pair: &&str| names.iter().any(|name| key_of(pair).eq_ignore_ascii_case(name));
    let cookies: Vec<&str> = header.split(';').map(str::trim).filter(|pair| !pair.is_empty()).collect();
    let kept: Vec<&str> = cookies.iter().copied().filter(|pair| !own(pair)).collect();
    let text = if kept.len() == cookies.len() { header.to_owned() } else { kept.join("; ") };
    (!kept.is_empty()).then_some(text)
}

fn pairs(header: &str) -> impl Iterator<Item = (&str, &str)> {
    header.split(';').filter_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        let value = value.trim();
        let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        Some((key.trim(), bare.unwrap_or(value)))
    })
}

fn key_of(pair: &str) -> &str {
    pair.split_once('=').map_or(pair, |(key, _)| key).trim()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_exact_name_is_read() {
        let header = "a=1; space_port=t1;space_port = \"t2\" ; xspace_port=3; SPACE_PORT=4";
        assert_eq!(values(header, "space_port"), ["t1", "t2"]);
    }

    #[test]
    fn the_own_cookies_are_taken_out_and_the_rest_stays() {
        let names = ["space_port", "__Host-space_port"];
        assert_eq!(
            without("a=1; space_port=t; b=\"x=y\"; __host-SPACE_port=u", &names).as_deref(),
            Some("a=1; b=\"x=y\"")
        );
        assert_eq!(without("space_port=t", &names), None);
        assert_eq!(without("space_port", &names), None);
        assert_eq!(without("a=1;b=2 ;c", &names).as_deref(), Some("a=1;b=2 ;c"), "as it was sent");
        assert_eq!(without(" ; ", &names), None);
    }

    proptest! {
        #[test]
        fn nothing_of_the_own_name_is_ever_left(
            parts in proptest::collection::vec("[ ;=\"a-c]{0,6}|space_port|SPACE_PORT|=t", 0..12)
        ) {
            let text = parts.concat();
            let left = without(&text, &["space_port"]).unwrap_or_default();
            prop_assert!(values(&left, "space_port").is_empty());
        }
    }
}
