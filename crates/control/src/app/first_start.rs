//! The first start: a tenant, an admin key in a file, and a join token for the first node.

use camino::{Utf8Path, Utf8PathBuf};
use space_api::{
    keys::ApiKey,
    nodes::{CreateJoinToken, JoinTokenKind},
};
use space_types::{KeyId, TenantId};

use super::{
    App, AppError,
    auth::{hash_secret, random_secret},
    error::Answer,
};
use crate::{authority::write_private, store::tenants::FirstKey};

#[derive(Debug, thiserror::Error)]
pub(crate) enum FirstStartError {
    #[error(transparent)]
    App(#[from] AppError),
    #[error("cannot write {path}")]
    Write {
        path: Utf8PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl App {
    /// Makes the first tenant and its admin key unless that was done. The key is in `path` before anything is
    /// committed, and is never shown again.
    pub(crate) async fn first_start(&self, path: &Utf8Path) -> Result<(), FirstStartError> {
        let key = ApiKey { id: KeyId::new(), secret: random_secret()? };
        let first =
            FirstKey { tenant_id: TenantId::new(), key_id: key.id, secret_hash: hash_secret(&key.secret) };
        let publish = || {
            write_private(path, format!("{key}\n").as_bytes())
                .map_err(|source| FirstStartError::Write { path: path.to_owned(), source })
        };
        if self.store.installation_begin(&first, publish).await.map_err(AppError::from)?? {
            tracing::info!(file = %path, tenant = %first.tenant_id, "made the first tenant and its admin key");
        }
        Ok(())
    }

    /// Writes a fresh join token for a node or an edge that is started alongside.
    pub(crate) async fn write_join_token(
        &self,
        kind: JoinTokenKind,
        path: &Utf8Path,
    ) -> Result<(), FirstStartError> {
        let request = CreateJoinToken { kind, ..CreateJoinToken::default() };
        let issued = self.join_token_issue(request, None).await?;
        let Answer::New(issued) = issued else { return Ok(()) };
        let token = issued.token.unwrap_or_default();
        write_private(path, format!("{token}\n").as_bytes())
            .map_err(|source| FirstStartError::Write { path: path.to_owned(), source })
    }
}
