//! Who sends the request, from `Authorization: Bearer`, and whether they may.
//!
//! A handler takes one of these extractors first and by that says what a key needs: a scope, the role `admin`, or
//! nothing further. Nobody whose key lacks it learns anything of what they sent, not even whether it was right.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::{header, request::Parts};
use space_api::scopes::Scope;

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

async fn caller(parts: &Parts, app: &App) -> Result<Caller, Failure> {
    let token = bearer(parts).ok_or(AppError::Unauthorized)?;
    let caller = app.authenticate(token).await?;
    tracing::debug!(tenant = %caller.tenant_id, key = %caller.key_id, "authenticated");
    Ok(caller)
}

macro_rules! callers {
    ($($(#[$doc:meta])* $name:ident, $check:expr;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name(pub(super) Caller);

        impl FromRequestParts<Arc<App>> for $name {
            type Rejection = Failure;

            async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
                let caller = caller(parts, app).await?;
                let check: fn(&Caller) -> Result<(), AppError> = $check;
                check(&caller)?;
                Ok(Self(caller))
            }
        }
    )*};
}

callers! {
    /// Whoever has a valid key.
    Anyone, |_| Ok(());
    /// Who may administer the installation.
    Admin, Caller::require_admin;
    SandboxesRead, |caller| caller.require(Scope::SandboxesRead);
    SandboxesWrite, |caller| caller.require(Scope::SandboxesWrite);
    Commands, |caller| caller.require(Scope::Commands);
    Files, |caller| caller.require(Scope::Files);
    Ports, |caller| caller.require(Scope::Ports);
    Keys, |caller| caller.require(Scope::Keys);
    Projects, |caller| caller.require(Scope::Projects);
    UsageRead, |caller| caller.require(Scope::UsageRead);
}
