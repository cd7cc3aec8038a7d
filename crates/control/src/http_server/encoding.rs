//! Bodies come as they are. A compressed one is refused before it is read: nothing here would know how large it is until
//! it was unpacked, and the bytes of a file must be those that were sent.

use axum::{extract::Request, middleware::Next, response::IntoResponse as _, response::Response};
use http::{HeaderMap, header};
use space_api::ProblemCode;

use super::problem::Failure;

pub(super) async fn refuse_compressed(request: Request, next: Next) -> Response {
    if is_plain(request.headers()) {
        return next.run(request).await;
    }
    let text = "send the body without Content-Encoding";
    Failure::new(ProblemCode::UnsupportedMediaType, text).into_response()
}

fn is_plain(fields: &HeaderMap) -> bool {
    fields
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .all(|value| value.as_bytes().eq_ignore_ascii_case(b"identity"))
}
