//! `/v1/join-tokens`, for admins.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use space_api::{
    Problem,
    nodes::{CreateJoinToken, JoinToken},
};

use super::{answer::created, caller::Admin, extract::Post, problem::Failure};
use crate::app::App;

/// Create a join token
///
/// Good for one node to join with, or with `kind` for one edge, once. The answer shows it, this once.
#[utoipa::path(post, path = "/v1/join-tokens", tag = "administration", request_body = CreateJoinToken,
    responses(
        (status = 201, description = "The token.", body = JoinToken),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn join_token_create(
    Admin(caller): Admin,
    State(app): State<Arc<App>>,
    post: Post<CreateJoinToken>,
) -> Result<Response, Failure> {
    let claim = post.claim(&caller);
    Ok(created(app.join_token_create(&caller, post.body, claim.as_ref()).await?))
}
