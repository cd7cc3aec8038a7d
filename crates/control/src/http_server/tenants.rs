//! `/v1/tenants`, for admins.

use std::sync::Arc;

use axum::{Json, extract::State, response::Response};
use space_api::{
    Page, PageQuery, Problem,
    tenants::{CreateTenant, Tenant},
};

use super::{
    answer::created,
    caller::Admin,
    extract::{Post, Query},
    problem::Failure,
};
use crate::app::App;

/// Create a tenant
#[utoipa::path(post, path = "/v1/tenants", tag = "administration", request_body = CreateTenant,
    responses(
        (status = 201, description = "The tenant.", body = Tenant),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn tenant_create(
    Admin(caller): Admin,
    State(app): State<Arc<App>>,
    post: Post<CreateTenant>,
) -> Result<Response, Failure> {
    let claim = post.claim(&caller);
    Ok(created(app.tenant_create(&caller, &post.body, claim.as_ref()).await?))
}

/// List tenants
#[utoipa::path(get, path = "/v1/tenants", tag = "administration", params(PageQuery),
    responses(
        (status = 200, description = "A page.", body = Page<Tenant>),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn tenant_list(
    Admin(caller): Admin,
    State(app): State<Arc<App>>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<Tenant>>, Failure> {
    Ok(Json(app.tenant_list(&caller, &query).await?))
}
