//! Being heard: a heartbeat with everything every few seconds, and a report of each change as it happens. A
//! report that does not get through is not lost: it is tried again, and the next heartbeat says the same.

use std::{sync::Arc, time::Duration};

use space_node_proto::registry::{Capacity, HeartbeatRequest, ReportRequest};
use space_runtime::{retry::Backoff, telemetry::chain};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::{enrol::ControlLink, fence::Fence, vm::NodeContext};

const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), cap: Duration::from_secs(5), give_up_after: Duration::MAX };

/// Sends heartbeats for ever. Cancel safe.
pub(crate) async fn beat_forever(
    node: Arc<NodeContext>,
    control: ControlLink,
    fence: Fence,
    boot_id: String,
) {
    let mut ticks = interval(node.config.deadlines.heartbeat());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = true;
    loop {
        ticks.tick().await;
        match control.heartbeat(heartbeat(&node, &boot_id)).await {
            Ok(reply) => {
                if !heard {
                    tracing::info!("control hears this node again");
                }
                heard = true;
                if let Err(error) = fence.pass(reply.fence).await {
                    tracing::error!(error = %chain(&error), "cannot keep the fence");
                }
            }
            Err(error) => {
                // Once for each silence, not for each beat.
                if heard {
                    tracing::warn!(error = %chain(&error), "control does not hear this node");
                }
                heard = false;
                metrics::counter!("space_node_heartbeat_failures_total").increment(1);
            }
        }
    }
}

fn heartbeat(node: &NodeContext, boot_id: &str) -> HeartbeatRequest {
    let offer = node.ledger.offer();
    let sandboxes = node.observations.all();
    metrics::gauge!("space_node_sandboxes")
        .set(f64::from(u32::try_from(sandboxes.len()).unwrap_or(u32::MAX)));
    let capacity = Capacity {
        vcpus: offer.vcpus,
        memory_bytes: offer.memory.as_bytes(),
        disk_free_bytes: node.config.room().free().unwrap_or_default().as_bytes(),
        overhead_bytes: node.config.capacity.overhead().as_bytes(),
    };
    HeartbeatRequest {
        boot_id: boot_id.to_owned(),
        address: node.config.advertised(),
        capacity: Some(capacity),
        sandboxes,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Reports changes for ever. Cancel safe but for changes that were taken and not yet heard, which the next
/// heartbeat repeats.
pub(crate) async fn report_forever(node: Arc<NodeContext>, control: ControlLink) {
    let mut failures = 0;
    loop {
        let sandboxes = node.observations.take_unreported().await;
        match control.report(ReportRequest { sandboxes: sandboxes.clone() }).await {
            Ok(_) => failures = 0,
            Err(error) => {
                failures += 1;
                tracing::debug!(error = %chain(&error), failures, "a report did not get through");
                node.observations.put_back(sandboxes);
                sleep_until(Instant::now() + BACKOFF.pause(failures)).await;
            }
        }
    }
}
