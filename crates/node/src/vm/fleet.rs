//! Finds the owner task of a sandbox, or makes one.
//!
//! An owner that has nothing left to own ends by itself. A request that it did not take is then given to a
//! successor, which reads what it needs to know (a tombstone, say) from the journal.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use space_node_proto::{common::ObservedSandbox, node::SandboxConfig};
use space_runtime::tasks::Tasks;
use space_types::{SandboxId, TenantId};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use super::{
    NodeContext, Survivor, VmError,
    driver::{Command, Driver},
};

/// An owner may be leaving when it is asked, and so may its successor; more often than this it is something else.
const ATTEMPTS: u32 = 8;

/// What control wants to run.
#[derive(Debug, Clone)]
pub(crate) struct Ensure {
    pub(crate) sandbox: SandboxId,
    pub(crate) tenant: TenantId,
    pub(crate) generation: u64,
    pub(crate) config: SandboxConfig,
}

/// Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Fleet {
    node: Arc<NodeContext>,
    tasks: Tasks,
    owners: Arc<Mutex<HashMap<SandboxId, Owner>>>,
}

#[derive(Debug)]
struct Owner {
    commands: mpsc::Sender<Command>,
    ended: JoinHandle<()>,
}

impl Fleet {
    pub(crate) fn new(node: Arc<NodeContext>, tasks: Tasks) -> Self {
        Self { node, tasks, owners: Arc::default() }
    }

    /// Makes the sandbox run; answers when its agent has answered or it is known that it can't. Dropping the
    /// call leaves the boot going: the next one joins it.
    pub(crate) async fn ensure(&self, ensure: Ensure) -> Result<ObservedSandbox, VmError> {
        let sandbox = ensure.sandbox;
        self.ask(sandbox, |reply| Command::Ensure { ensure: Box::new(ensure.clone()), reply }).await
    }

    /// Removes every trace. As above.
    pub(crate) async fn remove(&self, sandbox: SandboxId, generation: u64) -> Result<(), VmError> {
        self.ask(sandbox, |reply| Command::Remove { generation, reply }).await
    }

    /// An owner for a VM that was found alive.
    pub(crate) fn adopt(&self, sandbox: SandboxId, survivor: Survivor) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.insert(sandbox, self.start(sandbox, Some(survivor), None));
    }

    pub(crate) fn all(&self) -> Vec<ObservedSandbox> {
        self.node.observations.all()
    }

    async fn ask<T>(
        &self,
        sandbox: SandboxId,
        command: impl Fn(oneshot::Sender<Result<T, VmError>>) -> Command,
    ) -> Result<T, VmError> {
        for _ in 0..ATTEMPTS {
            if self.tasks.shutdown_token().is_cancelled() {
                return Err(VmError::Stopping);
            }
            let (reply, answer) = oneshot::channel();
            if self.owner(sandbox).send(command(reply)).await.is_err() {
                continue;
            }
            if let Ok(answered) = answer.await {
                return answered;
            }
        }
        // Owners can't begin, and their log says why; or they were stopped.
        Err(if self.tasks.shutdown_token().is_cancelled() { VmError::Stopping } else { VmError::Internal })
    }

    fn owner(&self, sandbox: SandboxId) -> mpsc::Sender<Command> {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = match owners.remove(&sandbox) {
            Some(owner) if !owner.commands.is_closed() => owner,
            last => self.start(sandbox, None, last.map(|last| last.ended)),
        };
        let commands = owner.commands.clone();
        owners.insert(sandbox, owner);
        // Owners that ended are swept here, so that the map holds no more than what is alive, roughly.
        if owners.len() > 64 && owners.len().is_power_of_two() {
            owners.retain(|id, owner| *id == sandbox || !owner.ended.is_finished());
        }
        commands
    }

    fn start(
        &self,
        sandbox: SandboxId,
        survivor: Option<Survivor>,
        predecessor: Option<JoinHandle<()>>,
    ) -> Owner {
        let (commands, queue) = mpsc::channel(16);
        let driver = Driver::new(Arc::clone(&self.node), sandbox, queue, self.tasks.shutdown_token());
        let (finished, ended) = oneshot::channel::<()>();
        self.tasks.spawn("sandbox", async move {
            if let Some(predecessor) = predecessor {
                // That it panicked changes nothing about what the journal says.
                drop(predecessor.await);
            }
            driver.run(survivor).await;
            drop(finished);
        });
        let ended = tokio::spawn(async move { drop(ended.await) });
        Owner { commands, ended }
    }
}
