//! What surrounds each request: an id, a span, a log line, metrics, a deadline.
//!
//! Neither query strings nor headers are logged: an attach token may be in both.

use std::time::{Duration, Instant};

use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{HeaderName, HeaderValue, Method};
use space_api::{ProblemCode, headers};
use tracing::Instrument as _;
use uuid::Uuid;

use super::problem::Failure;

tokio::task_local! {
    static REQUEST_ID: String;
}

const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// Of the request that this task handles.
pub(super) fn request_id() -> Option<String> {
    REQUEST_ID.try_with(Clone::clone).ok()
}

pub(super) async fn observe(request: Request, next: Next) -> Response {
    let id = take_over_id(&request).unwrap_or_else(|| format!("req_{}", Uuid::now_v7().simple()));
    let method = request.method().clone();
    let path = request.uri().path().chars().take(256).collect::<String>();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let span = tracing::info_span!("request", request_id = %id, %method, path, otel.kind = "server");
    let begun = Instant::now();
    let mut response = REQUEST_ID.scope(id.clone(), next.run(request)).instrument(span.clone()).await;
    let elapsed = begun.elapsed();
    let status = response.status().as_u16();
    span.in_scope(|| tracing::info!(status, milliseconds = elapsed.as_secs_f64() * 1000.0, "request"));
    count(&method, route.as_deref().unwrap_or("none"), status, elapsed);
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID_HEADER, value);
    }
    response
}

fn take_over_id(request: &Request) -> Option<String> {
    let value = request.headers().get(&REQUEST_ID_HEADER)?;
    headers::is_request_id(value.as_bytes()).then(|| value.to_str().ok().map(ToOwned::to_owned)).flatten()
}

/// Streams are counted with the time to their beginning.
fn count(method: &Method, route: &str, status: u16, elapsed: Duration) {
    // Methods are a caller's word; unknown ones must not make new series.
    let method = match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::PATCH => "PATCH",
        _ => "other",
    };
    let labels = [("method", method.to_owned()), ("route", route.to_owned()), ("status", status.to_string())];
    metrics::counter!("space_http_requests_total", &labels).increment(1);
    let labels = [("method", method.to_owned()), ("route", route.to_owned())];
    metrics::histogram!("space_http_request_seconds", &labels).record(elapsed.as_secs_f64());
}

/// For every request but those with deadlines of their own: `exec` has its command's, uploads have one for silence, and
/// a large tree takes long to remove. A stream has begun in time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline(pub(super) Duration);

pub(super) async fn deadline(
    State(Deadline(limit)): State<Deadline>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    if has_its_own(request.method(), path) {
        return next.run(request).await;
    }
    let limit = limit + wait_of(request.uri().query().unwrap_or_default());
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Failure::new(ProblemCode::Timeout, "the request took too long").into_response(),
    }
}

fn has_its_own(method: &Method, route: &str) -> bool {
    let is_upload = *method == Method::PUT && route.contains("/files/");
    let is_removal = *method == Method::DELETE && route.ends_with("/files");
    is_upload || is_removal || route.ends_with("/exec")
}

/// What `?wait=` adds, as far as it is allowed to.
fn wait_of(query: &str) -> Duration {
    let wait = query.split('&').find_map(|pair| pair.strip_prefix("wait=")?.parse::<u32>().ok());
    Duration::from_secs(u64::from(wait.unwrap_or(0).min(space_api::limits::WAIT_SECONDS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_on_top_of_the_deadline_and_bounded() {
        let seconds = |query| wait_of(query).as_secs();
        assert_eq!(
            [seconds(""), seconds("wait=7"), seconds("a=1&wait=9999999"), seconds("wait=-1")],
            [0, 7, 300, 0]
        );
    }
}
