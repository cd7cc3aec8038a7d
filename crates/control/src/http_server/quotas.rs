//! `/v1/quota` and the quotas of tenants and projects.

use std::sync::Arc;

use axum::{Json, extract::State};
use space_api::{
    Problem,
    quotas::{Quota, QuotaQuery, QuotaReport, Quotas},
};
use space_types::{ProjectId, TenantId};

use super::{
    caller::{Admin, Projects, UsageRead},
    extract::{Path, Post, Query},
    problem::Failure,
};
use crate::app::App;

/// Get the quotas
///
/// What the caller's sandboxes may hold together, and what they hold.
#[utoipa::path(get, path = "/v1/quota", tag = "usage", params(QuotaQuery),
    responses(
        (status = 200, description = "The quotas.", body = Quotas),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn quota_get(
    UsageRead(caller): UsageRead,
    State(app): State<Arc<App>>,
    Query(query): Query<QuotaQuery>,
) -> Result<Json<Quotas>, Failure> {
    Ok(Json(app.quota_get(&caller, query).await?))
}

/// Set a tenant's quota
///
/// For admins. A limit below what is used stops nothing that is there.
#[utoipa::path(put, path = "/v1/tenants/{tenant_id}/quota", tag = "administration",
    params(("tenant_id" = TenantId, Path)), request_body = Quota,
    responses(
        (status = 200, description = "The quota.", body = QuotaReport),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn tenant_set_quota(
    Admin(caller): Admin,
    State(app): State<Arc<App>>,
    Path(id): Path<TenantId>,
    post: Post<Quota>,
) -> Result<Json<QuotaReport>, Failure> {
    Ok(Json(app.tenant_set_quota(&caller, id, &post.body).await?))
}

/// Set a project's quota
///
/// Its tenant's holds beside it. A limit below what is used stops nothing that is there.
#[utoipa::path(put, path = "/v1/projects/{project_id}/quota", tag = "projects",
    params(("project_id" = ProjectId, Path)), request_body = Quota,
    responses(
        (status = 200, description = "The quota.", body = QuotaReport),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn project_set_quota(
    Projects(caller): Projects,
    State(app): State<Arc<App>>,
    Path(id): Path<ProjectId>,
    post: Post<Quota>,
) -> Result<Json<QuotaReport>, Failure> {
    Ok(Json(app.project_set_quota(&caller, id, &post.body).await?))
}
