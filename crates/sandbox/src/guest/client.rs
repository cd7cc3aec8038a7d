//! What the worker's service has of a guest. Cheap to clone; every call has a deadline.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use space_guest_proto::{
    Reply, Request,
    message::{AttachCommandRequest, RefusalCode},
};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::timeout,
};

use super::{
    Fate,
    check::Broken,
    stream::{CommandStream, Feed},
};

#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CallError {
    /// The guest said no. The text is the guest's, made printable.
    #[error("{message}")]
    Refused { code: RefusalCode, message: String },
    #[error("the guest does not answer")]
    Silent,
    #[error("the connection to the guest was lost; whether the request was carried out is not known")]
    Lost,
    #[error("too many requests or readers in this sandbox")]
    TooMany,
    #[error("the request is too large for the guest")]
    TooLarge,
    #[error("{}", .0.text())]
    Ended(Fate),
}

/// To the owner task.
#[derive(Debug)]
pub(crate) enum GuestCall {
    Request {
        request: Request,
        answer: oneshot::Sender<Result<Reply, CallError>>,
    },
    Attach {
        request: AttachCommandRequest,
        feed: Feed,
        opened: oneshot::Sender<Result<(), CallError>>,
    },
    /// A caller saw that the guest's replies contradict each other.
    Accuse(Broken),
}

#[derive(Debug, Clone)]
pub(crate) struct GuestClient {
    pub(super) calls: mpsc::Sender<GuestCall>,
    pub(super) wake: Arc<Notify>,
    pub(super) fate: Arc<OnceLock<Fate>>,
    pub(super) deadline: Duration,
}

impl GuestClient {
    /// Asks once. A request that may be repeated is, if the connection is lost meanwhile.
    pub(crate) async fn call(&self, request: impl Into<Request>) -> Result<Reply, CallError> {
        let (answer, answered) = oneshot::channel();
        self.ask(GuestCall::Request { request: request.into(), answer }, answered).await
    }

    /// Opens a reader.
    pub(crate) async fn attach(&self, request: AttachCommandRequest) -> Result<CommandStream, CallError> {
        let (opened, is_open) = oneshot::channel();
        let (feed, stream) = CommandStream::new(Arc::clone(&self.wake));
        self.ask(GuestCall::Attach { request, feed, opened }, is_open).await?;
        Ok(stream)
    }

    /// Ends the sandbox's connection: its guest lies.
    pub(crate) async fn accuse(&self, broken: Broken) {
        // An owner that is gone has found out itself.
        drop(self.calls.send(GuestCall::Accuse(broken)).await);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.calls.is_closed()
    }

    async fn ask<T>(
        &self,
        call: GuestCall,
        answered: oneshot::Receiver<Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let asked = async {
            if self.calls.send(call).await.is_err() {
                return Err(self.ended());
            }
            answered.await.unwrap_or_else(|_dropped| Err(self.ended()))
        };
        timeout(self.deadline, asked).await.unwrap_or(Err(CallError::Silent))
    }

    fn ended(&self) -> CallError {
        CallError::Ended(self.fate.get().copied().unwrap_or(Fate::Released))
    }
}
