//! API keys: made, listed, rotated, revoked. An admin's key sees all of them, another one those of its tenant.

use space_api::{
    FieldErrors, Page, PageQuery,
    keys::{ApiKey, CreateKey, Key, KeyCreated, Role, RotateKey},
    scopes::{Scope, ScopeSet},
};
use space_types::KeyId;

use super::{
    App, AppError,
    auth::{Caller, hash_secret, random_secret},
    error::Answer,
    page,
};
use crate::{
    grants::{Grants, Lack, Reach},
    store::{
        idempotency::Claim,
        keys::{CreateKeyError, NewKey, NewSecret},
    },
};

impl App {
    pub(crate) async fn key_create(
        &self,
        caller: &Caller,
        request: &CreateKey,
        claim: Option<&Claim>,
    ) -> Result<Answer<KeyCreated>, AppError> {
        request.validate()?;
        let asked = asked(&caller.grants, request);
        caller.grants.require_all_of(&Grants { expires_at: caller.grants.expires_at, ..asked })?;
        let new = NewKey {
            grants: asked,
            name: &request.name,
            lifetime_seconds: request.expires_in_seconds,
            maker_ends: caller.grants.expires_at,
        };
        let secret = new_secret(KeyId::new())?;
        match self.store.key_create(&new, secret, claim).await {
            Ok(created) => Answer::from_claimed(created),
            Err(CreateKeyError::NoTenant) => {
                Err(FieldErrors::one("tenant_id", "there is no such tenant").into())
            }
            Err(CreateKeyError::NoProject) => {
                Err(FieldErrors::one("project_id", "there is no such project").into())
            }
            Err(CreateKeyError::OutlivesMaker) => Err(Lack::Time.into()),
            Err(CreateKeyError::Store(error)) => Err(error.into()),
        }
    }

    pub(crate) async fn key_list(&self, caller: &Caller, query: &PageQuery) -> Result<Page<Key>, AppError> {
        query.validate()?;
        let before = page::parse_cursor(query.cursor.as_deref())?;
        let items = self.store.key_list(visible(caller), before, query.limit() + 1).await?;
        Ok(page::page(items, query.limit(), |key| key.id))
    }

    /// Effective on this replica when it returns, on others within a second. Takes nothing but sight of the key,
    /// since it takes power away; an admin's key is revoked by admins alone.
    pub(crate) async fn key_revoke(&self, caller: &Caller, id: KeyId) -> Result<Key, AppError> {
        let key = self.key_get(caller, id).await?;
        if key.role == Role::Admin {
            caller.require_admin()?;
        }
        let key = self.store.key_revoke(id).await?.ok_or(AppError::NotFound("key"))?;
        self.keys.forget(id);
        Ok(key)
    }

    /// Gives a key another secret. Whoever learns that can do what the key can, so it takes as much.
    pub(crate) async fn key_rotate(
        &self,
        caller: &Caller,
        id: KeyId,
        request: RotateKey,
        claim: Option<&Claim>,
    ) -> Result<Answer<KeyCreated>, AppError> {
        request.validate()?;
        let key = self.key_get(caller, id).await?;
        caller.grants.require_all_of(&grants(&key))?;
        let rotated = self.store.key_rotate(new_secret(id)?, request.overlap_seconds, claim).await?;
        self.keys.forget(id);
        let rotated =
            rotated.ok_or_else(|| AppError::Conflict("the key is revoked or has expired".to_owned()))?;
        Answer::from_claimed(rotated)
    }

    async fn key_get(&self, caller: &Caller, id: KeyId) -> Result<Key, AppError> {
        self.store.key_get(visible(caller), id).await?.ok_or(AppError::NotFound("key"))
    }
}

/// Whose keys somebody may see. `None`: everybody's.
fn visible(caller: &Caller) -> Option<Reach> {
    (!caller.grants.is_admin()).then_some(caller.reach())
}

/// What a key will be able to do; its end is for the database's clock to say.
fn asked(own: &Grants, request: &CreateKey) -> Grants {
    let project_id = request.project_id.or(own.project_id);
    let inherited = if project_id.is_some() { own.scopes.without(Scope::Projects) } else { own.scopes };
    let named = request.scopes.as_ref().map(|scopes| scopes.iter().copied().collect());
    let scopes = match request.role {
        Role::Admin => ScopeSet::all(),
        Role::Member => named.unwrap_or(inherited),
    };
    let tenant_id = request.tenant_id.unwrap_or(own.tenant_id);
    Grants { tenant_id, project_id, role: request.role, scopes, expires_at: None }
}

fn grants(key: &Key) -> Grants {
    Grants {
        tenant_id: key.tenant_id,
        project_id: key.project_id,
        role: key.role,
        scopes: key.scopes.iter().copied().collect(),
        expires_at: key.expires_at.map(space_api::Timestamp::unix_milliseconds),
    }
}

fn new_secret(id: KeyId) -> Result<NewSecret, AppError> {
    let key = ApiKey { id, secret: random_secret()? };
    Ok(NewSecret { id, hash: hash_secret(&key.secret), text: key.to_string() })
}
