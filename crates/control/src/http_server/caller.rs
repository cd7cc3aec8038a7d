//! Who sends the request, from `Authorization: Bearer`.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::{header, request::Parts};

use super::problem::Failure;
use crate::app::{App, AppError, auth::Caller};

/// Longer than any key or token.
const LONGEST: usize = 512;

/// The bearer value as it was sent.
pub(super) fn bearer(parts: &Parts) -> Option<&str> {
    let value = parts.headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= LONGEST).then_some(token)
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        let token = bearer(parts).ok_or(AppError::Unauthorized)?;
        let caller = app.authenticate(token).await?;
        tracing::debug!(tenant = %caller.tenant_id, key = %caller.key_id, "authenticated");
        Ok(caller)
    }
}

/// A caller who may administer. Others learn nothing of what they sent, not even whether it was right.
pub(super) struct Admin(pub(super) Caller);

impl FromRequestParts<Arc<App>> for Admin {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        let caller = Caller::from_request_parts(parts, app).await?;
        caller.require_admin()?;
        Ok(Self(caller))
    }
}
