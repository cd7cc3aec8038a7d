//! What a sandbox's owner task asks noded for. The worker's own loop does the sending and matches answers.

use std::{io, os::fd::OwnedFd};

use space_node_proto::worker::{Hint, HintKind, Ready, Unready, UnreadyReason, from_worker};
use tokio::{
    net::UnixStream,
    sync::{mpsc, oneshot},
    time::timeout,
};

use crate::limits;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("the worker is leaving")]
    Leaving,
    #[error("noded does not answer")]
    Silent,
    /// Also while Firecracker's socket isn't there yet.
    #[error("noded can't connect: {0}")]
    Refused(String),
    #[error("noded's descriptor can't be used")]
    Descriptor(#[source] io::Error),
}

/// From an owner task to the worker's loop.
#[derive(Debug)]
pub(crate) enum NodeRequest {
    Connect { sandbox_id: String, answer: oneshot::Sender<Result<OwnedFd, String>> },
    Tell(from_worker::Kind),
}

/// One sandbox's way to noded.
#[derive(Debug, Clone)]
pub(crate) struct NodeHandle {
    pub(crate) requests: mpsc::Sender<NodeRequest>,
    pub(crate) sandbox_id: String,
    pub(crate) generation: u64,
}

impl NodeHandle {
    /// A new socket to this sandbox's Firecracker, connected and otherwise untouched. Cancel safe.
    pub(crate) async fn connect(&self) -> Result<UnixStream, ConnectError> {
        let (answer, answered) = oneshot::channel();
        let request = NodeRequest::Connect { sandbox_id: self.sandbox_id.clone(), answer };
        self.requests.send(request).await.ok().ok_or(ConnectError::Leaving)?;
        let descriptor = match timeout(limits::NODE_ANSWER, answered).await {
            Ok(Ok(answer)) => answer.map_err(ConnectError::Refused)?,
            Ok(Err(_dropped)) => return Err(ConnectError::Leaving),
            Err(_elapsed) => return Err(ConnectError::Silent),
        };
        let stream = std::os::unix::net::UnixStream::from(descriptor);
        stream.set_nonblocking(true).map_err(ConnectError::Descriptor)?;
        UnixStream::from_std(stream).map_err(ConnectError::Descriptor)
    }

    pub(crate) async fn ready(&self, agent_version: String) {
        let (sandbox_id, generation) = self.names();
        self.tell(from_worker::Kind::Ready(Ready { sandbox_id, generation, agent_version })).await;
    }

    pub(crate) async fn unready(&self, reason: UnreadyReason) {
        let (sandbox_id, generation) = self.names();
        self.tell(from_worker::Kind::Unready(Unready { sandbox_id, generation, reason: reason.into() }))
            .await;
    }

    pub(crate) async fn hint(&self, kind: HintKind) {
        let (sandbox_id, generation) = self.names();
        self.tell(from_worker::Kind::Hint(Hint { sandbox_id, generation, kind: kind.into() })).await;
    }

    fn names(&self) -> (String, u64) {
        (self.sandbox_id.clone(), self.generation)
    }

    /// Once the worker's loop has ended there is nobody left to tell.
    async fn tell(&self, message: from_worker::Kind) {
        drop(self.requests.send(NodeRequest::Tell(message)).await);
    }
}
