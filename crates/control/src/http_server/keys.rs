//! `/v1/keys`, for admins.

use std::sync::Arc;

use axum::{Json, extract::State, response::Response};
use space_api::{
    Page, PageQuery, Problem,
    keys::{CreateKey, Key, KeyCreated},
};
use space_types::KeyId;

use super::{
    answer::created,
    caller::Admin,
    extract::{Path, Post, Query},
    problem::Failure,
};
use crate::app::App;

/// Create a key
///
/// The answer shows the secret, this once.
#[utoipa::path(post, path = "/v1/keys", tag = "administration", request_body = CreateKey,
    responses(
        (status = 201, description = "The key with its secret.", body = KeyCreated),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn key_create(
    Admin(caller): Admin,
    State(app): State<Arc<App>>,
    post: Post<CreateKey>,
) -> Result<Response, Failure> {
    let claim = post.claim(&caller);
    Ok(created(app.key_create(&caller, &post.body, claim.as_ref()).await?))
}

/// List keys
///
/// Revoked ones too.
#[utoipa::path(get, path = "/v1/keys", tag = "administration", params(PageQuery),
    responses(
        (status = 200, description = "A page.", body = Page<Key>),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn key_list(
    Admin(caller): Admin,
    State(app): State<Arc<App>>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<Key>>, Failure> {
    Ok(Json(app.key_list(&caller, &query).await?))
}

/// Revoke a key
///
/// No request is accepted with it any more. Revoking twice is harmless.
#[utoipa::path(delete, path = "/v1/keys/{key_id}", tag = "administration", params(("key_id" = KeyId, Path)),
    responses(
        (status = 200, description = "The key.", body = Key),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn key_revoke(
    Admin(caller): Admin,
    State(app): State<Arc<App>>,
    Path(id): Path<KeyId>,
) -> Result<Json<Key>, Failure> {
    Ok(Json(app.key_revoke(&caller, id).await?))
}
