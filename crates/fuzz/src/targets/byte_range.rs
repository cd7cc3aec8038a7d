//! `Range` of a download: compared with a grammar that is read another way, and the bytes that it picks lie in the file.

use space_api::files::ByteRange;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let range = ByteRange::parse(text);
    assert_eq!(range.is_some(), is_one_range(text), "{text:?} is {range:?}");
    match range {
        Some(ByteRange::From { first, last }) => assert!(last.is_none_or(|last| first <= last), "{text:?}"),
        Some(ByteRange::Last(bytes)) => assert!(bytes > 0, "{text:?}"),
        None => {}
    }
}

/// RFC 9110, section 14: `bytes=` and one `int-range` or `suffix-range`; a number above 64 bits is the largest.
fn is_one_range(text: &str) -> bool {
    let Some(set) = text.trim().strip_prefix("bytes=") else { return false };
    let parts: Vec<&str> = set.splitn(2, '-').map(str::trim).collect();
    let number = |text: &str| {
        text.chars().try_fold(0_u64, |sum, character| {
            let digit = u64::from(character.to_digit(10)?);
            Some(sum.saturating_mul(10).saturating_add(digit))
        })
    };
    match parts.as_slice() {
        ["", ""] => false,
        ["", last] => number(last).is_some_and(|bytes| bytes > 0),
        [first, ""] => number(first).is_some(),
        [first, last] => matches!((number(first), number(last)), (Some(first), Some(last)) if first <= last),
        _ => false,
    }
}
