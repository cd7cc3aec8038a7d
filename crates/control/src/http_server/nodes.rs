//! `/v1/nodes`, for admins.

use std::sync::Arc;

use axum::{Json, extract::State};
use space_api::{Page, PageQuery, Problem, nodes::Node};

use super::{caller::Admin, extract::Query, problem::Failure};
use crate::app::App;

/// List nodes
#[utoipa::path(get, path = "/v1/nodes", tag = "administration", params(PageQuery),
    responses(
        (status = 200, description = "A page.", body = Page<Node>),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn node_list(
    Admin(caller): Admin,
    State(app): State<Arc<App>>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<Node>>, Failure> {
    Ok(Json(app.node_list(&caller, &query).await?))
}
