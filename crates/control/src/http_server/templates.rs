//! `/v1/templates`.

use std::sync::Arc;

use axum::{Json, extract::State, response::Response};
use space_api::{
    Page, PageQuery, Problem,
    templates::{PublishRelease, Release, Template},
};

use super::{
    answer::created,
    caller::{Admin, Anyone},
    extract::{Path, Post, Query},
    problem::Failure,
};
use crate::app::App;

/// Publish a release of a template
///
/// For admins. Makes the release unless it exists, and points `name:tag` at it.
#[utoipa::path(post, path = "/v1/templates", tag = "templates", request_body = PublishRelease,
    responses(
        (status = 201, description = "The release.", body = Release),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn template_publish(
    Admin(caller): Admin,
    State(app): State<Arc<App>>,
    post: Post<PublishRelease>,
) -> Result<Response, Failure> {
    let claim = post.claim(&caller);
    Ok(created(app.template_publish(&caller, &post.body, claim.as_ref()).await?))
}

/// List templates
///
/// In order of their names.
#[utoipa::path(get, path = "/v1/templates", tag = "templates", params(PageQuery),
    responses(
        (status = 200, description = "A page.", body = Page<Template>),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn template_list(
    Anyone(_caller): Anyone,
    State(app): State<Arc<App>>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<Template>>, Failure> {
    Ok(Json(app.template_list(&query).await?))
}

/// Get a template
#[utoipa::path(get, path = "/v1/templates/{name}", tag = "templates", params(("name" = String, Path)),
    responses(
        (status = 200, description = "The template.", body = Template),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn template_get(
    Anyone(_caller): Anyone,
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<Json<Template>, Failure> {
    Ok(Json(app.template_get(&name).await?))
}
