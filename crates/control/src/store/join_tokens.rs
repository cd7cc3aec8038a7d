//! Join tokens: hashed, good for one node or edge, once, for a while. What is done with one is in [`super::enrolment`].

use space_api::{Timestamp, nodes::CreateJoinToken};

use super::{
    Store, StoreError,
    idempotency::{Claim, Claimed},
};

impl Store {
    /// Answers when the token expires.
    pub(crate) async fn join_token_create(
        &self,
        hash: [u8; 32],
        request: CreateJoinToken,
        claim: Option<&Claim>,
    ) -> Result<Claimed<Timestamp>, StoreError> {
        let mut tx = self.begin().await?;
        if let Some(earlier) = super::idempotency::begin(&mut tx, claim).await? {
            return Ok(earlier.into());
        }
        let (expires_at,): (i64,) = sqlx::query_as(
            "insert into join_tokens (hash, expires_at, kind) values ($1, now_ms() + $2, $3) returning expires_at",
        )
        .bind(hash.as_slice())
        .bind(i64::from(request.valid_seconds) * 1000)
        .bind(request.kind.code())
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
}
