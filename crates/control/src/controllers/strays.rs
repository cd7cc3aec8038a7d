//! What a node holds and should not, and what it should hold and does not.
//!
//! A node reports all that lives there with each heartbeat. What control does not know, or knows to be deleted, the
//! node is told to remove. What control believes to be there and the node left out, it is asked about once more: the
//! list may be older than the sandbox. Only then is it written down as absent; it is never made anew, for a sandbox
//! with an empty disk is not the one that was lost.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use space_node_proto::common::ObservedSandbox;
use space_types::{NodeId, Observed, SandboxId};
use tokio::sync::Notify;

use super::{beats::Fingerprint, record};
use crate::{
    app::App,
    store::{
        StoreError,
        sandbox_changes::{Observation, Report, parse_report},
    },
};

#[derive(Debug, thiserror::Error)]
enum StrayError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the node does not answer")]
    Node(#[from] Box<tonic::Status>),
}

/// What is to be looked into, by node.
#[derive(Debug, Default)]
struct Suspects {
    unknown: HashMap<SandboxId, u64>,
    missing: HashSet<SandboxId>,
}

#[derive(Debug, Default)]
pub(crate) struct Strays {
    suspects: Mutex<HashMap<NodeId, Suspects>>,
    ready: Notify,
}

impl Strays {
    /// A node reported a sandbox that should not be there.
    pub(crate) fn unknown(&self, node: NodeId, id: SandboxId, generation: u64) {
        let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        suspects.entry(node).or_default().unknown.insert(id, generation);
        self.ready.notify_one();
    }

    /// A node did not report a sandbox that should be there.
    pub(crate) fn missing(&self, node: NodeId, id: SandboxId) {
        let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        suspects.entry(node).or_default().missing.insert(id);
        self.ready.notify_one();
    }

    async fn take(&self) -> HashMap<NodeId, Suspects> {
        loop {
            let taken = std::mem::take(&mut *self.suspects.lock().unwrap_or_else(PoisonError::into_inner));
            if !taken.is_empty() {
                return taken;
            }
            self.ready.notified().await;
        }
    }
}

/// The loop. What fails comes back with the next heartbeat.
pub(crate) async fn run(app: Arc<App>) {
    loop {
        for (node, suspects) in app.strays.take().await {
            record("strays", look(&app, node, suspects).await);
        }
    }
}

async fn look(app: &App, node: NodeId, suspects: Suspects) -> Result<(), StrayError> {
    let Some(contact) = app.store.node_contact(node).await? else { return Ok(()) };
    for (id, generation) in suspects.unknown {
        tracing::warn!(sandbox = %id, %node, "the node holds a sandbox that should not be there");
        // Above whatever the node has seen, so that it is not refused as old.
        let generation = generation.saturating_add(1);
        let removed = app.nodes.remove(&contact, id, generation, app.limits.remove_timeout).await;
        removed.map_err(Box::new)?;
        metrics::counter!("space_strays_removed_total").increment(1);
    }
    if suspects.missing.is_empty() {
        return Ok(());
    }
    let listed = app.nodes.list(&contact, app.limits.call_timeout).await.map_err(Box::new)?;
    let listed: HashSet<SandboxId> =
        listed.iter().filter_map(|report| report.sandbox_id.parse().ok()).collect();
    for id in suspects.missing.difference(&listed) {
        absent(app, node, *id).await?;
    }
    Ok(())
}

/// Written like a report of the node, after the last one that is known.
async fn absent(app: &App, node: NodeId, id: SandboxId) -> Result<(), StoreError> {
    let Some((generation, sequence)) = app.store.sandbox_seen(id).await? else { return Ok(()) };
    let seen = Observation {
        observed: Observed::Absent,
        generation,
        sequence: sequence.saturating_add(1),
        message: "the node holds nothing of it".to_owned(),
        data_address: String::new(),
        agent_version: String::new(),
        vmm_version: String::new(),
        started_at_ms: 0,
    };
    tracing::warn!(sandbox = %id, %node, "the node holds nothing of a sandbox that was there");
    let (_, changed) = app.store.sandbox_observe(node, id, &seen).await?;
    super::sandboxes::announce(app, node, changed);
    Ok(())
}

/// Compares the list of all that lives on a node with what is stored, unless that was done just now.
pub(crate) async fn listed(app: &App, node: NodeId, reports: &[ObservedSandbox]) -> Result<(), StoreError> {
    let (list, now) = (Fingerprint::of(reports), Instant::now());
    if !app.beats.is_news(node, &list) {
        return Ok(());
    }
    let Reported { present, mut in_order } = write_down(app, node, reports).await?;
    for id in app.store.node_sandboxes(node).await? {
        if !present.contains(&id) {
            in_order = false;
            app.strays.missing(node, id);
        }
    }
    if in_order {
        app.beats.in_order(node, now, list);
    } else {
        app.beats.forget(node);
    }
    Ok(())
}

/// Writes down changes that a node reports.
pub(crate) async fn reported(app: &App, node: NodeId, reports: &[ObservedSandbox]) -> Result<(), StoreError> {
    write_down(app, node, reports).await.map(drop)
}

struct Reported {
    present: HashSet<SandboxId>,
    /// Everything that is there may be there.
    in_order: bool,
}

async fn write_down(app: &App, node: NodeId, reports: &[ObservedSandbox]) -> Result<Reported, StoreError> {
    let mut parsed = Vec::with_capacity(reports.len());
    let mut in_order = true;
    for report in reports {
        if let Some(report) = parse_report(report) {
            parsed.push(report);
        } else {
            in_order = false;
            tracing::warn!(%node, phase = report.phase, "a node's report makes no sense");
        }
    }
    // Most of a list is old news, which one question finds out.
    let ids: Vec<SandboxId> = parsed.iter().map(|(id, _)| *id).collect();
    let known = app.store.sandbox_known(node, &ids).await?;
    let mut present = HashSet::new();
    for (id, seen) in parsed {
        if seen.observed != Observed::Absent {
            present.insert(id);
        }
        if known.get(&id).is_some_and(|known| *known >= (seen.generation, seen.sequence)) {
            continue;
        }
        let (outcome, changed) = app.store.sandbox_observe(node, id, &seen).await?;
        super::sandboxes::announce(app, node, changed);
        metrics::counter!("space_node_reports_total", "outcome" => outcome.code()).increment(1);
        if outcome != Report::Applied {
            in_order = false;
        }
        if outcome == Report::Unknown && seen.observed != Observed::Absent {
            app.strays.unknown(node, id, seen.generation);
        }
    }
    Ok(Reported { present, in_order })
}
