//! Conditions and ranges of a download (RFC 9110, sections 13 and 14), as far as they are about one range of bytes.
//!
//! Whatever is not understood is ignored, as the RFC wants it: the answer is the whole file then.

use http::{HeaderMap, HeaderName, header};
use space_api::files::FileInfo;

/// What `Range` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// From the first byte on, to the last if one is named.
    From { first: u64, last: Option<u64> },
    /// So many bytes at the end; at least one.
    Last(u64),
}

impl Wanted {
    fn parse(value: &str) -> Option<Self> {
        let (first, last) = value.trim().strip_prefix("bytes=")?.split_once('-')?;
        match (first.trim(), last.trim()) {
            ("", last) => number(last).filter(|bytes| *bytes > 0).map(Self::Last),
            (first, "") => Some(Self::From { first: number(first)?, last: None }),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::From { first, last: Some(last) })
            }
        }
    }
}

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // Larger than any file; a range that begins there is one that the file doesn't have.
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// What a request says about which answer it wants.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    pub(super) range: Option<Wanted>,
    if_range: Option<String>,
    if_none_match: Option<String>,
}

impl Conditions {
    pub(super) fn of(fields: &HeaderMap) -> Self {
        let text = |name: HeaderName| fields.get(name).and_then(|value| value.to_str().ok());
        Self {
            range: text(header::RANGE).and_then(Wanted::parse),
            if_range: text(header::IF_RANGE).map(|value| value.trim().to_owned()),
            if_none_match: text(header::IF_NONE_MATCH).map(ToOwned::to_owned),
        }
    }

    /// Whether the caller has this version already. Weak tags compare like strong ones here.
    pub(super) fn has(&self, info: &FileInfo) -> bool {
        let tag = etag(info);
        self.if_none_match.as_deref().is_some_and(|list| {
            list.trim() == "*" || list.split(',').any(|one| one.trim().trim_start_matches("W/") == tag)
        })
    }

    /// Whether the range is of this version; without `If-Range` it is of any. A date is never exact enough.
    pub(super) fn range_is_of(&self, info: &FileInfo) -> bool {
        self.if_range.as_deref().is_none_or(|tag| tag == etag(info))
    }
}

/// Strong: it differs whenever a byte may differ.
pub(super) fn etag(info: &FileInfo) -> String {
    format!("\"{}\"", info.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_of_bytes_is_understood() {
        let from = |first, last| Some(Wanted::From { first, last });
        assert_eq!(Wanted::parse("bytes=0-0"), from(0, Some(0)));
        assert_eq!(Wanted::parse("bytes=5-"), from(5, None));
        assert_eq!(Wanted::parse("bytes=-5"), Some(Wanted::Last(5)));
        assert_eq!(Wanted::parse("bytes=99999999999999999999-"), from(u64::MAX, None));
    }

    #[test]
    fn anything_else_is_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=-0",
            "bytes=2-1",
            "bytes=0-1,3-4",
            "lines=1-2",
            "bytes=+1-",
        ] {
            assert_eq!(Wanted::parse(value), None, "{value}");
        }
    }
}
