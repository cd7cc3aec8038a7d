//! What a simulated node holds.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use space_node_proto::{
    common::{ObservedSandbox, Phase},
    files::FileChange,
    node::{EnsureSandboxRequest, RemoveSandboxRequest},
};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tonic::{Status, transport::Channel};

use super::{
    chaos::{Chaos, Fate},
    disk::Root,
    script::Session,
    start_worker,
};

/// How `EnsureSandbox` goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// The sandbox runs.
    Run,
    /// It fails with this reason.
    Fail(&'static str),
    /// The node has no room.
    Exhausted,
    /// The call fails.
    Unavailable,
    /// It never answers.
    Hang,
}

#[derive(Debug, Clone)]
struct SimSandbox {
    tenant: String,
    report: ObservedSandbox,
}

#[derive(Default)]
struct Inner {
    behaviour: Option<Behaviour>,
    sandboxes: BTreeMap<String, SimSandbox>,
    /// The generations that sandboxes were removed under.
    tombs: BTreeMap<String, u64>,
    /// The highest that was seen.
    fence: u64,
    workers: HashMap<String, (String, CancellationToken)>,
    sessions: BTreeMap<(String, String), Arc<Session>>,
    ensured: usize,
    removed: usize,
    commands: usize,
    roots: BTreeMap<String, tempfile::TempDir>,
    listeners: HashMap<(String, u32), SocketAddr>,
}

impl Inner {
    fn pass_fence(&mut self, fence: u64) -> Result<(), Status> {
        if fence < self.fence {
            return Err(Status::failed_precondition("an older fence"));
        }
        self.fence = fence;
        Ok(())
    }
}

fn stale() -> Status {
    Status::failed_precondition("an older generation")
}

pub(super) struct State {
    registry: Channel,
    inner: Mutex<Inner>,
    changes: broadcast::Sender<(String, FileChange)>,
    file_bytes: AtomicUsize,
    chaos: Chaos,
    /// How often the machine was started.
    boots: AtomicUsize,
    /// One worker a tenant, also when two sandboxes come at once.
    starting: tokio::sync::Mutex<()>,
}

impl State {
    pub(super) fn new(registry: Channel) -> Arc<Self> {
        Arc::new(Self {
            registry,
            inner: Mutex::default(),
            changes: broadcast::channel(64).0,
            file_bytes: AtomicUsize::new(0),
            chaos: Chaos::default(),
            boots: AtomicUsize::new(1),
            starting: tokio::sync::Mutex::default(),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The root of a sandbox's files, made when it is first asked for.
    pub(super) fn files(&self, sandbox: &str) -> std::io::Result<Root> {
        let mut inner = self.inner();
        if !inner.roots.contains_key(sandbox) {
            inner.roots.insert(sandbox.to_owned(), tempfile::tempdir()?);
        }
        let directory = inner.roots.get(sandbox).map(|root| root.path().to_owned()).unwrap_or_default();
        Root::new(sandbox, &directory)
    }

    pub(super) fn listen(&self, sandbox: &str, port: u16, address: SocketAddr) {
        self.inner().listeners.insert((sandbox.to_owned(), port.into()), address);
    }

    pub(super) fn close_port(&self, sandbox: &str, port: u16) {
        self.inner().listeners.remove(&(sandbox.to_owned(), port.into()));
    }

    /// What serves a port of a sandbox.
    pub(super) fn listener(&self, sandbox: &str, port: u32) -> Option<SocketAddr> {
        self.inner().listeners.get(&(sandbox.to_owned(), port)).copied()
    }

    /// What happens to files, by sandbox.
    pub(super) fn changes(&self) -> &broadcast::Sender<(String, FileChange)> {
        &self.changes
    }

    /// Adds bytes that were read; all of them so far.
    pub(super) fn count_file_bytes(&self, bytes: usize) -> usize {
        self.file_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    pub(super) fn registry(&self) -> Channel {
        self.registry.clone()
    }

    pub(super) fn behave(&self, behaviour: Behaviour) {
        self.inner().behaviour = Some(behaviour);
    }

    pub(super) fn reports(&self) -> Vec<ObservedSandbox> {
        self.inner().sandboxes.values().map(|sandbox| sandbox.report.clone()).collect()
    }

    pub(super) fn calls(&self) -> (usize, usize) {
        let inner = self.inner();
        (inner.ensured, inner.removed)
    }

    pub(super) fn command_count(&self) -> usize {
        self.inner().commands
    }

    /// Disturbs calls by this seed from now on, or no more.
    pub(super) fn disturb(&self, seed: Option<u64>) {
        self.chaos.seed(seed);
    }

    /// What becomes of the next call.
    pub(super) fn fate(&self) -> Fate {
        self.chaos.fate()
    }

    /// Which boot of the machine this is.
    pub(super) fn boot(&self) -> String {
        format!("boot-{}", self.boots.load(Ordering::Relaxed))
    }

    /// The machine starts anew, without any of its sandboxes.
    pub(super) fn crash(&self) {
        self.boots.fetch_add(1, Ordering::Relaxed);
        let sandboxes: Vec<String> = self.inner().sandboxes.keys().cloned().collect();
        for sandbox in sandboxes {
            self.remove(&sandbox);
        }
    }

    /// Takes the fence and orders the request by its generation; the answer, if there is nothing to do.
    pub(super) fn admit_ensure(
        &self,
        request: &EnsureSandboxRequest,
    ) -> Result<Option<ObservedSandbox>, Status> {
        let mut inner = self.inner();
        inner.ensured += 1;
        inner.pass_fence(request.fence)?;
        if inner.tombs.get(&request.sandbox_id).is_some_and(|removed| request.generation <= *removed) {
            return Err(stale());
        }
        let Some(found) = inner.sandboxes.get_mut(&request.sandbox_id) else { return Ok(None) };
        let has_ended = !matches!(found.report.phase(), Phase::Running | Phase::Booting);
        match request.generation.cmp(&found.report.generation) {
            std::cmp::Ordering::Less => return Err(stale()),
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater if has_ended => {
                return Err(Status::failed_precondition("the sandbox has ended"));
            }
            std::cmp::Ordering::Greater => {
                found.report.generation = request.generation;
                found.report.sequence += 1;
            }
        }
        Ok(Some(found.report.clone()))
    }

    pub(super) fn remove_for(&self, request: &RemoveSandboxRequest) -> Result<(), Status> {
        {
            let mut inner = self.inner();
            inner.pass_fence(request.fence)?;
            if let Some(found) = inner.sandboxes.get(&request.sandbox_id) {
                if found.report.generation > request.generation {
                    return Err(stale());
                }
                inner.tombs.insert(request.sandbox_id.clone(), request.generation);
            }
            inner.removed += 1;
        }
        self.remove(&request.sandbox_id);
        Ok(())
    }

    /// How the making of a sandbox goes.
    pub(super) fn begin_ensure(&self) -> Behaviour {
        self.inner().behaviour.unwrap_or(Behaviour::Run)
    }

    pub(super) fn find(&self, sandbox: &str) -> Option<ObservedSandbox> {
        self.inner().sandboxes.get(sandbox).map(|sandbox| sandbox.report.clone())
    }

    pub(super) fn insert(
        &self,
        request: &EnsureSandboxRequest,
        phase: Phase,
        reason: &str,
        address: &str,
    ) -> Result<ObservedSandbox, Status> {
        let report = ObservedSandbox {
            sandbox_id: request.sandbox_id.clone(),
            generation: request.generation,
            sequence: 1,
            phase: phase.into(),
            reason: reason.to_owned(),
            message: String::new(),
            data_address: address.to_owned(),
            agent_version: "sim".to_owned(),
            vmm_version: "sim".to_owned(),
            started_at_ms: 1,
        };
        let mut inner = self.inner();
        // Removed while it was made.
        if inner.tombs.get(&request.sandbox_id).is_some_and(|removed| request.generation <= *removed) {
            return Err(Status::aborted("removed meanwhile"));
        }
        let sandbox = SimSandbox { tenant: request.tenant_id.clone(), report };
        let sandbox = inner.sandboxes.entry(request.sandbox_id.clone()).or_insert(sandbox);
        Ok(sandbox.report.clone())
    }

    pub(super) fn remove(&self, sandbox: &str) {
        let mut inner = self.inner();
        inner.sandboxes.remove(sandbox);
        for (_, session) in inner.sessions.iter().filter(|((of, _), _)| of == sandbox) {
            session.close();
        }
        inner.sessions.retain(|(of, _), _| of != sandbox);
    }

    pub(super) fn change(&self, sandbox: &str, phase: Phase, reason: &str) -> Option<ObservedSandbox> {
        let mut inner = self.inner();
        let found = inner.sandboxes.get_mut(sandbox)?;
        found.report.sequence += 1;
        found.report.phase = phase.into();
        reason.clone_into(&mut found.report.reason);
        Some(found.report.clone())
    }

    /// The address of a tenant's worker, started if there is none.
    pub(super) async fn worker(
        self: &Arc<Self>,
        tenant: &str,
        stop: &CancellationToken,
    ) -> Result<String, Status> {
        let _one = self.starting.lock().await;
        if let Some((address, _)) = self.inner().workers.get(tenant) {
            return Ok(address.clone());
        }
        let (address, ends) = start_worker(self, tenant, stop).await?;
        self.inner().workers.insert(tenant.to_owned(), (address.clone(), ends));
        Ok(address)
    }

    pub(super) async fn restart_workers(
        self: &Arc<Self>,
        stop: &CancellationToken,
    ) -> Result<Vec<ObservedSandbox>, Status> {
        let old = std::mem::take(&mut self.inner().workers);
        for (_, ends) in old.values() {
            ends.cancel();
        }
        let mut reports = Vec::new();
        for tenant in old.keys() {
            let address = self.worker(tenant, stop).await?;
            for sandbox in self.inner().sandboxes.values_mut().filter(|sandbox| sandbox.tenant == *tenant) {
                sandbox.report.sequence += 1;
                sandbox.report.data_address.clone_from(&address);
                reports.push(sandbox.report.clone());
            }
        }
        Ok(reports)
    }

    pub(super) fn session(&self, sandbox: &str, command: &str) -> Option<Arc<Session>> {
        self.inner().sessions.get(&(sandbox.to_owned(), command.to_owned())).cloned()
    }

    pub(super) fn sessions(&self, sandbox: &str) -> Vec<Arc<Session>> {
        self.inner()
            .sessions
            .iter()
            .filter(|((of, _), _)| of == sandbox)
            .map(|(_, session)| Arc::clone(session))
            .collect()
    }

    pub(super) fn add_session(&self, sandbox: &str, command: &str, session: Arc<Session>) -> Arc<Session> {
        let mut inner = self.inner();
        inner.commands += 1;
        inner.sessions.insert((sandbox.to_owned(), command.to_owned()), Arc::clone(&session));
        session
    }
}
