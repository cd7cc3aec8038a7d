//! Command sessions.

use space_types::{CommandId, SandboxId};

use super::{Client, ClientError, CommandStream, StreamConfig, Terminal};
use crate::{
    Page, Signal,
    commands::{
        Attach, Command, CommandCreated, CreateCommand, ExecResult, SignalCommand, StdinWritten, WriteStdin,
    },
    sse::Position,
    terminal::TerminalSize,
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

    /// As [`Self::command_attach`], for a command that was made by somebody else: with this client's key.
    pub fn command_follow(
        &self,
        sandbox: SandboxId,
        command: CommandId,
        position: Option<Position>,
        config: StreamConfig,
    ) -> CommandStream {
        let path = format!("/v1/sandboxes/{sandbox}/commands/{command}/attach");
        CommandStream::follow(self.clone(), path, position, config)
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

    /// Both directions of a command, on a terminal or not; starts it if it has not started. What is typed goes
    /// behind `input_offset`: 0 for a command that nobody has written to.
    pub fn command_terminal(
        &self,
        sandbox: SandboxId,
        command: CommandId,
        input_offset: u64,
        config: StreamConfig,
    ) -> Terminal {
        let path = format!("/v1/sandboxes/{sandbox}/commands/{command}/terminal");
        Terminal::new(self.clone(), path, input_offset, config)
    }

    pub async fn command_resize(
        &self,
        sandbox: SandboxId,
        command: CommandId,
        size: TerminalSize,
    ) -> Result<(), ClientError> {
        self.post_unanswered(&format!("/v1/sandboxes/{sandbox}/commands/{command}/resize"), &size).await
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
