//! Conditions and ranges of a download (RFC 9110, sections 13 and 14), as far as they are about one range of bytes.
//!
//! Whatever is not understood is ignored, as the RFC wants it: the answer is the whole file then.

use http::{HeaderMap, HeaderName, header};
use space_api::files::{ByteRange, FileInfo};

/// What a request says about which answer it wants.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    pub(super) range: Option<ByteRange>,
    if_range: Option<String>,
    if_none_match: Option<String>,
}

impl Conditions {
    pub(super) fn of(fields: &HeaderMap) -> Self {
        let text = |name: HeaderName| fields.get(name).and_then(|value| value.to_str().ok());
        Self {
            range: text(header::RANGE).and_then(ByteRange::parse),
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
