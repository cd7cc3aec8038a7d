//! Header names of our own and what their values may be.

use crate::{FieldErrors, limits};

/// Makes a POST repeatable: the same key with the same body answers what the first one answered, for 24 h.
pub const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
/// Names one request in answers and logs. A caller's own is taken over when it is well-formed.
pub const REQUEST_ID: &str = "X-Request-Id";
/// How far a reader of an event stream has got.
pub const LAST_EVENT_ID: &str = "Last-Event-ID";

pub const JSON: &str = "application/json";
pub const PROBLEM_JSON: &str = "application/problem+json";
pub const EVENT_STREAM: &str = "text/event-stream";
pub const BYTES: &str = "application/octet-stream";
pub const TAR: &str = "application/x-tar";

/// 1 to 128 visible ASCII characters.
pub fn validate_idempotency_key(key: &[u8]) -> Result<(), FieldErrors> {
    let mut errors = FieldErrors::default();
    errors.require(
        is_visible(key, limits::IDEMPOTENCY_KEY_CHARS),
        IDEMPOTENCY_KEY,
        format!("must have 1 to {} visible ASCII characters", limits::IDEMPOTENCY_KEY_CHARS),
    );
    errors.finish()
}

/// Whether a caller's request id may be taken over.
pub fn is_request_id(id: &[u8]) -> bool {
    is_visible(id, limits::REQUEST_ID_CHARS)
}

fn is_visible(value: &[u8], longest: usize) -> bool {
    (1..=longest).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idempotency_keys_are_visible_ascii() {
        assert!(validate_idempotency_key(b"a-1").is_ok());
        for key in [&b""[..], b"a b", b"a\n", &[0xc3, 0xa4], &[b'x'; 129]] {
            assert!(validate_idempotency_key(key).is_err(), "{key:?}");
        }
    }
}
