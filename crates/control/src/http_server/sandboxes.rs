//! `/v1/sandboxes`.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State, response::IntoResponse as _, response::Response};
use http::{HeaderValue, StatusCode, header};
use space_api::{
    Page, Problem, WaitQuery,
    sandboxes::{CreateSandbox, ListSandboxes, Sandbox, SandboxOperation},
};
use space_types::SandboxId;

use super::{
    answer::repeated,
    caller::{SandboxesRead, SandboxesWrite},
    extract::{Pairs, Path, Post, Query},
    problem::Failure,
};
use crate::app::{App, AppError, error::Answer, sandboxes::is_created};

/// Create a sandbox
///
/// Answers 202 with the operation under way, or with `wait` 201 as soon as commands can be run.
#[utoipa::path(post, path = "/v1/sandboxes", tag = "sandboxes", params(WaitQuery),
    request_body = CreateSandbox,
    responses(
        (status = 201, description = "It runs.", body = SandboxOperation),
        (status = 202, description = "Accepted; the operation tells how it goes.", body = SandboxOperation),
        (status = "default", description = "Not accepted; nothing changed.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn sandbox_create(
    SandboxesWrite(caller): SandboxesWrite,
    State(app): State<Arc<App>>,
    Query(query): Query<WaitQuery>,
    post: Post<CreateSandbox>,
) -> Result<Response, Failure> {
    query.validate()?;
    app.rate_limits.create(caller.tenant_id).map_err(AppError::from)?;
    let wait = Duration::from_secs(u64::from(query.wait));
    let claim = post.claim(&caller);
    match app.sandbox_create(caller.reach(), &post.body, claim.as_ref(), wait).await? {
        Answer::New(answer) => {
            let status = if is_created(&answer) { StatusCode::CREATED } else { StatusCode::ACCEPTED };
            Ok(located(status, &answer))
        }
        Answer::Repeated(response) => Ok(repeated(&response)),
    }
}

/// List sandboxes
///
/// Newest first, deleted ones only when asked for by `state=deleted`.
#[utoipa::path(get, path = "/v1/sandboxes", tag = "sandboxes", params(ListSandboxes),
    responses(
        (status = 200, description = "A page.", body = Page<Sandbox>),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn sandbox_list(
    SandboxesRead(caller): SandboxesRead,
    State(app): State<Arc<App>>,
    Pairs(pairs): Pairs,
) -> Result<Json<Page<Sandbox>>, Failure> {
    let query = ListSandboxes::from_pairs(pairs)?;
    Ok(Json(app.sandbox_list(caller.reach(), &query).await?))
}

/// Get a sandbox
///
/// A deleted one can still be read for a day.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox_id}", tag = "sandboxes",
    params(("sandbox_id" = SandboxId, Path)),
    responses(
        (status = 200, description = "The sandbox.", body = Sandbox),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn sandbox_get(
    SandboxesRead(caller): SandboxesRead,
    State(app): State<Arc<App>>,
    Path(id): Path<SandboxId>,
) -> Result<Json<Sandbox>, Failure> {
    Ok(Json(app.sandbox_get(caller.reach(), id).await?))
}

/// Delete a sandbox
///
/// Ends it with everything in it. Answers 202 with the operation under way, or 200 when nothing is left of it,
/// with `wait` as soon as that is so. Deleting twice is harmless.
#[utoipa::path(delete, path = "/v1/sandboxes/{sandbox_id}", tag = "sandboxes",
    params(("sandbox_id" = SandboxId, Path), WaitQuery),
    responses(
        (status = 200, description = "Nothing is left of it.", body = SandboxOperation),
        (status = 202, description = "Accepted; the operation tells how it goes.", body = SandboxOperation),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn sandbox_delete(
    SandboxesWrite(caller): SandboxesWrite,
    State(app): State<Arc<App>>,
    Path(id): Path<SandboxId>,
    Query(query): Query<WaitQuery>,
) -> Result<Response, Failure> {
    query.validate()?;
    let wait = Duration::from_secs(u64::from(query.wait));
    let answer = app.sandbox_delete(caller.reach(), id, wait).await?;
    let status = if answer.operation.status.is_done() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(answer)).into_response())
}

fn located(status: StatusCode, answer: &SandboxOperation) -> Response {
    let mut response = (status, Json(answer)).into_response();
    if let Ok(value) = HeaderValue::from_str(&format!("/v1/sandboxes/{}", answer.sandbox.id)) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    response
}
