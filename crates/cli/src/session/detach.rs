//! A command that is started and left: it lives in its sandbox, and reading its stream is not what keeps it going.

use space_api::{
    client::{Client, StreamConfig},
    sse::CommandEvent,
};
use space_types::{CommandId, SandboxId};

use super::{INTERRUPTED, Interrupts, Renderer, shell_code};
use crate::{
    args::{CommandArgs, GlobalArgs},
    error::CliError,
    output,
};

/// What became of it.
pub(crate) enum Detached {
    /// It was started, and may run still.
    Started(CommandId),
    /// It could not be started, or was not waited for: the exit code to end with.
    Not(u8),
}

/// Starts `argv` without standard input, and answers as soon as it has begun.
pub(crate) async fn detach(
    client: &Client,
    sandbox: SandboxId,
    args: &CommandArgs,
    argv: &[String],
    interrupts: &mut Interrupts,
) -> Result<Detached, CliError> {
    let body = args.body(argv, false);
    body.validate()?;
    let mut stream = client.command_exec(sandbox, &body, StreamConfig::default())?;
    let mut command = None;
    loop {
        let event = tokio::select! {
            event = stream.next() => event?,
            _ = interrupts.next() => return Ok(left(command)),
        };
        match (event, command) {
            (Some(CommandEvent::Command(created)), _) => command = Some(created.command.id),
            (Some(CommandEvent::Exit(exit)), _) if exit.error.is_some() => {
                let code = shell_code(&exit);
                Renderer::new(false).show(None, &CommandEvent::Exit(exit))?;
                return Ok(Detached::Not(code));
            }
            (Some(_), Some(command)) => return Ok(Detached::Started(command)),
            (Some(_) | None, _) => {
                return Err(anyhow::anyhow!("the stream ended without the command's beginning").into());
            }
        }
    }
}

fn left(command: Option<CommandId>) -> Detached {
    if let Some(command) = command {
        eprintln!("space: {command} was made, and may run");
    }
    Detached::Not(INTERRUPTED)
}

/// `ids` for people, the command as the API has it for programs.
pub(crate) async fn show(
    client: &Client,
    global: &GlobalArgs,
    sandbox: SandboxId,
    command: CommandId,
    ids: &str,
) -> Result<(), CliError> {
    if global.json {
        output::json(&client.command_get(sandbox, command).await?)?;
    } else {
        output::line(ids);
    }
    Ok(())
}
