//! `/v1/events` and `/v1/sandboxes/{id}/events`.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use futures::StreamExt as _;
use http::HeaderMap;
use space_api::{
    Problem,
    events::{Event, EventsQuery},
};
use space_types::SandboxId;

use super::{
    caller::SandboxesRead,
    extract::{Path, Query},
    problem::Failure,
    sse,
};
use crate::app::{App, auth::Caller};

/// Follow the event log
///
/// Server-sent events, named by their kind. `Last-Event-ID` continues behind an event (`0`: from the beginning);
/// without it the stream begins with what happens next.
#[utoipa::path(get, path = "/v1/events", tag = "events", params(EventsQuery, ("Last-Event-ID" = Option<i64>, Header)),
    responses(
        (status = 200, description = "A stream of events.", body = Event, content_type = "text/event-stream"),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn events(
    SandboxesRead(caller): SandboxesRead,
    State(app): State<Arc<App>>,
    Query(query): Query<EventsQuery>,
    fields: HeaderMap,
) -> Result<Response, Failure> {
    stream(&app, &caller, query.sandbox, &fields).await
}

/// Follow one sandbox's events
///
/// As `/v1/events`, for one sandbox.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox_id}/events", tag = "events",
    params(("sandbox_id" = SandboxId, Path), ("Last-Event-ID" = Option<i64>, Header)),
    responses(
        (status = 200, description = "A stream of events.", body = Event, content_type = "text/event-stream"),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn sandbox_events(
    SandboxesRead(caller): SandboxesRead,
    State(app): State<Arc<App>>,
    Path(id): Path<SandboxId>,
    fields: HeaderMap,
) -> Result<Response, Failure> {
    stream(&app, &caller, Some(id), &fields).await
}

async fn stream(
    app: &Arc<App>,
    caller: &Caller,
    sandbox: Option<SandboxId>,
    fields: &HeaderMap,
) -> Result<Response, Failure> {
    let after = sse::last_event_id(fields)?;
    let events = app.event_stream(caller.reach(), sandbox, after).await?;
    let events = events.map(|event| sse::log_event(&event));
    Ok(sse::response(events.take_until(sse::key_ended(app, caller.key_id))))
}
