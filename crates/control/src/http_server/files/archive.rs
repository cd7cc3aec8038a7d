//! `/v1/sandboxes/{id}/files/archive`: a whole tree as a tar stream.

use crate::http_server::caller::Files;
use std::sync::Arc;

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse as _, Response},
};
use space_api::{
    Problem,
    files::{ArchiveWritten, PlaceQuery, RawBytes},
    headers,
};
use space_types::SandboxId;

use super::{
    super::{extract::Path, problem::Failure},
    FileQuery,
    body::{describe, download, drain},
};
use crate::app::App;

/// Read an archive
///
/// A POSIX tar stream of a file, or of what a directory holds, with names relative to it. An answer that breaks off
/// before its end is an error, never a short archive.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox_id}/files/archive", tag = "files",
    params(("sandbox_id" = SandboxId, Path), PlaceQuery),
    responses(
        (status = 200, description = "The archive.", content_type = "application/x-tar", body = RawBytes),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(in crate::http_server) async fn archive_read(
    Files(caller): Files,
    State(app): State<Arc<App>>,
    Path(sandbox): Path<SandboxId>,
    FileQuery(query): FileQuery<PlaceQuery>,
) -> Result<Response, Failure> {
    let bytes = app.archive_read(caller.reach(), sandbox, &query).await?;
    let mut response = download(bytes).into_response();
    let name = query.path.names().last().unwrap_or(b"archive");
    describe(response.headers_mut(), headers::TAR, &[name, b".tar"].concat());
    Ok(response)
}

/// Put out an archive
///
/// The body is an uncompressed tar stream, put out below the directory `path`, which is made if it is missing. An entry
/// that would lie elsewhere is a problem. Entries appear as they come: one that breaks off leaves those before it.
#[utoipa::path(put, path = "/v1/sandboxes/{sandbox_id}/files/archive", tag = "files",
    params(("sandbox_id" = SandboxId, Path), PlaceQuery),
    request_body(content = RawBytes, content_type = "application/x-tar"),
    responses(
        (status = 200, description = "What was put out.", body = ArchiveWritten),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(in crate::http_server) async fn archive_write(
    Files(caller): Files,
    State(app): State<Arc<App>>,
    Path(sandbox): Path<SandboxId>,
    FileQuery(query): FileQuery<PlaceQuery>,
    body: Body,
) -> Result<Json<ArchiveWritten>, Failure> {
    let mut body = body.into_data_stream();
    match app.archive_write(caller.reach(), sandbox, &query, &mut body).await {
        Ok(written) => Ok(Json(written)),
        Err(error) => {
            drain(&mut body).await;
            Err(error.into())
        }
    }
}
