//! The node's workers: finds a tenant's, or makes its owner task.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use space_runtime::tasks::Tasks;
use space_types::{SandboxId, TenantId};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};

use super::{
    assign::Assignment,
    incarnation::WorkerContext,
    owner::{Command, WorkerOwner},
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum AssignError {
    #[error("the workers were stopped")]
    Stopped,
    #[error("no worker could be begun for the tenant")]
    NoWorker,
}

/// An owner may be leaving when it is asked, and so may its successor. More often than this it is that owners
/// can't begin, and their log says why.
const ATTEMPTS: u32 = 8;

/// Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Workers {
    context: Arc<WorkerContext>,
    tasks: Tasks,
    owners: Arc<Mutex<HashMap<TenantId, OwnerHandle>>>,
}

#[derive(Debug)]
struct OwnerHandle {
    commands: mpsc::Sender<Command>,
    address: watch::Receiver<Option<String>>,
    ended: JoinHandle<()>,
}

impl Workers {
    pub(crate) fn new(context: Arc<WorkerContext>, tasks: Tasks) -> Self {
        Self { context, tasks, owners: Arc::default() }
    }

    /// Gives the sandbox to its tenant's worker; answers the address that its commands will be served at.
    /// Again for the same sandbox: replaces what the worker knows of it.
    pub(crate) async fn assign(
        &self,
        tenant: TenantId,
        assignment: Assignment,
    ) -> Result<String, AssignError> {
        // An owner that had nothing left to do and is leaving drops what it gets; another follows it.
        for _ in 0..ATTEMPTS {
            if self.stopping() {
                return Err(AssignError::Stopped);
            }
            let (commands, mut address) = self.owner(tenant);
            let (taken, answer) = oneshot::channel();
            let command = Command::Assign { assignment: Box::new(assignment.clone()), taken };
            if commands.send(command).await.is_err() || answer.await.is_err() {
                continue;
            }
            let known = address.wait_for(Option::is_some).await.map_err(|_gone| AssignError::Stopped)?;
            return known.clone().ok_or(AssignError::Stopped);
        }
        Err(AssignError::NoWorker)
    }

    /// Starts the tenant's worker ahead of its first assignment.
    pub(crate) fn warm(&self, tenant: TenantId) {
        self.owner(tenant);
    }

    /// Takes the sandbox away from its worker; done when the worker was told.
    pub(crate) async fn release(&self, tenant: TenantId, sandbox: SandboxId) {
        let commands = self.lock().get(&tenant).map(|owner| owner.commands.clone());
        let Some(commands) = commands else { return };
        let (done, answer) = oneshot::channel();
        if commands.send(Command::Release { sandbox, done }).await.is_ok() {
            // An owner that ends meanwhile has released everything.
            drop(answer.await);
        }
    }

    fn owner(&self, tenant: TenantId) -> (mpsc::Sender<Command>, watch::Receiver<Option<String>>) {
        let mut owners = self.lock();
        let last = owners.remove(&tenant);
        let handle = match last {
            Some(handle) if !handle.commands.is_closed() => handle,
            last => self.start_owner(tenant, last.map(|last| last.ended)),
        };
        let answer = (handle.commands.clone(), handle.address.clone());
        owners.insert(tenant, handle);
        answer
    }

    fn start_owner(&self, tenant: TenantId, predecessor: Option<JoinHandle<()>>) -> OwnerHandle {
        let (commands, queue) = mpsc::channel(64);
        let (address_sender, address) = watch::channel(None);
        let shutdown = self.tasks.shutdown_token();
        let owner = WorkerOwner::new(Arc::clone(&self.context), tenant, queue, address_sender, shutdown);
        let (finished, ended) = oneshot::channel::<()>();
        self.tasks.spawn("worker", async move {
            if let Some(predecessor) = predecessor {
                // Its user and cgroup are ours next. That it panicked changes nothing about that.
                drop(predecessor.await);
            }
            owner.run().await;
            drop(finished);
        });
        let ended = tokio::spawn(async move { drop(ended.await) });
        OwnerHandle { commands, address, ended }
    }

    fn stopping(&self) -> bool {
        self.tasks.shutdown_token().is_cancelled()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<TenantId, OwnerHandle>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
