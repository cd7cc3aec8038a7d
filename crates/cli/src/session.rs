//! One command of a sandbox at this terminal: its output here, this standard input there, signals across.
//!
//! ```text
//!   stream ──stdout, stderr──▶ this process's        first Ctrl-C ──INT──▶ the command
//!   standard input ──stdin──▶ the command            second ──▶ this client ends
//! ```
//!
//! A lost connection is continued by the stream itself; output appears once and in order.

pub(crate) mod detach;
mod interrupts;
mod render;
pub(crate) mod shell;
mod stdin;

use std::io::IsTerminal;

use space_api::{
    Signal,
    client::{Client, CommandStream, StreamConfig},
    commands::Exit,
    sse::CommandEvent,
};
use space_types::{CommandId, SandboxId};
use tokio::task::JoinSet;

use crate::{
    args::{CommandArgs, GlobalArgs},
    error::CliError,
};

pub(crate) use interrupts::Interrupts;
pub(crate) use render::Renderer;

/// Exit code when the user ends the client: that of a process killed by INT.
pub(crate) const INTERRUPTED: u8 = 130;
/// Exit code when whoever reads our output has gone: that of a process killed by PIPE.
pub(crate) const READER_GONE: u8 = 141;

/// Runs `argv` and answers its exit code as a shell would.
pub(crate) async fn run(
    client: &Client,
    global: &GlobalArgs,
    sandbox: SandboxId,
    args: &CommandArgs,
    argv: &[String],
    interrupts: &mut Interrupts,
) -> Result<u8, CliError> {
    let forward = !args.no_stdin && (args.interactive || !std::io::stdin().is_terminal());
    let body = args.body(argv, forward);
    body.validate()?;
    let stream = client.command_exec(sandbox, &body, StreamConfig::default())?;
    let session = Session {
        client: client.clone(),
        sandbox,
        forward,
        command: None,
        renderer: Renderer::new(global.json),
        tasks: JoinSet::new(),
    };
    session.follow(stream, interrupts).await
}

/// Linux exit statuses have eight bits, whatever a guest says.
pub(crate) fn shell_code(exit: &Exit) -> u8 {
    u8::try_from(exit.shell_status() & 0xff).unwrap_or(u8::MAX)
}

struct Session {
    client: Client,
    sandbox: SandboxId,
    forward: bool,
    /// Known from the first event on.
    command: Option<CommandId>,
    renderer: Renderer,
    /// Forwarding and signals; aborted when the session is dropped.
    tasks: JoinSet<()>,
}

impl Session {
    async fn follow(
        mut self,
        mut stream: CommandStream,
        interrupts: &mut Interrupts,
    ) -> Result<u8, CliError> {
        let mut interrupted = false;
        loop {
            tokio::select! {
                event = stream.next() => match event? {
                    Some(event) => if let Some(code) = self.take(&stream, event)? { return Ok(code) },
                    None => return Err(anyhow::anyhow!("the stream ended without the command's exit").into()),
                },
                signal = interrupts.next() => {
                    // Before the command has a name there is nothing to interrupt but ourselves.
                    if interrupted || self.command.is_none() {
                        return Ok(INTERRUPTED);
                    }
                    interrupted = true;
                    self.send(signal);
                }
            }
        }
    }

    /// Shows one event; the exit code once there is one.
    fn take(&mut self, stream: &CommandStream, event: CommandEvent) -> Result<Option<u8>, CliError> {
        if !self.renderer.show(stream.position(), &event)? {
            return Ok(Some(READER_GONE));
        }
        match event {
            CommandEvent::Command(created) => self.named(created.command.id),
            CommandEvent::Exit(exit) => return Ok(Some(shell_code(&exit))),
            CommandEvent::Started(_)
            | CommandEvent::Stdout(_)
            | CommandEvent::Stderr(_)
            | CommandEvent::Gap(_)
            | CommandEvent::Error(_) => {}
        }
        Ok(None)
    }

    fn named(&mut self, command: CommandId) {
        self.command = Some(command);
        if self.forward {
            let (client, sandbox) = (self.client.clone(), self.sandbox);
            self.tasks.spawn(async move {
                if let Err(error) = stdin::forward(&client, sandbox, command).await {
                    error.report(false);
                }
            });
        }
    }

    fn send(&mut self, signal: Signal) {
        let Some(command) = self.command else { return };
        let (client, sandbox) = (self.client.clone(), self.sandbox);
        self.tasks.spawn(async move {
            if let Err(error) = client.command_signal(sandbox, command, signal).await {
                CliError::from(error).report(false);
            }
        });
    }
}
