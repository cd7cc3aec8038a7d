//! Failures as `application/problem+json`.

use std::any::Any;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use space_api::{FieldErrors, Problem, ProblemCode, headers};
use space_runtime::telemetry::chain;
use tower_http::catch_panic::CatchPanicLayer;

use super::observe;
use crate::app::AppError;

/// What a handler or extractor answers instead of its result. Our own faults are logged where they become one.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) Box<Problem>);

impl From<AppError> for Failure {
    fn from(error: AppError) -> Self {
        if error.is_fault() {
            tracing::error!(error = chain(&error), "request failed");
        } else if let AppError::Store(source) = &error {
            tracing::warn!(error = chain(source), "the database does not answer");
        }
        Self(Box::new(error.problem()))
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl From<FieldErrors> for Failure {
    fn from(errors: FieldErrors) -> Self {
        Self(Box::new(errors.into()))
    }
}

impl Failure {
    pub(crate) fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem::new(code, detail)))
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut problem = *self.0;
        problem.request_id = observe::request_id();
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = (status, body).into_response();
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(headers::PROBLEM_JSON));
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::UNAUTHORIZED {
            fields.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = problem.retry_after {
            fields.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

pub(super) async fn not_found() -> Failure {
    Failure::new(ProblemCode::NotFound, "there is no such path; /docs lists all of them")
}

pub(super) async fn method_not_allowed() -> Failure {
    Failure::new(ProblemCode::MethodNotAllowed, "the path exists, but not with this method")
}

type PanicHandler = fn(Box<dyn Any + Send>) -> Response;

/// A panic is a bug: it is logged as one, and answered as `internal`.
pub(super) fn catch_panics() -> CatchPanicLayer<PanicHandler> {
    CatchPanicLayer::custom(on_panic as PanicHandler)
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that the layer calls")]
fn on_panic(panic: Box<dyn Any + Send>) -> Response {
    let text =
        panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("of another type"), "a handler panicked");
    Failure::new(ProblemCode::Internal, "the server's log has the cause under this request's id")
        .into_response()
}
