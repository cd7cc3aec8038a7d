//! A `Cookie` field with and without the edge's own cookies.
//!
//! - What is left has none of them, and the others byte for byte and in order; all of it, if there was none.
//! - Taking them out twice takes out no more.

use space_edge::{fuzz::COOKIES, parse::cookies};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(field) = std::str::from_utf8(bytes) else { return };
    let left = cookies::without(field, &COOKIES);
    let others: Vec<&str> = pairs(field).filter(|pair| !is_own(pair)).collect();
    let text = left.as_deref().unwrap_or_default();
    assert_eq!(pairs(text).collect::<Vec<_>>(), others, "{field:?}");
    assert_eq!(left.is_some(), !others.is_empty(), "{field:?}");
    if pairs(field).all(|pair| !is_own(pair)) && left.is_some() {
        assert_eq!(text, field, "nothing of it was the edge's");
    }
    if let Some(left) = &left {
        assert_eq!(cookies::without(left, &COOKIES).as_ref(), Some(left));
    }
    for name in COOKIES {
        assert!(cookies::values(text, name).is_empty(), "{field:?}");
        let values = cookies::values(field, name);
        assert!(values.len() <= 8 && values.iter().all(|value| field.contains(value)), "{field:?}");
        assert!(values.is_empty() || pairs(field).any(is_own), "{field:?}");
    }
}

/// RFC 6265, 5.4, read from the other end; nothing is a cookie where nothing stands.
pub(super) fn pairs(field: &str) -> impl Iterator<Item = &str> {
    field.split_terminator(';').map(str::trim).filter(|pair| !pair.is_empty())
}

/// Whether a server that minds no letter case would take it for the edge's.
pub(super) fn is_own(pair: &str) -> bool {
    let name = pair.find('=').map_or(pair, |end| &pair[..end]);
    let name = name.trim().to_ascii_lowercase();
    COOKIES.iter().any(|own| own.to_ascii_lowercase() == name)
}
