//! Server-sent events: heartbeats, headers, positions.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::Body,
    response::{
        IntoResponse as _, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{Stream, StreamExt as _};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde::Serialize;
use space_api::{FieldErrors, events, files::WatchEvent, headers, limits, operations};
use space_attach::{Positioned, wire};
use space_types::KeyId;

use crate::app::App;

const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A command's events as an answer.
pub(super) fn command_events(events: impl Stream<Item = Positioned> + Send + 'static) -> Response {
    let body = Body::from_stream(wire::body(events).map(Ok::<_, Infallible>));
    let mut response = Response::new(body);
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(headers::EVENT_STREAM));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    fields.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// An answer that goes on as long as `stream`.
pub(super) fn response(stream: impl Stream<Item = Event> + Send + 'static) -> Response {
    let heartbeat =
        KeepAlive::new().interval(Duration::from_secs(limits::HEARTBEAT_SECONDS)).text("heartbeat");
    let mut response = Sse::new(stream.map(Ok::<_, Infallible>)).keep_alive(heartbeat).into_response();
    // A proxy that gathers a stream before it passes it on breaks it.
    response.headers_mut().insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// Ready when a key has been revoked or has ended: a stream that it opened ends then. Rotating a key ends none. While
/// the database is away streams go on.
pub(super) fn key_ended(app: &Arc<App>, key: KeyId) -> impl Future<Output = ()> + Send + use<> {
    let app = Arc::clone(app);
    async move {
        loop {
            tokio::time::sleep(app.limits.key_recheck).await;
            if matches!(app.key_is_valid(key).await, Ok(false)) {
                return;
            }
        }
    }
}

/// `Last-Event-ID`, if it was sent.
pub(super) fn last_event_id<T: std::str::FromStr>(fields: &HeaderMap) -> Result<Option<T>, FieldErrors> {
    let Some(value) = fields.get(headers::LAST_EVENT_ID) else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    parsed.map(Some).ok_or_else(|| FieldErrors::one(headers::LAST_EVENT_ID, "not an id that a stream sent"))
}

pub(super) fn watch_event(event: &WatchEvent) -> Event {
    Event::default().event(event.name()).data(event.data().unwrap_or_default())
}

pub(super) fn log_event(event: &events::Event) -> Event {
    Event::default().id(event.sequence.to_string()).event(event.kind.code()).data(json(event))
}

pub(super) fn operation_event(operation: &operations::Operation) -> Event {
    Event::default().event(operations::OPERATION_EVENT).data(json(operation))
}

/// One line; these types always serialise.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
