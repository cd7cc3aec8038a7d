//! `/v1/keys`.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use space_api::{
    Page, PageQuery, Problem,
    keys::{CreateKey, Key, KeyCreated, RotateKey},
};
use space_types::KeyId;

use super::{
    answer::{created, repeated},
    caller::Keys,
    extract::{Path, Post, Query},
    problem::Failure,
};
use crate::app::{App, error::Answer};

/// Create a key
///
/// The answer shows the secret, this once. The key may do no more than the one that makes it.
#[utoipa::path(post, path = "/v1/keys", tag = "keys", request_body = CreateKey,
    responses(
        (status = 201, description = "The key with its secret.", body = KeyCreated),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn key_create(
    Keys(caller): Keys,
    State(app): State<Arc<App>>,
    post: Post<CreateKey>,
) -> Result<Response, Failure> {
    let claim = post.claim(&caller);
    Ok(created(app.key_create(&caller, &post.body, claim.as_ref()).await?))
}

/// List keys
///
/// The tenant's, revoked ones too; for admins everybody's.
#[utoipa::path(get, path = "/v1/keys", tag = "keys", params(PageQuery),
    responses(
        (status = 200, description = "A page.", body = Page<Key>),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn key_list(
    Keys(caller): Keys,
    State(app): State<Arc<App>>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<Key>>, Failure> {
    Ok(Json(app.key_list(&caller, &query).await?))
}

/// Revoke a key
///
/// No request is accepted with it any more, and streams that it opened end. Revoking twice is harmless.
#[utoipa::path(delete, path = "/v1/keys/{key_id}", tag = "keys", params(("key_id" = KeyId, Path)),
    responses(
        (status = 200, description = "The key.", body = Key),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn key_revoke(
    Keys(caller): Keys,
    State(app): State<Arc<App>>,
    Path(id): Path<KeyId>,
) -> Result<Json<Key>, Failure> {
    Ok(Json(app.key_revoke(&caller, id).await?))
}

/// Rotate a key
///
/// Makes another secret for it and shows that, this once. The present one stays valid for `overlap_seconds`, an
/// older one does not. Takes a key that may do all that this one may.
#[utoipa::path(post, path = "/v1/keys/{key_id}/rotate", tag = "keys", params(("key_id" = KeyId, Path)),
    request_body = RotateKey,
    responses(
        (status = 200, description = "The key with its new secret.", body = KeyCreated),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn key_rotate(
    Keys(caller): Keys,
    State(app): State<Arc<App>>,
    Path(id): Path<KeyId>,
    post: Post<RotateKey>,
) -> Result<Response, Failure> {
    let claim = post.claim(&caller);
    match app.key_rotate(&caller, id, post.body, claim.as_ref()).await? {
        Answer::New(rotated) => Ok(Json(rotated).into_response()),
        Answer::Repeated(response) => Ok(repeated(&response)),
    }
}
