//! The event log.
//!
//! Numbers come from a sequence, so they are handed out in one order and committed in another. A reader that has
//! seen 10 must not skip a 9 that commits later: it goes only as far as settled events, those
//! whose transaction is older than every one that still runs. For that an event must be written after its
//! transaction got its number, that is, after another write; all writers here do.

use space_api::{
    Timestamp,
    events::{Event, EventData, EventKind},
};
use space_types::{EventId, SandboxId, TenantId};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{Store, StoreError, coded};

#[derive(sqlx::FromRow)]
struct EventRow {
    sequence: i64,
    id: Uuid,
    sandbox_id: Uuid,
    kind: String,
    data: Json<EventData>,
    at: i64,
    settled: bool,
}

/// Events in order.
#[derive(Debug, Default)]
pub(crate) struct EventBatch {
    pub(crate) events: Vec<Event>,
    /// There are more that may not be shown yet because an older transaction still runs. Ask again soon.
    pub(crate) pending: bool,
}

pub(super) async fn append(
    tx: &mut PgConnection,
    tenant: TenantId,
    sandbox: SandboxId,
    kind: EventKind,
    data: EventData,
) -> Result<(), StoreError> {
    sqlx::query("insert into events (id, tenant_id, sandbox_id, kind, data) values ($1, $2, $3, $4, $5)")
        .bind(EventId::new().uuid())
        .bind(tenant.uuid())
        .bind(sandbox.uuid())
        .bind(kind.code())
        .bind(Json(data))
        .execute(&mut *tx)
        .await?;
    Ok(())
}

impl Store {
    /// Settled events of a tenant after `after`, of one sandbox if given.
    pub(crate) async fn event_read(
        &self,
        tenant: TenantId,
        sandbox: Option<SandboxId>,
        after: i64,
        limit: u32,
    ) -> Result<EventBatch, StoreError> {
        let rows: Vec<EventRow> = sqlx::query_as(
            "select sequence, id, sandbox_id, kind, data, at, \
                    transaction < pg_snapshot_xmin(pg_current_snapshot()) as settled \
             from events where tenant_id = $1 and ($2::uuid is null or sandbox_id = $2) and sequence > $3 \
             order by sequence limit $4",
        )
        .bind(tenant.uuid())
        .bind(sandbox.map(SandboxId::uuid))
        .bind(after)
        .bind(i64::from(limit))
        .fetch_all(self.pool())
        .await?;
        let mut batch = EventBatch::default();
        for row in rows {
            if !row.settled {
                batch.pending = true;
                break;
            }
            batch.events.push(Event {
                id: EventId::from_uuid(row.id),
                sequence: row.sequence,
                kind: coded(EventKind::from_code(&row.kind), "kind", &row.kind)?,
                sandbox_id: SandboxId::from_uuid(row.sandbox_id),
                at: Timestamp::from_unix_milliseconds(row.at),
                data: row.data.0,
            });
        }
        Ok(batch)
    }

    /// Where a reader begins that wants only what happens next: the newest settled event. Those that are not
    /// settled are yet to be shown.
    pub(crate) async fn event_tail(&self, tenant: TenantId) -> Result<i64, StoreError> {
        let (tail,): (i64,) = sqlx::query_as(
            "select coalesce((select sequence from events \
              where tenant_id = $1 and transaction < pg_snapshot_xmin(pg_current_snapshot()) \
              order by sequence desc limit 1), 0)",
        )
        .bind(tenant.uuid())
        .fetch_one(self.pool())
        .await?;
        Ok(tail)
    }

    /// Forgets up to `limit` events older than `age_ms`; says how many.
    pub(crate) async fn event_expire(&self, age_ms: i64, limit: u32) -> Result<u64, StoreError> {
        let result = sqlx::query(
            "delete from events where sequence in \
               (select sequence from events where at < now_ms() - $1 order by at limit $2)",
        )
        .bind(age_ms)
        .bind(i64::from(limit))
        .execute(self.pool())
        .await?;
        Ok(result.rows_affected())
    }
}
