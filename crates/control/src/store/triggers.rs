//! Triggers: the sandboxes that a controller has yet to look at.
//!
//! A change writes its trigger in its own transaction, due a while later: the process that wrote it is nudged
//! directly and usually settles the matter first, so that the row is only read when that process died or failed.

use space_types::SandboxId;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Store, StoreError};

/// How long the process that made a change has before others see the trigger.
const HEAD_START_MS: i64 = 15_000;

pub(super) async fn set(tx: &mut PgConnection, sandbox: SandboxId) -> Result<(), StoreError> {
    sqlx::query(
        "insert into triggers (sandbox_id, due_at) values ($1, now_ms() + $2) \
         on conflict (sandbox_id) do update set due_at = excluded.due_at",
    )
    .bind(sandbox.uuid())
    .bind(HEAD_START_MS)
    .execute(&mut *tx)
    .await?;
    Ok(())
}

pub(super) async fn clear(tx: &mut PgConnection, sandbox: SandboxId) -> Result<(), StoreError> {
    sqlx::query("delete from triggers where sandbox_id = $1").bind(sandbox.uuid()).execute(&mut *tx).await?;
    Ok(())
}

impl Store {
    /// Takes due triggers: they become due again after `again_ms`, unless the sandbox is settled by then.
    pub(crate) async fn trigger_take(&self, limit: u32, again_ms: i64) -> Result<Vec<SandboxId>, StoreError> {
        let rows: Vec<(Uuid,)> = sqlx::query_as(
            "update triggers set due_at = now_ms() + $2 where sandbox_id in ( \
               select sandbox_id from triggers where due_at <= now_ms() order by due_at limit $1 \
               for update skip locked) \
             returning sandbox_id",
        )
        .bind(i64::from(limit))
        .bind(again_ms)
        .fetch_all(self.pool())
        .await?;
        Ok(rows.into_iter().map(|(id,)| SandboxId::from_uuid(id)).collect())
    }

    /// Makes everything due: at start, when whoever had taken it is gone. Looking twice is harmless.
    pub(crate) async fn trigger_all_due(&self) -> Result<(), StoreError> {
        sqlx::query("update triggers set due_at = now_ms()").execute(self.pool()).await?;
        Ok(())
    }

    /// Writes triggers for sandboxes that are not as they should be and have none: what no bug may leave, and
    /// the last resort if one does.
    pub(crate) async fn trigger_sweep(&self) -> Result<u64, StoreError> {
        let result = sqlx::query(
            "insert into triggers (sandbox_id, due_at) \
             select id, now_ms() from sandboxes where state in ('creating', 'deleting') \
             on conflict (sandbox_id) do nothing",
        )
        .execute(self.pool())
        .await?;
        Ok(result.rows_affected())
    }
}
