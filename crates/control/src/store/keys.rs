//! API keys: only the hash of a secret is ever stored.

use space_api::{
    Timestamp,
    keys::{Key, KeyCreated, Role},
};
use space_types::{KeyId, TenantId};
use uuid::Uuid;

use super::{
    Store, StoreError, coded,
    idempotency::{Claim, Claimed},
};

/// What authorisation needs to know about a key.
#[derive(Debug, Clone)]
pub(crate) struct StoredKey {
    pub(crate) tenant_id: TenantId,
    pub(crate) role: Role,
    pub(crate) secret_hash: [u8; 32],
}

#[derive(sqlx::FromRow)]
struct KeyRow {
    id: Uuid,
    tenant_id: Uuid,
    name: String,
    role: String,
    created_at: i64,
    revoked_at: Option<i64>,
}

impl TryFrom<KeyRow> for Key {
    type Error = StoreError;

    fn try_from(row: KeyRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: KeyId::from_uuid(row.id),
            tenant_id: TenantId::from_uuid(row.tenant_id),
            name: row.name,
            role: coded(Role::from_code(&row.role), "role", &row.role)?,
            created_at: Timestamp::from_unix_milliseconds(row.created_at),
            revoked_at: row.revoked_at.map(Timestamp::from_unix_milliseconds),
        })
    }
}

impl Store {
    /// The key if it exists and is not revoked.
    pub(crate) async fn key_find(&self, id: KeyId) -> Result<Option<StoredKey>, StoreError> {
        let row: Option<(Uuid, String, Vec<u8>)> = sqlx::query_as(
            "select tenant_id, role, secret_hash from api_keys where id = $1 and revoked_at is null",
        )
        .bind(id.uuid())
        .fetch_optional(self.pool())
        .await?;
        let Some((tenant, role, hash)) = row else { return Ok(None) };
        Ok(Some(StoredKey {
            tenant_id: TenantId::from_uuid(tenant),
            role: coded(Role::from_code(&role), "role", &role)?,
            secret_hash: coded(hash.try_into().ok(), "secret_hash", "of another length")?,
        }))
    }

    /// Stores a new key. `secret` goes into the answer and, as its hash, into the row. `None`: no such tenant.
    pub(crate) async fn key_create(
        &self,
        id: KeyId,
        request: &space_api::keys::CreateKey,
        secret: String,
        secret_hash: [u8; 32],
        claim: Option<&Claim>,
    ) -> Result<Option<Claimed<KeyCreated>>, StoreError> {
        let mut tx = self.begin().await?;
        if let Some(earlier) = super::idempotency::begin(&mut tx, claim).await? {
            return Ok(Some(earlier.into()));
        }
        let row: Option<KeyRow> = sqlx::query_as(
            "insert into api_keys (id, tenant_id, name, role, secret_hash) \
             select $1, tenants.id, $3, $4, $5 from tenants where tenants.id = $2 \
             returning id, tenant_id, name, role, created_at, revoked_at",
        )
        .bind(id.uuid())
        .bind(request.tenant_id.uuid())
        .bind(&request.name)
        .bind(request.role.code())
        .bind(secret_hash.as_slice())
        .fetch_optional(&mut *tx)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let mut created = KeyCreated { key: Key::try_from(row)?, secret: None };
        // Stored without the secret: a repeated answer must not show it again.
        super::idempotency::finish(&mut tx, claim, 201, &created).await?;
        tx.commit().await?;
        created.secret = Some(secret);
        Ok(Some(Claimed::Done(created)))
    }

    pub(crate) async fn key_list(&self, before: Option<KeyId>, limit: u32) -> Result<Vec<Key>, StoreError> {
        let rows: Vec<KeyRow> = sqlx::query_as(
            "select id, tenant_id, name, role, created_at, revoked_at from api_keys \
             where ($1::uuid is null or id < $1) order by id desc limit $2",
        )
        .bind(before.map(KeyId::uuid))
        .bind(i64::from(limit))
        .fetch_all(self.pool())
        .await?;
        rows.into_iter().map(Key::try_from).collect()
    }

    /// Revokes; a second time is harmless. `None`: no such key.
    pub(crate) async fn key_revoke(&self, id: KeyId) -> Result<Option<Key>, StoreError> {
        let row: Option<KeyRow> = sqlx::query_as(
            "update api_keys set revoked_at = coalesce(revoked_at, now_ms()) where id = $1 \
             returning id, tenant_id, name, role, created_at, revoked_at",
        )
        .bind(id.uuid())
        .fetch_optional(self.pool())
        .await?;
        row.map(Key::try_from).transpose()
    }
}
