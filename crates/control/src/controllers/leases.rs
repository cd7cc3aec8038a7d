//! The lease controller: a node that has been silent for its lease and a margin is lost, and with it, for as long,
//! its sandboxes. When it is heard again they are back, as it last reported them.
//!
//! While the database is away no heartbeat can be written, and every lease runs out though every node is well. So
//! after an outage, as after a start, nodes get a whole lease and margin to be heard before any is taken for lost.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::MissedTickBehavior;

use super::record;
use crate::{app::App, store::StoreError};

const BATCH: u32 = 1000;
/// Beyond this many batches the next pass goes on.
const BATCHES: u32 = 100;

pub(crate) async fn run(app: Arc<App>, interval: Duration) {
    let mut timer = tokio::time::interval(interval);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut healthy_since: Option<Instant> = None;
    loop {
        timer.tick().await;
        let patience = app.limits.lease + app.limits.lease_margin;
        let may_expire = healthy_since.is_some_and(|since| since.elapsed() >= patience);
        let passed = record("leases", pass(&app, may_expire).await).is_some();
        healthy_since = passed.then(|| healthy_since.unwrap_or_else(Instant::now));
    }
}

/// One pass; takes nodes for lost only if `may_expire`.
pub(crate) async fn pass(app: &App, may_expire: bool) -> Result<(), StoreError> {
    // Also without expiring anything: it proves that the database answers.
    app.store.ping().await?;
    if may_expire {
        let margin = i64::try_from(app.limits.lease_margin.as_millis()).unwrap_or(i64::MAX);
        for node in app.store.node_expire(margin).await? {
            tracing::warn!(%node, "the node has been silent for too long and is taken for lost");
            metrics::counter!("space_nodes_lost_total").increment(1);
        }
    }
    mark(app).await
}

/// Brings the sandboxes' marks in line with their nodes'.
pub(crate) async fn mark(app: &App) -> Result<(), StoreError> {
    for _ in 0..BATCHES {
        let mismatches = app.store.node_lost_mismatches(BATCH).await?;
        if mismatches.is_empty() {
            break;
        }
        for (id, lost) in mismatches {
            if let Some(changed) = app.store.sandbox_set_node_lost(id, lost).await? {
                app.announce(changed);
                app.nudges.nudge(id);
            }
        }
    }
    Ok(())
}
