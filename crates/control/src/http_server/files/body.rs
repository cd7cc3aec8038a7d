//! Bodies that are streams of bytes, in both directions.

use axum::body::{Body, BodyDataStream};
use futures::StreamExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use space_api::files::percent_encode;
use tokio::time::{Duration, timeout};

use crate::app::file_stream::FileBytes;

const NOSNIFF: HeaderName = HeaderName::from_static("x-content-type-options");
/// What a client gets to read a refusal while it still sends.
const DRAIN: Duration = Duration::from_secs(2);
const DRAIN_BYTES: usize = 64 << 20;

/// An answer's body, which breaks the connection where the download breaks: a client sees no short success.
pub(super) fn download(bytes: FileBytes) -> Body {
    Body::from_stream(bytes.into_stream())
}

/// Takes what still comes of a request that was refused already. A connection that is closed on a client which is
/// sending loses the answer on its way.
pub(super) async fn drain(body: &mut BodyDataStream) {
    let draining = async {
        let mut left = DRAIN_BYTES;
        while let Some(Ok(piece)) = body.next().await {
            left = left.saturating_sub(piece.len());
            if left == 0 {
                return;
            }
        }
    };
    // Whatever comes of it, the answer is sent.
    timeout(DRAIN, draining).await.unwrap_or_default();
}

/// Headers for bytes that were made inside a sandbox: to be saved, under this name, and never shown as a page.
pub(super) fn describe(fields: &mut HeaderMap, kind: &'static str, name: &[u8]) {
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    fields.insert(NOSNIFF, HeaderValue::from_static("nosniff"));
    if let Ok(value) = HeaderValue::from_str(&disposition(name)) {
        fields.insert(header::CONTENT_DISPOSITION, value);
    }
}

/// RFC 6266: an ASCII form for old clients, and beside it the name itself as UTF-8.
fn disposition(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let plain = |c: char| if matches!(c, ' '..='~') && !matches!(c, '"' | '\\' | '%') { c } else { '_' };
    let ascii: String = name.chars().map(plain).collect();
    format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{}", percent_encode(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_not_leave_its_quotes() {
        assert_eq!(disposition(b"a b.txt"), "attachment; filename=\"a b.txt\"; filename*=UTF-8''a%20b.txt");
        assert_eq!(
            disposition("\"x\\\r\n%ü".as_bytes()),
            "attachment; filename=\"_x_____\"; filename*=UTF-8''%22x%5C%0D%0A%25%C3%BC"
        );
    }
}
