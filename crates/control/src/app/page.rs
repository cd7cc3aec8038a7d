//! Cursors: the last entry's id, encoded so that nobody is tempted to make one up.

use std::{fmt::Display, str::FromStr};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use space_api::{FieldErrors, Page};

/// From a caller.
pub(crate) fn parse_cursor<I: FromStr>(cursor: Option<&str>) -> Result<Option<I>, FieldErrors> {
    let Some(cursor) = cursor else { return Ok(None) };
    let decoded = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let id = decoded.and_then(|text| text.parse().ok());
    id.map(Some).ok_or_else(|| FieldErrors::one("cursor", "not a cursor that a page answered"))
}

/// From one entry more than the page has, if there are that many.
pub(crate) fn page<T, I: Display>(mut items: Vec<T>, limit: u32, id: impl Fn(&T) -> I) -> Page<T> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = items.len() > limit;
    items.truncate(limit);
    let next_cursor = items.last().filter(|_| more).map(|last| URL_SAFE_NO_PAD.encode(id(last).to_string()));
    Page { items, next_cursor }
}

#[cfg(test)]
mod tests {
    use super::*;
    use space_types::SandboxId;

    #[test]
    fn the_last_page_has_no_cursor() {
        let ids = vec![SandboxId::new(), SandboxId::new(), SandboxId::new()];
        assert_eq!(page(ids.clone(), 3, |id| *id).next_cursor, None);
        let first = page(ids.clone(), 2, |id| *id);
        assert_eq!(parse_cursor(first.next_cursor.as_deref()), Ok(Some(ids[1])));
    }

    #[test]
    fn a_cursor_made_up_is_refused() {
        for cursor in ["", "x", "!!", "c2J4Xw"] {
            assert!(parse_cursor::<SandboxId>(Some(cursor)).is_err(), "{cursor}");
        }
    }
}
