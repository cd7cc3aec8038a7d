//! What the worker's service has of a guest. Cheap to clone; every call has a deadline.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, OnceLock},
    time::Duration,
};

use space_guest_proto::{
    Reply, Request, limits as guest_limits,
    message::{
        AttachCommandRequest, Command, CommandState, CreateCommandRequest, ListCommandsRequest, RefusalCode,
    },
};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::{Fate, check::Broken};
use crate::{limits, spool::CommandStream};

/// What a list may hold beside the specifications.
const LIST_BYTES: usize = guest_limits::SPECS_BYTES + guest_limits::COMMANDS * 4096;

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
    #[error("the command's output can't be read back on this node")]
    Unreadable,
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
        opened: oneshot::Sender<Result<Opened, CallError>>,
    },
    /// Commands that the guest knows and that were started, with whether they run.
    Reconcile(HashMap<String, bool>),
    /// A caller saw that the guest's replies contradict each other.
    Accuse(Broken),
}

/// What became of an attach.
#[derive(Debug)]
pub(crate) enum Opened {
    Reading(CommandStream),
    /// It came with a specification, and there is a spool of that name: the guest has to compare.
    Exists,
}

#[derive(Debug, Clone)]
pub(crate) struct GuestClient {
    pub(super) calls: mpsc::Sender<GuestCall>,
    pub(super) fate: Arc<OnceLock<Fate>>,
    pub(super) deadline: Duration,
}

impl GuestClient {
    /// Asks once. A request that may be repeated is, if the connection is lost meanwhile.
    pub(crate) async fn call(&self, request: impl Into<Request>) -> Result<Reply, CallError> {
        let (answer, answered) = oneshot::channel();
        self.ask(GuestCall::Request { request: request.into(), answer }, answered).await
    }

    /// Opens a reader, and starts the command if it was not started. One round trip to the guest for a command that is
    /// new here, none for one whose output is spooled already.
    pub(crate) async fn attach(&self, mut request: AttachCommandRequest) -> Result<CommandStream, CallError> {
        if let Opened::Reading(stream) = self.open(request.clone()).await? {
            return Ok(stream);
        }
        let command_id = request.command_id.clone();
        self.call(CreateCommandRequest { command_id, spec: request.create.take() }).await?;
        match self.open(request).await? {
            Opened::Reading(stream) => Ok(stream),
            Opened::Exists => Err(CallError::Lost),
        }
    }

    async fn open(&self, request: AttachCommandRequest) -> Result<Opened, CallError> {
        let (opened, is_open) = oneshot::channel();
        self.ask(GuestCall::Attach { request, opened }, is_open).await
    }

    /// All commands, over all pages. A guest whose pages have no end, repeat themselves or hold more than it can
    /// remember is accused.
    pub(crate) async fn list(&self) -> Result<Vec<Command>, CallError> {
        if let Some(commands) = self.pages().await? {
            return Ok(commands);
        }
        self.accuse(Broken::List).await;
        Err(CallError::Ended(Fate::Protocol))
    }

    async fn pages(&self) -> Result<Option<Vec<Command>>, CallError> {
        let mut commands: Vec<Command> = Vec::new();
        let mut seen = HashSet::new();
        let mut bytes = 0;
        loop {
            let after_command_id = commands.last().map_or_else(String::new, |last| last.command_id.clone());
            let Reply::ListCommands(page) = self.call(ListCommandsRequest { after_command_id }).await? else {
                return Ok(None);
            };
            bytes += page.encoded_commands.iter().map(bytes::Bytes::len).sum::<usize>();
            let Ok(found) = page.commands() else { return Ok(None) };
            let empty = found.is_empty();
            for command in found {
                if !seen.insert(command.command_id.clone()) {
                    return Ok(None);
                }
                commands.push(command);
            }
            if commands.len() > guest_limits::COMMANDS || bytes > LIST_BYTES || (empty && page.more) {
                return Ok(None);
            }
            if !page.more {
                return Ok(Some(commands));
            }
        }
    }

    /// Tells the owner which commands the guest has, once it can be asked.
    pub(super) async fn reconcile(&self) {
        let commands = loop {
            match self.list().await {
                Ok(commands) => break commands,
                Err(CallError::Ended(_)) => return,
                // The deadline has passed, or the next connection will tell.
                Err(error) => tracing::debug!(%error, "the guest's commands are not known yet"),
            }
            tokio::time::sleep(limits::RECONCILE).await;
        };
        let started = commands.into_iter().filter(|command| command.state() != CommandState::Created);
        let known = started.map(|command| {
            let running = command.state() == CommandState::Running;
            (command.command_id, running)
        });
        drop(self.calls.send(GuestCall::Reconcile(known.collect())).await);
    }

    /// Ends the sandbox's connection: its guest lies.
    pub(crate) async fn accuse(&self, broken: Broken) {
        // An owner that is gone has found out itself.
        drop(self.calls.send(GuestCall::Accuse(broken)).await);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.calls.is_closed()
    }

    /// Waits until the owner is gone, and writes no spool any more.
    pub(crate) async fn ended_wholly(&self) {
        self.calls.closed().await;
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
