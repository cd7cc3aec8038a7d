//! What holds of every node, as tests that are written once: the contract of `proto/node.proto`, `proto/commands.proto`
//! and `proto/files.proto`.
//!
//! They run against the simulated node with the control plane's tests and against the real one, with its worker and a
//! real guest, in the privileged suite. Where the two differ, the simulation is wrong, and what was shown on it with it.
//!
//! Whatever the guest needs for the commands here are the programs `true`, `echo`, `cat` and `sleep`, and `/tmp`.

mod commands;
mod files;
mod sandboxes;

use std::time::Duration;

use space_node_proto::{
    commands::commands_client::CommandsClient,
    common::{ObservedSandbox, Phase},
    files::files_client::FilesClient,
    node::{EnsureSandboxRequest, RemoveSandboxRequest, node_client::NodeClient},
};
use space_types::{SandboxId, TenantId};
use tonic::{Code, Status, transport::Channel};

/// Long enough for an emulated processor.
const PATIENCE: Duration = Duration::from_mins(2);

/// A node that is to be tested, as control reaches it.
#[tonic::async_trait]
pub trait Subject: Sync {
    fn node(&self) -> NodeClient<Channel>;

    /// Makes a sandbox of this tenant run, generation 1, under the fence that the node goes by.
    fn request(&self, sandbox: SandboxId, tenant: TenantId) -> EnsureSandboxRequest;

    /// A tenant that the node can get a worker's certificate for.
    fn tenant(&self) -> TenantId;

    /// The worker that serves a sandbox of this tenant.
    async fn worker(&self, seen: &ObservedSandbox, tenant: TenantId) -> Channel;
}

/// All of it, one after the other; panics where the node does not conform.
pub async fn run(subject: &impl Subject) {
    sandboxes::run(subject).await;
    let running = Running::start(subject).await;
    commands::run(&running).await;
    files::run(&running).await;
    running.remove(subject).await;
}

/// Runs cases by name, so that a failure says which it was.
macro_rules! cases {
    ($argument:expr; $($case:ident),* $(,)?) => {
        $(
            eprintln!("conformance: {}", stringify!($case));
            $case($argument).await;
        )*
    };
}
use cases;

/// A sandbox that runs, and the clients of what serves it.
struct Running {
    id: String,
    generation: u64,
    fence: u64,
    worker: Channel,
}

impl Running {
    async fn start(subject: &impl Subject) -> Self {
        let (sandbox, tenant) = (SandboxId::new(), subject.tenant());
        let request = subject.request(sandbox, tenant);
        let fence = request.fence;
        let seen = within(subject.node().ensure_sandbox(request)).await.unwrap_or_else(fails);
        let seen = seen.into_inner();
        assert_eq!(seen.phase(), Phase::Running, "{seen:?}");
        let worker = subject.worker(&seen, tenant).await;
        Self { id: sandbox.to_string(), generation: 1, fence, worker }
    }

    fn commands(&self) -> CommandsClient<Channel> {
        CommandsClient::new(self.worker.clone())
    }

    fn files(&self) -> FilesClient<Channel> {
        FilesClient::new(self.worker.clone())
    }

    async fn remove(&self, subject: &impl Subject) {
        let request = RemoveSandboxRequest {
            sandbox_id: self.id.clone(),
            generation: self.generation + 1,
            fence: self.fence,
        };
        within(subject.node().remove_sandbox(request)).await.unwrap_or_else(fails);
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .unwrap_or_else(|_elapsed| panic!("no answer in {PATIENCE:?}"))
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in unwrap_or_else")]
fn fails<T>(status: Status) -> T {
    panic!("{status:?}")
}

/// The answer is this error, and its metadata says this word under `key`, where one is given.
#[track_caller]
fn refuses<T>(answer: Result<T, Status>, code: Code, word: Option<(&str, &str)>) {
    let Err(status) = answer else { panic!("it was done, where {code:?} is due") };
    assert_eq!(status.code(), code, "{status:?}");
    if let Some((key, word)) = word {
        let found = status.metadata().get(key).and_then(|value| value.to_str().ok());
        assert_eq!(found, Some(word), "{status:?}");
    }
}
