//! `/v1/sandboxes/{id}/files`: what they are. Their contents are in [`content`], whole trees in [`archive`], and what
//! happens to them in [`watch`].

pub(super) mod archive;
mod body;
pub(super) mod content;
mod range;
pub(super) mod watch;

use super::caller::Files;
use std::sync::Arc;

use axum::{
    Json,
    extract::{FromRequestParts, State},
    response::{IntoResponse as _, Response},
};
use http::{StatusCode, request::Parts};
use space_api::{
    Page, Problem,
    files::{CreateDirectory, FileInfo, FromQuery, ListQuery, MoveFile, RemoveQuery, StatQuery},
};
use space_types::SandboxId;

use super::{
    answer::{created, repeated},
    extract::{Path, Post},
    problem::Failure,
};
use crate::app::{App, error::Answer};

/// A query string with a path in it, which need not be text.
pub(super) struct FileQuery<T>(pub(super) T);

impl<T: FromQuery, S: Send + Sync> FromRequestParts<S> for FileQuery<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        Ok(Self(T::from_query(parts.uri.query().unwrap_or_default())?))
    }
}

/// Get what a file is
///
/// Of a file, a directory or anything else that has a path.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox_id}/files", tag = "files",
    params(("sandbox_id" = SandboxId, Path), StatQuery),
    responses(
        (status = 200, description = "What it is.", body = FileInfo),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn file_stat(
    Files(caller): Files,
    State(app): State<Arc<App>>,
    Path(sandbox): Path<SandboxId>,
    FileQuery(query): FileQuery<StatQuery>,
) -> Result<Json<FileInfo>, Failure> {
    Ok(Json(app.file_stat(caller.reach(), sandbox, &query).await?))
}

/// List a directory
///
/// In the order of the paths, compared name by name and byte by byte, so that pages fit together while files come and
/// go. Symbolic links are listed, and not followed.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox_id}/files/entries", tag = "files",
    params(("sandbox_id" = SandboxId, Path), ListQuery),
    responses(
        (status = 200, description = "A page of entries.", body = Page<FileInfo>),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn file_list(
    Files(caller): Files,
    State(app): State<Arc<App>>,
    Path(sandbox): Path<SandboxId>,
    FileQuery(query): FileQuery<ListQuery>,
) -> Result<Json<Page<FileInfo>>, Failure> {
    Ok(Json(app.file_list(caller.reach(), sandbox, &query).await?))
}

/// Make a directory
///
/// With `parents` it may be repeated freely: one that is there already is no problem.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox_id}/files/directories", tag = "files",
    params(("sandbox_id" = SandboxId, Path)), request_body = CreateDirectory,
    responses(
        (status = 201, description = "The directory.", body = FileInfo),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn directory_create(
    Files(caller): Files,
    State(app): State<Arc<App>>,
    Path(sandbox): Path<SandboxId>,
    post: Post<CreateDirectory>,
) -> Result<Response, Failure> {
    let claim = post.claim(&caller);
    let making = app.directory_create(caller.reach(), sandbox, &post.body, claim.as_ref());
    Ok(created(Box::pin(making).await?))
}

/// Move a file or directory
///
/// Within one filesystem, at once: it has the old path or the new one, never both or neither. Repeated without an
/// `Idempotency-Key` it is `file_not_found`.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox_id}/files/move", tag = "files",
    params(("sandbox_id" = SandboxId, Path)), request_body = MoveFile,
    responses(
        (status = 200, description = "What it is at its new path.", body = FileInfo),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn file_move(
    Files(caller): Files,
    State(app): State<Arc<App>>,
    Path(sandbox): Path<SandboxId>,
    post: Post<MoveFile>,
) -> Result<Response, Failure> {
    let claim = post.claim(&caller);
    let moving = app.file_move(caller.reach(), sandbox, &post.body, claim.as_ref());
    match Box::pin(moving).await? {
        Answer::New(info) => Ok(Json(info).into_response()),
        Answer::Repeated(response) => Ok(repeated(&response)),
    }
}

/// Remove a file or directory
///
/// Repeated it is `file_not_found`. A removal that breaks off has removed a part of the tree.
#[utoipa::path(delete, path = "/v1/sandboxes/{sandbox_id}/files", tag = "files",
    params(("sandbox_id" = SandboxId, Path), RemoveQuery),
    responses(
        (status = 204, description = "It is gone."),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn file_remove(
    Files(caller): Files,
    State(app): State<Arc<App>>,
    Path(sandbox): Path<SandboxId>,
    FileQuery(query): FileQuery<RemoveQuery>,
) -> Result<StatusCode, Failure> {
    app.file_remove(caller.reach(), sandbox, &query).await?;
    Ok(StatusCode::NO_CONTENT)
}
