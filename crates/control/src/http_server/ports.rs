//! `/v1/sandboxes/{sandbox_id}/ports`.

use std::sync::Arc;

use axum::{Json, extract::State, response::Response};
use http::StatusCode;
use space_api::{
    FieldErrors, Page, PageQuery, Problem,
    ports::{CreatePortToken, Port, PortToken, SetPort, parse_port},
};
use space_types::{PortHost, SandboxId};

use super::{
    answer::created,
    caller::Ports,
    extract::{Path, Post, Query},
    problem::Failure,
};
use crate::app::App;

fn host((sandbox_id, port): (SandboxId, String)) -> Result<PortHost, FieldErrors> {
    Ok(PortHost { port: parse_port(&port)?, sandbox_id })
}

/// List ports
///
/// Those for which something was set, by number. Every other port is private.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox_id}/ports", tag = "ports",
    params(("sandbox_id" = SandboxId, Path), PageQuery),
    responses(
        (status = 200, description = "A page.", body = Page<Port>),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn port_list(
    Ports(caller): Ports,
    State(app): State<Arc<App>>,
    Path(id): Path<SandboxId>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<Port>>, Failure> {
    Ok(Json(app.port_list(caller.reach(), id, &query).await?))
}

/// Get a port
///
/// Where it is reached, and by whom. Any port has an answer, also one where nothing listens.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox_id}/ports/{port}", tag = "ports",
    params(("sandbox_id" = SandboxId, Path), ("port" = u16, Path, minimum = 1)),
    responses(
        (status = 200, description = "The port.", body = Port),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn port_get(
    Ports(caller): Ports,
    State(app): State<Arc<App>>,
    Path(names): Path<(SandboxId, String)>,
) -> Result<Json<Port>, Failure> {
    Ok(Json(app.port_get(caller.reach(), host(names)?).await?))
}

/// Make a port public or private
///
/// Edges follow within 5 seconds. Connections that exist go on.
#[utoipa::path(put, path = "/v1/sandboxes/{sandbox_id}/ports/{port}", tag = "ports",
    params(("sandbox_id" = SandboxId, Path), ("port" = u16, Path, minimum = 1)), request_body = SetPort,
    responses(
        (status = 200, description = "The port.", body = Port),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn port_set(
    Ports(caller): Ports,
    State(app): State<Arc<App>>,
    Path(names): Path<(SandboxId, String)>,
    post: Post<SetPort>,
) -> Result<Json<Port>, Failure> {
    Ok(Json(app.port_set(caller.reach(), host(names)?, post.body).await?))
}

/// Create a token for a port
///
/// The answer shows the token, and a link with it for a browser, this once.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox_id}/ports/{port}/tokens", tag = "ports",
    params(("sandbox_id" = SandboxId, Path), ("port" = u16, Path, minimum = 1)), request_body = CreatePortToken,
    responses(
        (status = 201, description = "The token.", body = PortToken),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn port_token_create(
    Ports(caller): Ports,
    State(app): State<Arc<App>>,
    Path(names): Path<(SandboxId, String)>,
    post: Post<CreatePortToken>,
) -> Result<Response, Failure> {
    let claim = post.claim(&caller);
    Ok(created(app.port_token_create(caller.reach(), host(names)?, post.body, claim.as_ref()).await?))
}

/// Revoke a port's tokens
///
/// All that were made so far. Edges refuse them within 5 seconds; connections that exist go on.
#[utoipa::path(delete, path = "/v1/sandboxes/{sandbox_id}/ports/{port}/tokens", tag = "ports",
    params(("sandbox_id" = SandboxId, Path), ("port" = u16, Path, minimum = 1)),
    responses(
        (status = 204, description = "They are void."),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn port_tokens_revoke(
    Ports(caller): Ports,
    State(app): State<Arc<App>>,
    Path(names): Path<(SandboxId, String)>,
) -> Result<StatusCode, Failure> {
    app.port_tokens_revoke(caller.reach(), host(names)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
