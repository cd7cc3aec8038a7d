//! Command sessions.

use space_types::{CommandId, SandboxId};

use super::{Client, ClientError, CommandStream, StreamConfig};
use crate::{
    Page, Signal,
    commands::{
        Attach, Command, CommandCreated, CreateCommand, ExecResult, SignalCommand, StdinWritten, WriteStdin,
    },
    sse::Position,
};

impl Client {
    /// Makes a command session without starting it.
    pub async fn command_create(
        &self,
        sandbox: SandboxId,
        body: &CreateCommand,
    ) -> Result<CommandCreated, ClientError> {
        self.post(&format!("/v1/sandboxes/{sandbox}/commands"), body).await
    }

    pub async fn command_list(&self, sandbox: SandboxId) -> Result<Page<Command>, ClientError> {
        self.get(&format!("/v1/sandboxes/{sandbox}/commands")).await
    }

    pub async fn command_get(&self, sandbox: SandboxId, command: CommandId) -> Result<Command, ClientError> {
        self.get(&format!("/v1/sandboxes/{sandbox}/commands/{command}")).await
    }

    /// Runs a short command to its end and answers its output at once. The answer comes when it has ended, so
    /// give long ones a stream instead.
    pub async fn command_run(
        &self,
        sandbox: SandboxId,
        body: &CreateCommand,
    ) -> Result<ExecResult, ClientError> {
        self.post(&format!("/v1/sandboxes/{sandbox}/exec"), body).await
    }

    /// Makes a command, starts it, and streams its events: `Command` first, `Exit` last.
    pub fn command_exec(
        &self,
        sandbox: SandboxId,
        body: &CreateCommand,
        config: StreamConfig,
    ) -> Result<CommandStream, ClientError> {
        CommandStream::exec(self.clone(), &format!("/v1/sandboxes/{sandbox}/exec"), body, config)
    }

    /// Streams a command's events after `position`, or all that are kept; starts it if it has not started.
    pub fn command_attach(
        &self,
        attach: &Attach,
        position: Option<Position>,
        config: StreamConfig,
    ) -> CommandStream {
        CommandStream::attach(self.clone(), attach, position, config)
    }

    /// Writes to standard input. Where the answer's `next_offset` is less than what was sent, send the rest.
    pub async fn stdin_write(
        &self,
        sandbox: SandboxId,
        command: CommandId,
        body: &WriteStdin,
    ) -> Result<StdinWritten, ClientError> {
        self.post(&format!("/v1/sandboxes/{sandbox}/commands/{command}/stdin"), body).await
    }

    pub async fn command_signal(
        &self,
        sandbox: SandboxId,
        command: CommandId,
        signal: Signal,
    ) -> Result<(), ClientError> {
        let body = SignalCommand { signal };
        self.post_unanswered(&format!("/v1/sandboxes/{sandbox}/commands/{command}/signal"), &body).await
    }
}
