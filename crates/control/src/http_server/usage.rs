//! `/v1/usage`.

use std::sync::Arc;

use axum::{Json, extract::State};
use space_api::{
    Problem,
    usage::{Usage, UsageQuery},
};

use super::{caller::UsageRead, extract::Query, problem::Failure};
use crate::app::App;

/// Get the usage
///
/// What the sandboxes of each project held, by UTC day, up to this moment.
#[utoipa::path(get, path = "/v1/usage", tag = "usage", params(UsageQuery),
    responses(
        (status = 200, description = "The usage.", body = Usage),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn usage_get(
    UsageRead(caller): UsageRead,
    State(app): State<Arc<App>>,
    Query(query): Query<UsageQuery>,
) -> Result<Json<Usage>, Failure> {
    Ok(Json(app.usage_get(&caller, &query).await?))
}
