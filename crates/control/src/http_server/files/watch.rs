//! `/v1/sandboxes/{id}/files/watch`.

use crate::http_server::caller::Files;
use std::sync::Arc;

use axum::{extract::State, response::Response};
use futures::StreamExt as _;
use space_api::{
    Problem,
    files::{FileChange, WatchQuery},
};
use space_types::SandboxId;

use super::{
    super::{extract::Path, problem::Failure, sse},
    FileQuery,
};
use crate::app::App;

/// Watch a file or directory
///
/// Server-sent events: `watching` first, from which on no change is missed; then `change` for each one; `lost` where
/// more happened than could be told; `error` when the stream ends early. It can't be resumed: a new watch begins with
/// what happens next, so list again after `watching`.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox_id}/files/watch", tag = "files",
    params(("sandbox_id" = SandboxId, Path), WatchQuery),
    responses(
        (status = 200, description = "A stream of events.", body = FileChange, content_type = "text/event-stream"),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(in crate::http_server) async fn file_watch(
    Files(caller): Files,
    State(app): State<Arc<App>>,
    Path(sandbox): Path<SandboxId>,
    FileQuery(query): FileQuery<WatchQuery>,
) -> Result<Response, Failure> {
    let key_ended = sse::key_ended(&app, caller.key_id);
    let watching = app.file_watch(caller.reach(), sandbox, &query).await?;
    let events = watching.into_stream().take_until(key_ended);
    Ok(sse::response(events.map(|event| sse::watch_event(&event))))
}
