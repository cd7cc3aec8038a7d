//! `/v1/projects`.

use std::sync::Arc;

use axum::{Json, extract::State, response::Response};
use http::StatusCode;
use space_api::{
    Page, PageQuery, Problem,
    projects::{CreateProject, Project, UpdateProject},
};
use space_types::ProjectId;

use super::{
    answer::created,
    caller::{Anyone, Projects},
    extract::{Path, Post, Query},
    problem::Failure,
};
use crate::app::App;

/// Create a project
#[utoipa::path(post, path = "/v1/projects", tag = "projects", request_body = CreateProject,
    responses(
        (status = 201, description = "The project.", body = Project),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn project_create(
    Projects(caller): Projects,
    State(app): State<Arc<App>>,
    post: Post<CreateProject>,
) -> Result<Response, Failure> {
    let claim = post.claim(&caller);
    Ok(created(app.project_create(&caller, &post.body, claim.as_ref()).await?))
}

/// List projects
///
/// A key of one project sees that one.
#[utoipa::path(get, path = "/v1/projects", tag = "projects", params(PageQuery),
    responses(
        (status = 200, description = "A page.", body = Page<Project>),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn project_list(
    Anyone(caller): Anyone,
    State(app): State<Arc<App>>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<Project>>, Failure> {
    Ok(Json(app.project_list(&caller, &query).await?))
}

/// Get a project
#[utoipa::path(get, path = "/v1/projects/{project_id}", tag = "projects", params(("project_id" = ProjectId, Path)),
    responses(
        (status = 200, description = "The project.", body = Project),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn project_get(
    Anyone(caller): Anyone,
    State(app): State<Arc<App>>,
    Path(id): Path<ProjectId>,
) -> Result<Json<Project>, Failure> {
    Ok(Json(app.project_get(&caller, id).await?))
}

/// Rename a project
#[utoipa::path(patch, path = "/v1/projects/{project_id}", tag = "projects", params(("project_id" = ProjectId, Path)),
    request_body = UpdateProject,
    responses(
        (status = 200, description = "The project.", body = Project),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn project_update(
    Projects(caller): Projects,
    State(app): State<Arc<App>>,
    Path(id): Path<ProjectId>,
    post: Post<UpdateProject>,
) -> Result<Json<Project>, Failure> {
    Ok(Json(app.project_update(&caller, id, &post.body).await?))
}

/// Delete a project
///
/// Only one without sandboxes, deleted ones apart. Keys that saw this project alone are revoked with it.
#[utoipa::path(delete, path = "/v1/projects/{project_id}", tag = "projects", params(("project_id" = ProjectId, Path)),
    responses(
        (status = 204, description = "It is gone."),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn project_delete(
    Projects(caller): Projects,
    State(app): State<Arc<App>>,
    Path(id): Path<ProjectId>,
) -> Result<StatusCode, Failure> {
    app.project_delete(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
