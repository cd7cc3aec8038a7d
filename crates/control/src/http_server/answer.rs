//! Answers, new and repeated.

use axum::{
    Json,
    response::{IntoResponse as _, Response},
};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;

use crate::{app::error::Answer, store::idempotency::StoredResponse};

/// Tells a repeated answer from the first.
const REPEATED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// 201 with the new thing, or what the first request was answered.
pub(super) fn created(answer: Answer<impl Serialize>) -> Response {
    match answer {
        Answer::New(value) => (StatusCode::CREATED, Json(value)).into_response(),
        Answer::Repeated(response) => repeated(&response),
    }
}

pub(super) fn repeated(stored: &StoredResponse) -> Response {
    let status = StatusCode::from_u16(stored.status).unwrap_or(StatusCode::OK);
    let mut response = match status {
        StatusCode::NO_CONTENT => status.into_response(),
        _ => (status, Json(&stored.body)).into_response(),
    };
    response.headers_mut().insert(REPEATED, HeaderValue::from_static("true"));
    response
}
