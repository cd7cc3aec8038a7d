//! What a worker is told about a sandbox, and what it may say about one.

use std::{collections::HashMap, sync::Arc};

use camino::Utf8PathBuf;
use space_node_proto::worker::{Assign, HintKind, UnreadyReason};
use space_types::SandboxId;
use tokio::sync::mpsc;

use crate::disk::JailDir;

/// One sandbox as its worker needs it.
#[derive(Debug, Clone)]
pub(crate) struct Assignment {
    pub(crate) sandbox: SandboxId,
    pub(crate) generation: u64,
    pub(crate) hostname: String,
    pub(crate) env: HashMap<String, String>,
    /// No worker has had it before.
    pub(crate) fresh: bool,
    pub(crate) console: Utf8PathBuf,
    pub(crate) spool: Utf8PathBuf,
    pub(crate) jail: Arc<JailDir>,
    pub(crate) events: mpsc::Sender<WorkerEvent>,
}

/// What a worker said about a sandbox of its own, under the generation that it was assigned with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WorkerEvent {
    Ready { agent_version: String },
    Unready(UnreadyReason),
    Hint(HintKind),
}

impl Assignment {
    pub(super) fn message(&self) -> Assign {
        Assign {
            sandbox_id: self.sandbox.to_string(),
            generation: self.generation,
            hostname: self.hostname.clone(),
            env: self.env.clone(),
            fresh: self.fresh,
        }
    }
}
