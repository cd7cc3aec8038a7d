//! Problems as the API has them.

use http::{HeaderValue, Response, StatusCode, header};
use space_api::{Problem, headers};

use crate::{Body, answer};

pub(super) fn response(problem: &Problem) -> Response<Body> {
    let mut response = Response::new(answer::full(serde_json::to_string(problem).unwrap_or_default()));
    *response.status_mut() =
        StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let fields = response.headers_mut();
    fields.insert(answer::MARK, HeaderValue::from_static(problem.code.code()));
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(headers::PROBLEM_JSON));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if problem.status == StatusCode::UNAUTHORIZED.as_u16() {
        fields.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if problem.status == StatusCode::METHOD_NOT_ALLOWED.as_u16() {
        fields.insert(header::ALLOW, HeaderValue::from_static("GET"));
    }
    if let Some(seconds) = problem.retry_after {
        fields.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
