//! API keys: only hashes of secrets are ever stored. A key has one, and a former one while it is being rotated.

use std::time::{Duration, Instant};

use space_api::{
    Timestamp,
    keys::{Key, KeyCreated, Role},
    scopes::{Scope, ScopeSet},
};
use space_types::{KeyId, ProjectId, TenantId};
use uuid::Uuid;

use super::{
    Store, StoreError, coded,
    idempotency::{Claim, Claimed},
    signed,
};
use crate::grants::{Grants, Reach};

/// How much older than that `last_used_at` must be to be written again.
const USE_RESOLUTION_MS: i64 = 60_000;

/// What authorisation needs to know about a key.
#[derive(Debug, Clone)]
pub(crate) struct StoredKey {
    pub(crate) grants: Grants,
    pub(crate) secret_hash: [u8; 32],
    /// The secret before the last rotation, and until when it is good.
    pub(crate) former: Option<([u8; 32], Instant)>,
    /// From then on nothing is accepted.
    pub(crate) ends: Option<Instant>,
}

/// A key to be made.
pub(crate) struct NewKey<'a> {
    /// Its end is not among them yet.
    pub(crate) grants: Grants,
    pub(crate) name: &'a str,
    pub(crate) lifetime_seconds: Option<u64>,
    /// When the key that makes it ends: it ends no later.
    pub(crate) maker_ends: Option<i64>,
}

/// A secret on its way: the text to the caller, the hash into the row.
pub(crate) struct NewSecret {
    pub(crate) id: KeyId,
    pub(crate) hash: [u8; 32],
    pub(crate) text: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateKeyError {
    #[error("there is no such tenant")]
    NoTenant,
    #[error("there is no such project")]
    NoProject,
    #[error("the key would outlive the one that makes it")]
    OutlivesMaker,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for CreateKeyError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Columns of [`KeyRow`].
macro_rules! key_columns {
    () => {
        "id, tenant_id, project_id, name, role, scopes, created_at, expires_at, rotated_at, former_until, last_used_at, revoked_at"
    };
}

#[derive(sqlx::FromRow)]
struct KeyRow {
    id: Uuid,
    tenant_id: Uuid,
    project_id: Option<Uuid>,
    name: String,
    role: String,
    scopes: Vec<String>,
    created_at: i64,
    expires_at: Option<i64>,
    rotated_at: Option<i64>,
    former_until: Option<i64>,
    last_used_at: Option<i64>,
    revoked_at: Option<i64>,
}

impl TryFrom<KeyRow> for Key {
    type Error = StoreError;

    fn try_from(row: KeyRow) -> Result<Self, StoreError> {
        let time = |ms: Option<i64>| ms.map(Timestamp::from_unix_milliseconds);
        Ok(Self {
            id: KeyId::from_uuid(row.id),
            tenant_id: TenantId::from_uuid(row.tenant_id),
            project_id: row.project_id.map(ProjectId::from_uuid),
            name: row.name,
            role: coded(Role::from_code(&row.role), "role", &row.role)?,
            scopes: scopes(&row.scopes)?.to_vec(),
            created_at: Timestamp::from_unix_milliseconds(row.created_at),
            expires_at: time(row.expires_at),
            rotated_at: time(row.rotated_at),
            former_secret_until: time(row.former_until),
            last_used_at: time(row.last_used_at),
            revoked_at: time(row.revoked_at),
        })
    }
}

fn scopes(codes: &[String]) -> Result<ScopeSet, StoreError> {
    codes.iter().map(|code| coded(Scope::from_code(code), "scopes", code)).collect()
}

pub(super) fn scope_codes(scopes: ScopeSet) -> Vec<&'static str> {
    scopes.to_vec().into_iter().map(Scope::code).collect()
}

#[derive(sqlx::FromRow)]
struct GrantsRow {
    tenant_id: Uuid,
    project_id: Option<Uuid>,
    role: String,
    scopes: Vec<String>,
    secret_hash: Vec<u8>,
    former_hash: Option<Vec<u8>>,
    former_left: Option<i64>,
    expires_at: Option<i64>,
    left: Option<i64>,
}

impl GrantsRow {
    /// What is left by the database's clock is counted from before it was asked, so that nothing lasts longer here.
    fn stored(self, read_at: Instant) -> Result<StoredKey, StoreError> {
        let hash = |hash: Vec<u8>| coded(hash.try_into().ok(), "hash", "of another length");
        let end = |left: i64| read_at + Duration::from_millis(u64::try_from(left).unwrap_or(0));
        let former = self.former_hash.map(hash).transpose()?;
        Ok(StoredKey {
            grants: Grants {
                tenant_id: TenantId::from_uuid(self.tenant_id),
                project_id: self.project_id.map(ProjectId::from_uuid),
                role: coded(Role::from_code(&self.role), "role", &self.role)?,
                scopes: scopes(&self.scopes)?,
                expires_at: self.expires_at,
            },
            secret_hash: hash(self.secret_hash)?,
            former: former.zip(self.former_left.map(end)),
            ends: self.left.map(end),
        })
    }
}

impl Store {
    /// The key if it exists, has not ended and is not revoked.
    pub(crate) async fn key_find(
        &self,
        id: KeyId,
        read_at: Instant,
    ) -> Result<Option<StoredKey>, StoreError> {
        let row: Option<GrantsRow> = sqlx::query_as(
            "select tenant_id, project_id, role, scopes, secret_hash, former_hash, former_until - now_ms() as former_left, \
                    expires_at, expires_at - now_ms() as left \
             from api_keys where id = $1 and revoked_at is null and (expires_at is null or expires_at > now_ms())",
        )
        .bind(id.uuid())
        .fetch_optional(self.pool())
        .await?;
        row.map(|row| row.stored(read_at)).transpose()
    }

    /// Stores a new key.
    pub(crate) async fn key_create(
        &self,
        new: &NewKey<'_>,
        secret: NewSecret,
        claim: Option<&Claim>,
    ) -> Result<Claimed<KeyCreated>, CreateKeyError> {
        let mut tx = self.begin().await?;
        if let Some(earlier) = super::idempotency::begin(&mut tx, claim).await? {
            return Ok(earlier.into());
        }
        let row: Option<KeyRow> = sqlx::query_as(concat!(
            "insert into api_keys (id, tenant_id, name, role, scopes, secret_hash, expires_at, project_id) \
             select $1, tenants.id, $3, $4, $5, $6, coalesce(now_ms() + $7, $8), $9 from tenants \
             where tenants.id = $2 and ($9::uuid is null or exists (select from projects \
               where projects.id = $9 and projects.tenant_id = tenants.id and deleted_at is null)) \
             returning ",
            key_columns!()
        ))
        .bind(secret.id.uuid())
        .bind(new.grants.tenant_id.uuid())
        .bind(new.name)
        .bind(new.grants.role.code())
        .bind(scope_codes(new.grants.scopes))
        .bind(secret.hash.as_slice())
        .bind(new.lifetime_seconds.map(|seconds| signed(seconds.saturating_mul(1000))))
        .bind(new.maker_ends)
        .bind(new.grants.project_id.map(ProjectId::uuid))
        .fetch_optional(&mut *tx)
        .await?;
        let row = row.ok_or(match new.grants.project_id {
            Some(_) => CreateKeyError::NoProject,
            None => CreateKeyError::NoTenant,
        })?;
        if new.maker_ends.is_some_and(|ends| row.expires_at.is_none_or(|own| own > ends)) {
            return Err(CreateKeyError::OutlivesMaker);
        }
        let mut created = KeyCreated { key: Key::try_from(row)?, secret: None };
        // Stored without the secret: a repeated answer must not show it again.
        super::idempotency::finish(&mut tx, claim, 201, &created).await?;
        tx.commit().await?;
        created.secret = Some(secret.text);
        Ok(Claimed::Done(created))
    }

    /// Newest first, those older than `before`; those within somebody's reach, or all.
    pub(crate) async fn key_list(
        &self,
        reach: Option<Reach>,
        before: Option<KeyId>,
        limit: u32,
    ) -> Result<Vec<Key>, StoreError> {
        let rows: Vec<KeyRow> = sqlx::query_as(concat!(
            "select ",
            key_columns!(),
            " from api_keys where ($1::uuid is null or tenant_id = $1) and ($2::uuid is null or project_id = $2) \
               and ($3::uuid is null or id < $3) order by id desc limit $4"
        ))
        .bind(reach.map(|reach| reach.tenant_id.uuid()))
        .bind(reach.and_then(|reach| reach.project_id).map(ProjectId::uuid))
        .bind(before.map(KeyId::uuid))
        .bind(i64::from(limit))
        .fetch_all(self.pool())
        .await?;
        rows.into_iter().map(Key::try_from).collect()
    }

    pub(crate) async fn key_get(&self, reach: Option<Reach>, id: KeyId) -> Result<Option<Key>, StoreError> {
        let row: Option<KeyRow> = sqlx::query_as(concat!(
            "select ",
            key_columns!(),
            " from api_keys where id = $1 and ($2::uuid is null or tenant_id = $2) \
               and ($3::uuid is null or project_id = $3)"
        ))
        .bind(id.uuid())
        .bind(reach.map(|reach| reach.tenant_id.uuid()))
        .bind(reach.and_then(|reach| reach.project_id).map(ProjectId::uuid))
        .fetch_optional(self.pool())
        .await?;
        row.map(Key::try_from).transpose()
    }

    /// Revokes; a second time is harmless. `None`: no such key.
    pub(crate) async fn key_revoke(&self, id: KeyId) -> Result<Option<Key>, StoreError> {
        let row: Option<KeyRow> = sqlx::query_as(concat!(
            "update api_keys set revoked_at = coalesce(revoked_at, now_ms()) where id = $1 returning ",
            key_columns!()
        ))
        .bind(id.uuid())
        .fetch_optional(self.pool())
        .await?;
        row.map(Key::try_from).transpose()
    }

    /// Makes the present secret the former one. The one before that is gone, even if its time was not over. `None`:
    /// the key has ended or is revoked.
    pub(crate) async fn key_rotate(
        &self,
        secret: NewSecret,
        overlap_seconds: u64,
        claim: Option<&Claim>,
    ) -> Result<Option<Claimed<KeyCreated>>, StoreError> {
        let mut tx = self.begin().await?;
        if let Some(earlier) = super::idempotency::begin(&mut tx, claim).await? {
            return Ok(Some(earlier.into()));
        }
        let row: Option<KeyRow> = sqlx::query_as(concat!(
            "update api_keys set former_hash = secret_hash, former_until = now_ms() + $3, secret_hash = $2, \
               rotated_at = now_ms() \
             where id = $1 and revoked_at is null and (expires_at is null or expires_at > now_ms()) returning ",
            key_columns!()
        ))
        .bind(secret.id.uuid())
        .bind(secret.hash.as_slice())
        .bind(signed(overlap_seconds.saturating_mul(1000)))
        .fetch_optional(&mut *tx)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let mut rotated = KeyCreated { key: Key::try_from(row)?, secret: None };
        super::idempotency::finish(&mut tx, claim, 200, &rotated).await?;
        tx.commit().await?;
        rotated.secret = Some(secret.text);
        Ok(Some(Claimed::Done(rotated)))
    }

    /// Writes down that these were used, for each at most once a minute.
    pub(crate) async fn key_used(&self, ids: &[KeyId]) -> Result<(), StoreError> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
        sqlx::query(
            "update api_keys set last_used_at = now_ms() \
             where id = any($1) and (last_used_at is null or last_used_at < now_ms() - $2)",
        )
        .bind(&ids)
        .bind(USE_RESOLUTION_MS)
        .execute(self.pool())
        .await?;
        Ok(())
    }
}
