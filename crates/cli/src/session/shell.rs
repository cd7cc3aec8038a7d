//! A command of a sandbox on this terminal, as if it ran here.
//!
//! ```text
//!   keys ── `~.` taken out ──▶ the command's terminal         this one is raw meanwhile,
//!   its output ──▶ this terminal                              and as it was at every end
//!   this one's size ──▶ its size
//! ```
//! Ctrl-C and its kind are keys like any other. A lost connection is continued by the client: a line says so, and
//! nothing that was typed or put out is missing or there twice.

mod escape;
mod local;

use std::io::Write as _;

use space_api::{
    client::{Client, StreamConfig, Terminal, TerminalEvent},
    commands::{CreateCommand, WriteStdin},
    terminal::Wish,
};
use space_types::{CommandId, SandboxId};
use tokio::signal::unix::{SignalKind, signal};

use self::escape::{Escape, Typed};
use super::{Interrupts, stdin};
use crate::{error::CliError, output};

pub(crate) use local::LocalTerminal;

/// How the user got back to this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// The command ended, with this code.
    Exited(u8),
    /// The user left; the command goes on.
    Detached,
}

impl Left {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Detached => 0,
        }
    }
}

/// Runs a command on the terminal.
pub(crate) async fn run(
    client: &Client,
    sandbox: SandboxId,
    body: &CreateCommand,
    local: LocalTerminal,
    interrupts: &mut Interrupts,
) -> Result<Left, CliError> {
    body.validate()?;
    let command = client.command_create(sandbox, body).await?.command.id;
    let terminal = client.command_terminal(sandbox, command, 0, StreamConfig::default());
    Shell { sandbox, command, local, terminal }.follow(interrupts).await
}

/// Comes back to one that was left. What it put out and still remembers is shown again.
pub(crate) async fn attach(
    client: &Client,
    sandbox: SandboxId,
    command: CommandId,
    local: LocalTerminal,
    interrupts: &mut Interrupts,
) -> Result<Left, CliError> {
    // An empty write at the beginning is answered with how far things are.
    let asked = WriteStdin { offset: 0, data: Vec::new().into(), eof: false };
    let offset = client.stdin_write(sandbox, command, &asked).await?.next_offset;
    let terminal = client.command_terminal(sandbox, command, offset, StreamConfig::default());
    Shell { sandbox, command, local, terminal }.follow(interrupts).await
}

struct Shell {
    sandbox: SandboxId,
    command: CommandId,
    local: LocalTerminal,
    terminal: Terminal,
}

impl Shell {
    async fn follow(mut self, interrupts: &mut Interrupts) -> Result<Left, CliError> {
        let listen = |kind| signal(kind).map_err(anyhow::Error::from);
        let (mut resized, mut continued) =
            (listen(SignalKind::window_change())?, listen(SignalKind::from_raw(nix::libc::SIGCONT))?);
        let raw = self.local.make_raw()?;
        // It may have changed since the command was made.
        self.terminal.resize(self.local.size());
        let mut keys = stdin::read();
        let mut escape = Escape::default();
        loop {
            tokio::select! {
                event = self.terminal.next() => match event? {
                    Some(event) => if let Some(left) = show(event)? { return Ok(left) },
                    None => return Err(anyhow::anyhow!("the stream ended without the command's exit").into()),
                },
                piece = keys.recv(), if self.terminal.has_room() => match piece {
                    Some(Ok(keys)) => match escape.type_in(&keys) {
                        Typed::Keys(keys) => self.terminal.write(&keys),
                        Typed::Leave => return Ok(self.leave()),
                    },
                    // The terminal is gone. What runs in the sandbox is not its child, and goes on.
                    Some(Err(_)) | None => return Ok(Left::Detached),
                },
                _ = resized.recv() => self.terminal.resize(self.local.size()),
                _ = continued.recv() => {
                    // Whoever stopped this process has had the terminal in between.
                    raw.renew();
                    self.terminal.resize(self.local.size());
                }
                signal = interrupts.next() => {
                    return Ok(Left::Exited(u8::try_from(128 + signal.number()).unwrap_or(u8::MAX)));
                }
            }
        }
    }

    fn leave(&self) -> Left {
        say(&format!("left; `space shell {} --attach {}` comes back", self.sandbox, self.command));
        Left::Detached
    }
}

fn show(event: TerminalEvent) -> Result<Option<Left>, CliError> {
    match event {
        TerminalEvent::Output { data, .. } => {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(&data).and_then(|()| stdout.flush()).map_err(anyhow::Error::from)?;
        }
        TerminalEvent::Gap(gap) => {
            say(&format!("lost {} bytes of output: they came faster than they were read", gap.stdout_bytes));
        }
        TerminalEvent::Exit(exit) => {
            if let Some(error) = &exit.error {
                say(&format!("cannot start the command: {}", output::plain(error)));
            } else if exit.timed_out {
                say("the command's time was up");
            }
            let code = u8::try_from(exit.shell_status() & 0xff).unwrap_or(u8::MAX);
            return Ok(Some(Left::Exited(code)));
        }
        TerminalEvent::Lost => say("the connection is lost; trying again"),
        TerminalEvent::Back => say("connected again"),
        TerminalEvent::Refused { wish: Wish::Input, problem } => {
            say(&format!("nothing more can be typed: {}", output::plain(&problem.detail)));
        }
        // The next size or signal is as good as this one.
        TerminalEvent::Refused { wish: Wish::Resize | Wish::Signal, .. } | TerminalEvent::Started { .. } => {}
    }
    Ok(None)
}

/// A line of our own on a raw terminal, wherever its cursor is.
fn say(text: &str) {
    eprint!("\r\nspace: {text}\r\n");
}
