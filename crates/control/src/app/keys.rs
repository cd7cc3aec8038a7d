//! API keys.

use space_api::{
    FieldErrors, Page, PageQuery,
    keys::{ApiKey, CreateKey, Key, KeyCreated},
};
use space_types::KeyId;

use super::{
    App, AppError,
    auth::{Caller, hash_secret, random_secret},
    error::Answer,
    page,
};
use crate::store::idempotency::Claim;

impl App {
    pub(crate) async fn key_create(
        &self,
        caller: &Caller,
        request: &CreateKey,
        claim: Option<&Claim>,
    ) -> Result<Answer<KeyCreated>, AppError> {
        caller.require_admin()?;
        request.validate()?;
        let key = ApiKey { id: KeyId::new(), secret: random_secret()? };
        let hash = hash_secret(&key.secret);
        let created = self.store.key_create(key.id, request, key.to_string(), hash, claim).await?;
        let created = created
            .ok_or_else(|| AppError::Invalid(FieldErrors::one("tenant_id", "there is no such tenant")))?;
        Answer::from_claimed(created)
    }

    pub(crate) async fn key_list(&self, caller: &Caller, query: &PageQuery) -> Result<Page<Key>, AppError> {
        caller.require_admin()?;
        query.validate()?;
        let before = page::parse_cursor(query.cursor.as_deref())?;
        let items = self.store.key_list(before, query.limit() + 1).await?;
        Ok(page::page(items, query.limit(), |key| key.id))
    }

    /// Effective on this replica when it returns, on others within a second.
    pub(crate) async fn key_revoke(&self, caller: &Caller, id: KeyId) -> Result<Key, AppError> {
        caller.require_admin()?;
        let key = self.store.key_revoke(id).await?.ok_or(AppError::NotFound("key"))?;
        self.keys.forget(id);
        Ok(key)
    }
}
