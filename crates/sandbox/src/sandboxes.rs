//! The sandboxes that noded has assigned to this worker.

use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use space_node_proto::worker::{Assign, HintKind, Unready, UnreadyReason, from_worker};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};

use crate::{
    config::SandboxdConfig,
    console::{self, ConsoleTail},
    fail_point,
    guest::{Assignment, GuestClient, Owner, Setup, printable},
    job::{JobClient, JobPlaces},
    limits,
    metrics::Metrics,
    node::{NodeHandle, NodeRequest},
    spool::SpoolLimits,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FindError {
    #[error("no such sandbox on this worker")]
    NotFound,
    #[error("the sandbox has another generation")]
    Generation,
}

#[derive(Debug)]
struct Sandbox {
    generation: u64,
    client: GuestClient,
    jobs: JobClient,
    stop: CancellationToken,
}

/// What every sandbox's tasks are made with.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) node: mpsc::Sender<NodeRequest>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    pub(crate) boot_deadline: Duration,
    pub(crate) request_deadline: Duration,
    /// Room for jobs in all sandboxes.
    pub(crate) job_places: Arc<Semaphore>,
    /// Room for tunnels in all sandboxes.
    pub(crate) tunnel_places: Arc<Semaphore>,
    pub(crate) spool_limits: SpoolLimits,
}

impl Context {
    pub(crate) fn new(
        config: &SandboxdConfig,
        node: mpsc::Sender<NodeRequest>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            node,
            metrics,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            boot_deadline: config.boot_deadline,
            request_deadline: config.request_deadline,
            job_places: Arc::new(Semaphore::new(limits::WORKER_JOBS)),
            tunnel_places: Arc::new(Semaphore::new(limits::WORKER_TUNNELS)),
            spool_limits: config.spool_limits,
        }
    }
}

/// Written by the worker's loop, read by its service; no lock is held for longer than a look-up.
#[derive(Debug)]
pub(crate) struct Sandboxes {
    context: Context,
    served: Mutex<HashMap<String, Sandbox>>,
}

impl Sandboxes {
    pub(crate) fn new(context: Context) -> Self {
        Self { context, served: Mutex::default() }
    }

    /// Where what outlives a call is kept track of.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.context.tasks
    }

    /// What a client gets for the first message of a call, as a guest gets it for an answer.
    pub(crate) fn request_deadline(&self) -> Duration {
        self.context.request_deadline
    }

    pub(crate) fn find(&self, id: &str, generation: u64) -> Result<GuestClient, FindError> {
        let served = self.lock();
        let sandbox = served.get(id).ok_or(FindError::NotFound)?;
        if sandbox.generation == generation { Ok(sandbox.client.clone()) } else { Err(FindError::Generation) }
    }

    pub(crate) fn find_jobs(&self, id: &str, generation: u64) -> Result<JobClient, FindError> {
        let served = self.lock();
        let sandbox = served.get(id).ok_or(FindError::NotFound)?;
        if sandbox.generation == generation { Ok(sandbox.jobs.clone()) } else { Err(FindError::Generation) }
    }

    /// Begins to serve a sandbox. One that is served under this generation already is left alone; one under another
    /// generation is released first.
    pub(crate) fn assign(&self, assign: Assign, console: Option<OwnedFd>, spool: Option<OwnedFd>) {
        fail_point::ASSIGN_RECEIVED.pass();
        let mut served = self.lock();
        if let Some(old) = served.get(&assign.sandbox_id) {
            if old.generation == assign.generation && !old.client.has_ended() {
                return;
            }
            old.stop.cancel();
        }
        if served.len() >= limits::SANDBOXES && !served.contains_key(&assign.sandbox_id) {
            return self.refuse(assign);
        }
        let id = assign.sandbox_id.clone();
        let predecessor = served.get(&id).map(|old| old.client.clone());
        let sandbox = self.start(assign, console, spool, predecessor);
        served.insert(id, sandbox);
    }

    /// noded must not wait for the deadline of a sandbox that nobody has begun to serve.
    fn refuse(&self, assign: Assign) {
        warn!(sandbox_id = assign.sandbox_id, "refused a sandbox: the worker is full");
        let Assign { sandbox_id, generation, .. } = assign;
        let unready = Unready { sandbox_id, generation, reason: UnreadyReason::Silent.into() };
        if let Err(error) = self.context.node.try_send(NodeRequest::Tell(from_worker::Kind::Unready(unready)))
        {
            warn!(%error, "noded was not told");
        }
    }

    pub(crate) fn release(&self, id: &str) {
        fail_point::RELEASE_RECEIVED.pass();
        if let Some(sandbox) = self.lock().remove(id) {
            sandbox.stop.cancel();
        }
    }

    fn start(
        &self,
        assign: Assign,
        console: Option<OwnedFd>,
        spool: Option<OwnedFd>,
        predecessor: Option<GuestClient>,
    ) -> Sandbox {
        let Assign { sandbox_id, generation, hostname, env, fresh } = assign;
        info!(sandbox_id, generation, fresh, "serving a sandbox");
        let context = &self.context;
        let node = NodeHandle { requests: context.node.clone(), sandbox_id, generation };
        let stop = context.stop.child_token();
        let tail = ConsoleTail::default();
        if let Some(fifo) = console {
            let draining = drain(fifo, tail.clone(), node.clone());
            context.tasks.spawn(stop.clone().run_until_cancelled_owned(draining));
        } else {
            warn!(sandbox_id = node.sandbox_id, "a sandbox came without its console");
        }
        if spool.is_none() {
            warn!(sandbox_id = node.sandbox_id, "a sandbox came without its spool");
        }
        let assignment = Assignment { hostname, env: env.into_iter().collect(), fresh };
        let (owner, client) = Owner::new(Setup {
            assignment,
            node: node.clone(),
            metrics: Arc::clone(&context.metrics),
            boot_deadline: context.boot_deadline,
            request_deadline: context.request_deadline,
            spool,
            spool_limits: context.spool_limits,
        });
        context.tasks.spawn(own(owner, tail, stop.clone(), predecessor));
        let jobs = JobClient {
            node,
            guest: client.clone(),
            places: JobPlaces::new(limits::JOBS, &context.job_places),
            tunnel_places: JobPlaces::new(limits::TUNNELS, &context.tunnel_places),
            metrics: Arc::clone(&context.metrics),
            silence: context.request_deadline,
            stop: stop.clone(),
        };
        Sandbox { generation, client, jobs, stop }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Sandbox>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A predecessor under an older generation writes to the same spools until it has ended.
async fn own(owner: Owner, tail: ConsoleTail, stop: CancellationToken, predecessor: Option<GuestClient>) {
    if let Some(predecessor) = predecessor {
        predecessor.ended_wholly().await;
    }
    let id = owner.sandbox_id();
    owner.run(stop).await;
    let text = String::from_utf8_lossy(&tail.bytes()).into_owned();
    debug!(sandbox_id = id, console = printable(&text, limits::CONSOLE), "the sandbox's console, escaped");
}

/// Reads the console to its end, and tells noded of a panic.
async fn drain(fifo: OwnedFd, tail: ConsoleTail, node: NodeHandle) {
    let (told, mut panicked) = mpsc::channel(1);
    let panicked_now = move || {
        if let Err(error) = told.try_send(()) {
            debug!(%error, "nobody hears of a panic");
        }
    };
    let watching = console::watch(fifo, tail, panicked_now);
    let telling = async {
        if panicked.recv().await.is_some() {
            info!(sandbox_id = node.sandbox_id, "the guest's kernel panicked");
            node.hint(HintKind::Panic).await;
        }
    };
    let (watched, ()) = tokio::join!(watching, telling);
    if let Err(error) = watched {
        warn!(sandbox_id = node.sandbox_id, %error, "a console can't be read any more");
    }
}
