//! `Idempotency-Key`: the answer of a POST is stored in the transaction that does its work, so there is never a
//! claim without an answer, whatever crashes. Work outside the database can't have that: its claim is a row of its
//! own that runs out ([`Store::idempotent`]).
//!
//! While the first request runs it holds an advisory lock for (tenant, key), or that row; a second one is told so
//! instead of waiting.

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

#[derive(sqlx::FromRow)]
struct Row {
    route: String,
    body_hash: Vec<u8>,
    status: i32,
    response: serde_json::Value,
    /// Without an answer so far: whether its time is not over. `None`: answered.
    running: Option<bool>,
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
    let row: Option<Row> = sqlx::query_as(
        "select route, body_hash, status, response, unanswered_until > now_ms() as running \
         from idempotency where tenant_id = $1 and key = $2",
    )
    .bind(claim.tenant_id.uuid())
    .bind(&claim.key)
    .fetch_optional(&mut *tx)
    .await?;
    let Some(row) = row else { return Ok(None) };
    if row.route != claim.route || row.body_hash != claim.body_hash {
        return Ok(Some(Earlier::Reused));
    }
    Ok(match row.running {
        Some(true) => Some(Earlier::InUse),
        Some(false) => None,
        None => {
            let status = u16::try_from(row.status).unwrap_or(200);
            Some(Earlier::Repeated(StoredResponse { status, body: row.response }))
        }
    })
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
    /// Does `work` under the claim and stores its answer. For effects outside the database, which must bear to be
    /// repeated: when this process dies or the caller leaves between effect and answer, the claim runs out after
    /// `deadline_ms` (which is more than `work` may take) and a repeated request does the work again.
    ///
    /// No connection is held meanwhile: `work` may wait for a guest that never answers, and there are few.
    pub(crate) async fn idempotent<T, E, Fut>(
        &self,
        claim: &Claim,
        status: u16,
        deadline_ms: i64,
        work: Fut,
    ) -> Result<Result<Claimed<T>, E>, StoreError>
    where
        T: Serialize,
        Fut: Future<Output = Result<T, E>>,
    {
        if let Some(earlier) = self.idempotency_take(claim, deadline_ms).await? {
            return Ok(Ok(earlier.into()));
        }
        match work.await {
            Ok(answer) => {
                self.idempotency_answer(claim, status, &answer).await?;
                Ok(Ok(Claimed::Done(answer)))
            }
            Err(error) => {
                // A request that was refused does not use its key up.
                self.idempotency_give_back(claim).await?;
                Ok(Err(error))
            }
        }
    }

    async fn idempotency_take(&self, claim: &Claim, deadline_ms: i64) -> Result<Option<Earlier>, StoreError> {
        let mut tx = self.begin().await?;
        if let Some(earlier) = begin(&mut tx, Some(claim)).await? {
            return Ok(Some(earlier));
        }
        // What `begin` lets pass is new, or was left unanswered long ago.
        sqlx::query(
            "insert into idempotency (tenant_id, key, route, body_hash, status, response, unanswered_until) \
             values ($1, $2, $3, $4, 0, 'null', now_ms() + $5) \
             on conflict (tenant_id, key) do update set unanswered_until = excluded.unanswered_until",
        )
        .bind(claim.tenant_id.uuid())
        .bind(&claim.key)
        .bind(&claim.route)
        .bind(claim.body_hash.as_slice())
        .bind(deadline_ms)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(None)
    }

    async fn idempotency_answer(
        &self,
        claim: &Claim,
        status: u16,
        body: &impl Serialize,
    ) -> Result<(), StoreError> {
        let body = serde_json::to_value(body).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        sqlx::query(
            "update idempotency set status = $3, response = $4, unanswered_until = null \
             where tenant_id = $1 and key = $2 and unanswered_until is not null",
        )
        .bind(claim.tenant_id.uuid())
        .bind(&claim.key)
        .bind(i32::from(status))
        .bind(body)
        .execute(self.pool())
        .await?;
        Ok(())
    }

    async fn idempotency_give_back(&self, claim: &Claim) -> Result<(), StoreError> {
        sqlx::query(
            "delete from idempotency where tenant_id = $1 and key = $2 and unanswered_until is not null",
        )
        .bind(claim.tenant_id.uuid())
        .bind(&claim.key)
        .execute(self.pool())
        .await?;
        Ok(())
    }

    /// Forgets up to `limit` answers older than `age_ms`; says how many.
    pub(crate) async fn idempotency_expire(&self, age_ms: i64, limit: u32) -> Result<u64, StoreError> {
        let result = sqlx::query(
            "delete from idempotency where (tenant_id, key) in (select tenant_id, key from idempotency \
               where created_at < now_ms() - $1 order by created_at limit $2)",
        )
        .bind(age_ms)
        .bind(i64::from(limit))
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
