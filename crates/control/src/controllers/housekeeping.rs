//! Forgets what is old, and counts what there is for the metrics.

use std::{sync::Arc, time::Duration};

use space_types::SandboxState;
use tokio::time::MissedTickBehavior;

use super::record;
use crate::{
    app::App,
    config::{ControllersConfig, duration},
    store::StoreError,
};

const INTERVAL: Duration = Duration::from_secs(15);
/// Answers under an idempotency key are kept so long: a promise of the public API.
const IDEMPOTENCY: Duration = Duration::from_hours(24);

/// Rows forgotten by one statement.
const BATCH: u32 = 2000;

/// How long things are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ages {
    events: i64,
    deleted: i64,
}

impl Ages {
    pub(crate) fn new(config: &ControllersConfig) -> Self {
        let ms = |value| i64::try_from(duration(value).as_millis()).unwrap_or(i64::MAX);
        Self { events: ms(config.event_retention), deleted: ms(config.deleted_retention) }
    }
}

pub(crate) async fn run(app: Arc<App>, ages: Ages) {
    let mut timer = tokio::time::interval(INTERVAL);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        record("housekeeping", pass(&app, ages).await);
    }
}

pub(crate) async fn pass(app: &App, ages: Ages) -> Result<(), StoreError> {
    let kept = i64::try_from(IDEMPOTENCY.as_millis()).unwrap_or(i64::MAX);
    app.key_use_flush().await?;
    // In batches: one statement over a long backlog would meet its deadline and start over for ever.
    while app.store.idempotency_expire(kept, BATCH).await? == u64::from(BATCH) {}
    app.store.join_token_expire(kept).await?;
    while app.store.event_expire(ages.events, BATCH).await? == u64::from(BATCH) {}
    while app.store.sandbox_expire(ages.deleted, BATCH).await? == u64::from(BATCH) {}
    app.store.trigger_sweep().await?;
    count(app).await
}

#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
async fn count(app: &App) -> Result<(), StoreError> {
    let counts = app.store.sandbox_counts().await?;
    for state in SandboxState::ALL {
        let count = counts.iter().find(|(code, _)| code == state.code()).map_or(0, |(_, count)| *count);
        metrics::gauge!("space_sandboxes", "state" => state.code()).set(count as f64);
    }
    let (ready, lost) = app.store.node_counts().await?;
    metrics::gauge!("space_nodes", "state" => "ready").set(ready as f64);
    metrics::gauge!("space_nodes", "state" => "lost").set(lost as f64);
    Ok(())
}
