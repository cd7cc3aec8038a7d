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
use space_types::{EventId, SandboxId};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{Store, StoreError, coded};
use crate::grants::Reach;

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
    sandbox: SandboxId,
    kind: EventKind,
    data: EventData,
) -> Result<(), StoreError> {
    sqlx::query(
        "insert into events (id, tenant_id, project_id, sandbox_id, kind, data) \
         select $1, tenant_id, project_id, id, $3, $4 from sandboxes where id = $2",
    )
    .bind(EventId::new().uuid())
    .bind(sandbox.uuid())
    .bind(kind.code())
    .bind(Json(data))
    .execute(&mut *tx)
    .await?;
    Ok(())
}

macro_rules! select_events {
    ($whose:literal) => {
        concat!(
            "select sequence, id, sandbox_id, kind, data, at, \
                    transaction < pg_snapshot_xmin(pg_current_snapshot()) as settled \
             from events where ",
            $whose,
            " and ($2::uuid is null or sandbox_id = $2) and sequence > $3 order by sequence limit $4"
        )
    };
}

macro_rules! newest_event {
    ($whose:literal) => {
        concat!(
            "select coalesce((select sequence from events where ",
            $whose,
            " and transaction < pg_snapshot_xmin(pg_current_snapshot()) order by sequence desc limit 1), 0)"
        )
    };
}

impl Store {
    /// Settled events within `reach` after `after`, of one sandbox if given.
    pub(crate) async fn event_read(
        &self,
        reach: Reach,
        sandbox: Option<SandboxId>,
        after: i64,
        limit: u32,
    ) -> Result<EventBatch, StoreError> {
        // Two texts, so that each is planned for its own index.
        let (sql, whose) = match reach.project_id {
            None => (select_events!("tenant_id = $1"), reach.tenant_id.uuid()),
            Some(project) => (select_events!("project_id = $1"), project.uuid()),
        };
        let rows: Vec<EventRow> = sqlx::query_as(sql)
            .bind(whose)
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
    pub(crate) async fn event_tail(&self, reach: Reach) -> Result<i64, StoreError> {
        let (sql, whose) = match reach.project_id {
            None => (newest_event!("tenant_id = $1"), reach.tenant_id.uuid()),
            Some(project) => (newest_event!("project_id = $1"), project.uuid()),
        };
        let (tail,): (i64,) = sqlx::query_as(sql).bind(whose).fetch_one(self.pool()).await?;
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
