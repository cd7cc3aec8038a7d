//! Who sends the request, from `Authorization: Bearer`, and whether they may.
//!
//! A handler takes one of these extractors first and by that says what a key needs: a scope, the role `admin`, or
//! nothing further. Nobody whose key lacks it learns anything of what they sent, not even whether it was right.
//!
//! Here requests are counted too (`rate_limit/`): each that has a caller once, a stream when it is opened; each that
//! has none against its peer.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::{header, request::Parts};
use space_api::scopes::Scope;

use super::problem::Failure;
use crate::{
    app::{App, AppError, auth::Caller},
    rate_limit::{PeerAddress, RateLimits},
};

/// Longer than any key or token.
const LONGEST: usize = 512;

/// The bearer value as it was sent.
pub(super) fn bearer(parts: &Parts) -> Option<&str> {
    let value = parts.headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= LONGEST).then_some(token)
}

/// A peer's attempt to show a key or token. One that failed too often of late is refused before anything is looked up.
pub(super) struct Attempt<'a> {
    limits: &'a RateLimits,
    peer: PeerAddress,
}

impl<'a> Attempt<'a> {
    pub(super) fn begin(parts: &Parts, app: &'a App) -> Result<Self, AppError> {
        let (limits, peer) =
            (&app.rate_limits, parts.extensions.get::<PeerAddress>().copied().unwrap_or_default());
        limits.attempt(peer)?;
        Ok(Self { limits, peer })
    }

    /// Only the caller's failure is counted, not ours to find out.
    pub(super) fn end<T>(self, shown: Result<T, AppError>) -> Result<T, AppError> {
        if let Err(AppError::Unauthorized) = shown {
            self.limits.failed(self.peer);
        }
        shown
    }
}

async fn caller(parts: &Parts, app: &App) -> Result<Caller, Failure> {
    let attempt = Attempt::begin(parts, app)?;
    let shown = match bearer(parts) {
        Some(token) => app.authenticate(token).await,
        None => Err(AppError::Unauthorized),
    };
    let caller = attempt.end(shown)?;
    app.rate_limits.request(caller.key_id, caller.tenant_id).map_err(AppError::from)?;
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
