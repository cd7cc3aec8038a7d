//! `Idempotency-Key`: the answer of a POST is stored in the transaction that does its work, so there is never a
//! claim without an answer, whatever crashes.
//!
//! While the first request runs it holds an advisory lock for (tenant, key); a second one that can't get it is
//! told so instead of waiting.

use serde::Serialize;
use space_types::TenantId;
use sqlx::PgConnection;
#[cfg(test)]
use uuid::Uuid;

use super::{Store, StoreError};

/// One use of an idempotency key.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) tenant_id: TenantId,
    pub(crate) key: String,
    /// Method and path, ids included.
    pub(crate) route: String,
    pub(crate) body_hash: [u8; 32],
}

/// An answer of earlier.
#[derive(Debug, Clone)]
pub(crate) struct StoredResponse {
    pub(crate) status: u16,
    pub(crate) body: serde_json::Value,
}

/// What came of a claimed request.
#[derive(Debug)]
pub(crate) enum Claimed<T> {
    Done(T),
    /// The first one did it; this is its answer.
    Repeated(StoredResponse),
    /// The key was used for something else.
    Reused,
    /// The first one still runs.
    InUse,
}

/// The ways in which a claim ends a request before its work begins.
pub(crate) enum Earlier {
    Repeated(StoredResponse),
    Reused,
    InUse,
}

impl<T> From<Earlier> for Claimed<T> {
    fn from(earlier: Earlier) -> Self {
        match earlier {
            Earlier::Repeated(response) => Self::Repeated(response),
            Earlier::Reused => Self::Reused,
            Earlier::InUse => Self::InUse,
        }
    }
}

/// Takes the claim for the rest of the transaction. `None`: go on with the work.
pub(super) async fn begin(
    tx: &mut PgConnection,
    claim: Option<&Claim>,
) -> Result<Option<Earlier>, StoreError> {
    let Some(claim) = claim else { return Ok(None) };
    let (locked,): (bool,) = sqlx::query_as("select pg_try_advisory_xact_lock(hashtextextended($1, 0))")
        .bind(format!("{}/{}", claim.tenant_id, claim.key))
        .fetch_one(&mut *tx)
        .await?;
    if !locked {
        return Ok(Some(Earlier::InUse));
    }
    let row: Option<(String, Vec<u8>, i32, serde_json::Value)> = sqlx::query_as(
        "select route, body_hash, status, response from idempotency where tenant_id = $1 and key = $2",
    )
    .bind(claim.tenant_id.uuid())
    .bind(&claim.key)
    .fetch_optional(&mut *tx)
    .await?;
    Ok(row.map(|(route, body_hash, status, body)| {
        if route != claim.route || body_hash != claim.body_hash {
            return Earlier::Reused;
        }
        Earlier::Repeated(StoredResponse { status: u16::try_from(status).unwrap_or(200), body })
    }))
}

/// Stores the answer, to be committed with the work.
pub(super) async fn finish(
    tx: &mut PgConnection,
    claim: Option<&Claim>,
    status: u16,
    body: &impl Serialize,
) -> Result<(), StoreError> {
    let Some(claim) = claim else { return Ok(()) };
    let body = serde_json::to_value(body).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    sqlx::query(
        "insert into idempotency (tenant_id, key, route, body_hash, status, response) values ($1, $2, $3, $4, $5, $6)",
    )
    .bind(claim.tenant_id.uuid())
    .bind(&claim.key)
    .bind(&claim.route)
    .bind(claim.body_hash.as_slice())
    .bind(i32::from(status))
    .bind(body)
    .execute(&mut *tx)
    .await?;
    Ok(())
}

impl Store {
    /// Does `work` under the claim and stores its answer. For effects outside the database: when this process
    /// dies between effect and commit, a repeated request does the work again, so it should bear that.
    pub(crate) async fn idempotent<T, E, Fut>(
        &self,
        claim: &Claim,
        status: u16,
        work: Fut,
    ) -> Result<Result<Claimed<T>, E>, StoreError>
    where
        T: Serialize,
        Fut: Future<Output = Result<T, E>>,
    {
        let mut tx = self.begin().await?;
        if let Some(earlier) = begin(&mut tx, Some(claim)).await? {
            return Ok(Ok(earlier.into()));
        }
        let answer = match work.await {
            Ok(answer) => answer,
            Err(error) => return Ok(Err(error)),
        };
        finish(&mut tx, Some(claim), status, &answer).await?;
        tx.commit().await?;
        Ok(Ok(Claimed::Done(answer)))
    }

    /// Forgets answers older than `age_ms`; says how many.
    pub(crate) async fn idempotency_expire(&self, age_ms: i64) -> Result<u64, StoreError> {
        let result = sqlx::query("delete from idempotency where created_at < now_ms() - $1")
            .bind(age_ms)
            .execute(self.pool())
            .await?;
        Ok(result.rows_affected())
    }

    /// Makes every answer of a tenant look `age_ms` older: for tests of expiry.
    #[cfg(test)]
    pub(crate) async fn idempotency_age(&self, tenant: Uuid, age_ms: i64) -> Result<(), StoreError> {
        sqlx::query("update idempotency set created_at = created_at - $2 where tenant_id = $1")
            .bind(tenant)
            .bind(age_ms)
            .execute(self.pool())
            .await?;
        Ok(())
    }
}
