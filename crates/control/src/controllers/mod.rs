//! Controllers bring what is in line with what should be. They take no input: each reads, diffs and acts, when it
//! is nudged and on a timer, and doing so twice is harmless.
//!
//! | controller | reads | acts |
//! |---|---|---|
//! | `sandboxes` | due triggers, the sandbox | calls its node, writes what came of it |
//! | `leases` | leases | takes silent nodes' sandboxes for lost, returned ones' for back |
//! | `strays` | what a node reports and control does not know | has the node remove it, or looks closer |
//! | `messages` | changes of this replica and of others | NOTIFY, and its reception |
//! | `housekeeping` | ages | forgets what is old; counts for the metrics |

pub(crate) mod beats;
pub(crate) mod housekeeping;
pub(crate) mod leases;
pub(crate) mod messages;
pub(crate) mod nudges;
pub(crate) mod sandboxes;
pub(crate) mod strays;

use std::{sync::Arc, time::Duration};

use space_runtime::tasks::Tasks;

use crate::{
    app::App,
    config::{ControllersConfig, duration},
};

pub(crate) use nudges::Nudges;

/// Starts all of them.
pub(crate) fn spawn(tasks: &Tasks, app: &Arc<App>, config: &ControllersConfig) {
    let interval = duration(config.interval).max(Duration::from_millis(50));
    tasks.spawn(
        "controller sandboxes",
        sandboxes::run(Arc::clone(app), tasks.clone(), interval, config.concurrency),
    );
    tasks.spawn_cancellable("controller leases", leases::run(Arc::clone(app), interval));
    tasks.spawn_cancellable("controller strays", strays::run(Arc::clone(app)));
    tasks.spawn_cancellable("controller messages out", messages::send(Arc::clone(app)));
    tasks.spawn_cancellable("controller messages in", messages::receive(Arc::clone(app)));
    let ages = housekeeping::Ages::new(config);
    tasks.spawn_cancellable("controller housekeeping", housekeeping::run(Arc::clone(app), ages));
}

/// Counts a pass, and logs a failed one with its whole chain: the one place where that is handled.
pub(crate) fn record<T, E: std::error::Error + 'static>(
    controller: &'static str,
    result: Result<T, E>,
) -> Option<T> {
    let outcome = if result.is_ok() { "ok" } else { "error" };
    metrics::counter!("space_controller_passes_total", "controller" => controller, "outcome" => outcome)
        .increment(1);
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            tracing::warn!(
                controller,
                error = space_runtime::telemetry::chain(&error),
                "a controller's pass failed"
            );
            None
        }
    }
}
