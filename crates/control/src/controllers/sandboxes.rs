//! The sandbox controller: for each sandbox that a trigger or a nudge names, one look and one act.
//!
//! Several are worked on at the same time, each by one task. A sandbox that is nudged while its task runs is looked
//! at again afterwards; if it is to be deleted by then, the task is dropped at once, for a create may take long.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use space_runtime::tasks::Tasks;
use space_types::{Desired, NodeId, Observed, Reason, SandboxId};
use tokio::{
    sync::{Semaphore, mpsc},
    time::MissedTickBehavior,
};
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::record;
use crate::{
    app::App,
    fail_point,
    store::{StoreError, nodes::NodeContact, sandbox_changes::parse_report, sandboxes::SandboxWork},
};

/// Triggers taken from the database at once.
const BATCH: u32 = 256;
/// A taken trigger becomes due again after so long.
const AGAIN_MS: i64 = 10_000;

/// How soon a node that failed to answer is asked again. It may only have been started anew.
const SOON: Duration = Duration::from_secs(1);

/// What one look came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looked {
    /// Settled, or something else will bring it back here.
    Done,
    /// The node did not do what it was asked to.
    Again,
}

/// What one look at a sandbox says is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Nothing,
    /// The node is silent; its lease decides.
    Wait,
    Ensure,
    GiveUp,
    Remove,
    /// Its node is gone for good as far as anyone knows. Should it come back, what it reports is removed then.
    Forget,
}

fn decide(work: &SandboxWork, create_deadline: Duration) -> Action {
    let old = u128::try_from(work.age_ms).unwrap_or(0) > create_deadline.as_millis();
    match (work.desired, work.observed) {
        (Desired::Running, Observed::Pending | Observed::Booting) if work.node_lost => Action::Nothing,
        (Desired::Running, Observed::Pending | Observed::Booting) if !work.node_is_live => Action::Wait,
        (Desired::Running, Observed::Pending | Observed::Booting) if old => Action::GiveUp,
        (Desired::Running, Observed::Pending | Observed::Booting) => Action::Ensure,
        (
            Desired::Running,
            Observed::Running | Observed::Stopped(_) | Observed::Failed(_) | Observed::Absent,
        )
        | (Desired::Deleted, Observed::Absent) => Action::Nothing,
        (
            Desired::Deleted,
            Observed::Pending
            | Observed::Booting
            | Observed::Running
            | Observed::Stopped(_)
            | Observed::Failed(_),
        ) => {
            if work.node_lost {
                Action::Forget
            } else {
                Action::Remove
            }
        }
    }
}

/// Looks at one sandbox and acts.
pub(crate) async fn reconcile(app: &App, id: SandboxId) -> Result<Looked, StoreError> {
    let Some(work) = app.store.sandbox_work(id).await? else { return Ok(Looked::Done) };
    match decide(&work, app.limits.create_deadline) {
        Action::Nothing | Action::Wait => Ok(Looked::Done),
        Action::Ensure => ensure(app, &work).await,
        Action::GiveUp => conclude(app, &work, Observed::Failed(Reason::NodeError)).await,
        Action::Remove => remove(app, &work).await,
        Action::Forget => conclude(app, &work, Observed::Absent).await,
    }
}

async fn ensure(app: &App, work: &SandboxWork) -> Result<Looked, StoreError> {
    fail_point::CREATE_BEFORE_NODE_CALL.pass();
    let begun = Instant::now();
    let answer = app.nodes.ensure(work, app.limits.ensure_timeout).await;
    metrics::histogram!("space_node_call_seconds", "call" => "ensure").record(begun.elapsed().as_secs_f64());
    fail_point::CREATE_AFTER_NODE_CALL.pass();
    match answer {
        Ok(report) => match parse_report(&report) {
            Some((reported, seen)) if reported == work.id => {
                let (_, changed) = app.store.sandbox_observe(work.node_id, work.id, &seen).await?;
                announce(app, work.node_id, changed);
                Ok(Looked::Done)
            }
            Some(_) | None => {
                tracing::warn!(sandbox = %work.id, node = %work.node_id, "a node's answer makes no sense");
                Ok(Looked::Done)
            }
        },
        Err(status) if status.code() == Code::ResourceExhausted => {
            tracing::info!(sandbox = %work.id, node = %work.node_id, %status, "the node has no room after all");
            if app.store.sandbox_place_elsewhere(work.id, work.generation, work.node_id).await? {
                return Ok(Looked::Again);
            }
            conclude(app, work, Observed::Failed(Reason::NoCapacity)).await
        }
        Err(status) => {
            tracing::info!(sandbox = %work.id, node = %work.node_id, %status, "the node could not ensure the sandbox");
            Ok(Looked::Again)
        }
    }
}

async fn remove(app: &App, work: &SandboxWork) -> Result<Looked, StoreError> {
    fail_point::DELETE_BEFORE_NODE_CALL.pass();
    let node = NodeContact { id: work.node_id, address: work.node_address.clone(), fence: work.fence };
    let begun = Instant::now();
    let answer = app.nodes.remove(&node, work.id, work.generation, app.limits.remove_timeout).await;
    metrics::histogram!("space_node_call_seconds", "call" => "remove").record(begun.elapsed().as_secs_f64());
    fail_point::DELETE_AFTER_NODE_CALL.pass();
    match answer {
        Ok(()) => conclude(app, work, Observed::Absent).await,
        Err(status) if status.code() == Code::NotFound => conclude(app, work, Observed::Absent).await,
        Err(status) => {
            tracing::info!(sandbox = %work.id, node = %work.node_id, %status, "the node could not remove the sandbox");
            Ok(Looked::Again)
        }
    }
}

async fn conclude(app: &App, work: &SandboxWork, seen: Observed) -> Result<Looked, StoreError> {
    let changed = app.store.sandbox_conclude(work.id, work.generation, seen).await?;
    fail_point::CONCLUDE_AFTER_COMMIT.pass();
    if let Some(changed) = changed {
        app.beats.forget(work.node_id);
        app.announce(changed);
    }
    Ok(Looked::Done)
}

/// After an observation of `node`.
pub(crate) fn announce(app: &App, node: NodeId, changed: Option<crate::store::sandbox_changes::Changed>) {
    if let Some(changed) = changed {
        // What was in order before may not be now.
        app.beats.forget(node);
        fail_point::OBSERVE_AFTER_COMMIT.pass();
        app.announce(changed);
    }
}

struct Running {
    cancel: CancellationToken,
    again: bool,
}

struct Controller {
    app: Arc<App>,
    tasks: Tasks,
    running: HashMap<SandboxId, Running>,
    permits: Arc<Semaphore>,
    done: mpsc::UnboundedSender<SandboxId>,
}

/// The loop. Ends at shutdown without waiting for its tasks: what they do is safe to break off.
pub(crate) async fn run(app: Arc<App>, tasks: Tasks, interval: Duration, concurrency: usize) {
    let (done, mut finished) = mpsc::unbounded_channel();
    let shutdown = tasks.shutdown_token();
    let permits = Arc::new(Semaphore::new(concurrency.max(1)));
    let mut controller = Controller { app: Arc::clone(&app), tasks, running: HashMap::new(), permits, done };
    let mut timer = tokio::time::interval(interval);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut all_due = false;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            nudged = app.nudges.take() => {
                for id in nudged {
                    controller.look(id).await;
                }
            }
            Some(id) = finished.recv() => controller.finished(id),
            _ = timer.tick() => {
                // What a process that is gone had taken is not worked on by anybody.
                if !all_due {
                    all_due = record("sandboxes", app.store.trigger_all_due().await).is_some();
                }
                let due = record("sandboxes", app.store.trigger_take(BATCH, AGAIN_MS).await);
                for id in due.unwrap_or_default() {
                    controller.look(id).await;
                }
            }
        }
    }
}

impl Controller {
    async fn look(&mut self, id: SandboxId) {
        if let Some(running) = self.running.get_mut(&id) {
            running.again = true;
            // Only a deletion is worth breaking off what runs.
            let work = self.app.store.sandbox_work(id).await;
            if matches!(work, Ok(Some(work)) if work.desired == Desired::Deleted) {
                running.cancel.cancel();
            }
            return;
        }
        self.start(id);
    }

    fn start(&mut self, id: SandboxId) {
        let cancel = self.tasks.shutdown_token().child_token();
        self.running.insert(id, Running { cancel: cancel.clone(), again: false });
        let (app, permits, done) = (Arc::clone(&self.app), Arc::clone(&self.permits), self.done.clone());
        self.tasks.spawn("reconcile sandbox", async move {
            let work = async {
                let looked = {
                    let Ok(_permit) = permits.acquire().await else { return };
                    record("sandboxes", reconcile(&app, id).await)
                };
                if looked == Some(Looked::Again) {
                    tokio::time::sleep(SOON).await;
                    app.nudges.nudge(id);
                }
            };
            cancel.run_until_cancelled(work).await;
            // The loop may be gone at shutdown.
            done.send(id).ok();
        });
    }

    fn finished(&mut self, id: SandboxId) {
        if self.running.remove(&id).is_some_and(|running| running.again) {
            self.start(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use space_types::{ByteSize, Digest, NodeId, TenantId};

    fn work(
        desired: Desired,
        observed: Observed,
        node_lost: bool,
        node_is_live: bool,
        age_ms: i64,
    ) -> SandboxWork {
        SandboxWork {
            id: SandboxId::new(),
            tenant_id: TenantId::new(),
            desired,
            observed,
            node_lost,
            generation: 1,
            age_ms,
            node_id: NodeId::new(),
            node_address: String::new(),
            node_is_live,
            fence: 1,
            vcpus: 1,
            memory: ByteSize::mib(128),
            disk: ByteSize::mib(64),
            env: std::collections::BTreeMap::new(),
            digest: Digest::from_sha256([0; 32]),
            location: String::new(),
            image_size: 4096,
        }
    }

    #[test]
    fn what_is_done_is_as_documented() {
        let seen = [
            Observed::Pending,
            Observed::Booting,
            Observed::Running,
            Observed::Stopped(Reason::GuestExit),
            Observed::Failed(Reason::VmmDied),
            Observed::Absent,
        ];
        let mut table = String::new();
        for desired in Desired::ALL {
            for observed in seen {
                for (label, lost, live, age) in [
                    ("live", false, true, 0),
                    ("live, old", false, true, 2000),
                    ("silent", false, false, 0),
                    ("lost", true, false, 0),
                ] {
                    let action = decide(&work(desired, observed, lost, live, age), Duration::from_secs(1));
                    writeln!(table, "{:<8} {:<8} {label:<10} {action:?}", desired.code(), observed.code())
                        .unwrap();
                }
            }
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn what_is_settled_needs_nothing_done() {
        for desired in Desired::ALL {
            for observed in [Observed::Pending, Observed::Booting, Observed::Running, Observed::Absent] {
                let action = decide(&work(desired, observed, false, true, 0), Duration::from_secs(1));
                let settled = crate::store::sandbox_changes::is_settled(desired, observed);
                assert_eq!(settled, action == Action::Nothing, "{desired:?} {observed:?}");
            }
        }
    }
}
