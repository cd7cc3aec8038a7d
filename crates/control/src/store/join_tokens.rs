//! Join tokens: hashed, good for one node, once, for a while.

use space_api::Timestamp;
use space_types::NodeId;

use super::{
    Store, StoreError,
    idempotency::{Claim, Claimed},
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum EnrolError {
    #[error("the join token is unknown, used or expired")]
    Token,
    #[error("a node of this name has joined before")]
    NameTaken,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Answers when the token expires.
    pub(crate) async fn join_token_create(
        &self,
        hash: [u8; 32],
        valid_seconds: u32,
        claim: Option<&Claim>,
    ) -> Result<Claimed<Timestamp>, StoreError> {
        let mut tx = self.begin().await?;
        if let Some(earlier) = super::idempotency::begin(&mut tx, claim).await? {
            return Ok(earlier.into());
        }
        let (expires_at,): (i64,) = sqlx::query_as(
            "insert into join_tokens (hash, expires_at) values ($1, now_ms() + $2) returning expires_at",
        )
        .bind(hash.as_slice())
        .bind(i64::from(valid_seconds) * 1000)
        .fetch_one(&mut *tx)
        .await?;
        let expires_at = Timestamp::from_unix_milliseconds(expires_at);
        let shown_again = space_api::nodes::JoinToken { token: None, expires_at };
        super::idempotency::finish(&mut tx, claim, 201, &shown_again).await?;
        tx.commit().await?;
        Ok(Claimed::Done(expires_at))
    }

    /// Forgets tokens that expired longer than `age_ms` ago; says how many.
    pub(crate) async fn join_token_expire(&self, age_ms: i64) -> Result<u64, StoreError> {
        let result = sqlx::query("delete from join_tokens where expires_at < now_ms() - $1")
            .bind(age_ms)
            .execute(self.pool())
            .await?;
        Ok(result.rows_affected())
    }

    /// Uses the token up and makes the node, or does neither.
    pub(crate) async fn node_enrol(
        &self,
        token_hash: [u8; 32],
        name: &str,
        address: &str,
    ) -> Result<NodeId, EnrolError> {
        let id = NodeId::new();
        let mut tx = self.begin().await?;
        let used = sqlx::query(
            "update join_tokens set used_at = now_ms() where hash = $1 and used_at is null and expires_at > now_ms()",
        )
        .bind(token_hash.as_slice())
        .execute(&mut *tx)
        .await
        .map_err(StoreError::from)?
        .rows_affected();
        if used == 0 {
            return Err(EnrolError::Token);
        }
        let inserted =
            sqlx::query("insert into nodes (id, name, address) values ($1, $2, $3) on conflict do nothing")
                .bind(id.uuid())
                .bind(name)
                .bind(address)
                .execute(&mut *tx)
                .await
                .map_err(StoreError::from)?
                .rows_affected();
        if inserted == 0 {
            return Err(EnrolError::NameTaken);
        }
        sqlx::query("update join_tokens set node_id = $2 where hash = $1")
            .bind(token_hash.as_slice())
            .bind(id.uuid())
            .execute(&mut *tx)
            .await
            .map_err(StoreError::from)?;
        tx.commit().await.map_err(StoreError::from)?;
        Ok(id)
    }
}
