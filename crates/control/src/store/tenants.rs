//! Tenants, and the first one.

use space_api::{Timestamp, keys::Role, scopes::ScopeSet, tenants::Tenant};
use space_types::{KeyId, TenantId};
use uuid::Uuid;

use super::{
    Store, StoreError,
    idempotency::{Claim, Claimed},
    projects,
};

#[derive(sqlx::FromRow)]
struct TenantRow {
    id: Uuid,
    name: String,
    created_at: i64,
}

impl From<TenantRow> for Tenant {
    fn from(row: TenantRow) -> Self {
        Self {
            id: TenantId::from_uuid(row.id),
            name: row.name,
            created_at: Timestamp::from_unix_milliseconds(row.created_at),
        }
    }
}

/// What the very first start makes.
pub(crate) struct FirstKey {
    pub(crate) tenant_id: TenantId,
    pub(crate) key_id: KeyId,
    pub(crate) secret_hash: [u8; 32],
}

impl Store {
    /// Makes the first tenant and its admin key, once for all replicas and starts. `publish` hands the key to
    /// the operator and runs before the commit: a key that nobody got must not be the only one.
    pub(crate) async fn installation_begin<E>(
        &self,
        first: &FirstKey,
        publish: impl FnOnce() -> Result<(), E>,
    ) -> Result<Result<bool, E>, StoreError> {
        let mut tx = self.begin().await?;
        let elected = sqlx::query("insert into installation default values on conflict do nothing")
            .execute(&mut *tx)
            .await?
            .rows_affected();
        if elected == 0 {
            return Ok(Ok(false));
        }
        sqlx::query("insert into tenants (id, name) values ($1, 'default')")
            .bind(first.tenant_id.uuid())
            .execute(&mut *tx)
            .await?;
        projects::insert(
            &mut tx,
            first.tenant_id,
            projects::default_project(first.tenant_id),
            projects::DEFAULT_NAME,
        )
        .await?;
        sqlx::query(
            "insert into api_keys (id, tenant_id, name, role, scopes, secret_hash) values ($1, $2, 'first', $3, $4, $5)",
        )
        .bind(first.key_id.uuid())
        .bind(first.tenant_id.uuid())
        .bind(Role::Admin.code())
        .bind(super::keys::scope_codes(ScopeSet::all()))
        .bind(first.secret_hash.as_slice())
        .execute(&mut *tx)
        .await?;
        if let Err(error) = publish() {
            return Ok(Err(error));
        }
        tx.commit().await?;
        Ok(Ok(true))
    }

    pub(crate) async fn tenant_create(
        &self,
        name: &str,
        claim: Option<&Claim>,
    ) -> Result<Claimed<Tenant>, StoreError> {
        let mut tx = self.begin().await?;
        if let Some(earlier) = super::idempotency::begin(&mut tx, claim).await? {
            return Ok(earlier.into());
        }
        let row: TenantRow =
            sqlx::query_as("insert into tenants (id, name) values ($1, $2) returning id, name, created_at")
                .bind(TenantId::new().uuid())
                .bind(name)
                .fetch_one(&mut *tx)
                .await?;
        let tenant = Tenant::from(row);
        projects::insert(&mut tx, tenant.id, projects::default_project(tenant.id), projects::DEFAULT_NAME)
            .await?;
        super::idempotency::finish(&mut tx, claim, 201, &tenant).await?;
        tx.commit().await?;
        Ok(Claimed::Done(tenant))
    }

    /// Newest first, those older than `before`.
    pub(crate) async fn tenant_list(
        &self,
        before: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<Tenant>, StoreError> {
        let rows: Vec<TenantRow> = sqlx::query_as(
            "select id, name, created_at from tenants where ($1::uuid is null or id < $1) order by id desc limit $2",
        )
        .bind(before.map(TenantId::uuid))
        .bind(i64::from(limit))
        .fetch_all(self.pool())
        .await?;
        Ok(rows.into_iter().map(Tenant::from).collect())
    }
}
