//! `space run`: create, exec, rm. Whatever happens in between, the sandbox is deleted unless it is to be kept, or a command
//! goes on in it.

use space_api::client::Client;
use space_types::SandboxId;

use super::{create, project};
use crate::{
    args::{GlobalArgs, RunArgs},
    error::CliError,
    output, progress,
    session::{
        self, Interrupts,
        detach::{self, Detached, detach},
    },
};

/// What the command came to.
struct Used {
    code: u8,
    /// It was left running.
    goes_on: bool,
}

pub(super) async fn run(client: &Client, global: &GlobalArgs, args: &RunArgs) -> Result<u8, CliError> {
    // Seen to be wrong before a sandbox is made for it.
    args.command.body(&args.argv, false).validate()?;
    let mut interrupts = Interrupts::listen()?;
    let (sandbox, outcome) = make_and_use(client, global, args, &mut interrupts).await?;
    if args.keep || matches!(outcome, Ok(Used { goes_on: true, .. })) {
        eprintln!("space: kept {sandbox}");
    } else if let Err(error) = remove(client, sandbox).await {
        eprintln!("space: {sandbox} could not be deleted: {}", output::plain(&error.to_string()));
    }
    outcome.map(|used| used.code)
}

async fn make_and_use(
    client: &Client,
    global: &GlobalArgs,
    args: &RunArgs,
    interrupts: &mut Interrupts,
) -> Result<(SandboxId, Result<Used, CliError>), CliError> {
    let mut body = args.sandbox.body();
    body.validate()?;
    body.project_id = project::find(client, args.sandbox.project.as_deref()).await?;
    let accepted = client.sandbox_create(&body, 0).await?;
    let sandbox = accepted.sandbox.id;
    let waited = progress::during("creating the sandbox", async {
        tokio::select! {
            done = create::finish(client, accepted, args.sandbox.wait) => done.map(Some),
            _ = interrupts.next() => Ok(None),
        }
    });
    let outcome = match waited.await {
        Ok(Some(_)) => use_it(client, global, sandbox, args, interrupts).await,
        Ok(None) => Ok(Used { code: session::INTERRUPTED, goes_on: false }),
        Err(error) => Err(error),
    };
    Ok((sandbox, outcome))
}

async fn use_it(
    client: &Client,
    global: &GlobalArgs,
    sandbox: SandboxId,
    args: &RunArgs,
    interrupts: &mut Interrupts,
) -> Result<Used, CliError> {
    if !args.detach {
        let code = session::run(client, global, sandbox, &args.command, &args.argv, interrupts).await?;
        return Ok(Used { code, goes_on: false });
    }
    match detach(client, sandbox, &args.command, &args.argv, interrupts).await? {
        Detached::Started(command) => {
            // It runs, whatever becomes of saying so.
            let ids = format!("{sandbox} {command}");
            if let Err(error) = detach::show(client, global, sandbox, command, &ids).await {
                error.report(global.json);
            }
            Ok(Used { code: 0, goes_on: true })
        }
        Detached::Not(code) => Ok(Used { code, goes_on: false }),
    }
}

/// Accepted is enough: the server finishes it.
pub(super) async fn remove(client: &Client, sandbox: SandboxId) -> Result<(), CliError> {
    progress::during("deleting the sandbox", client.sandbox_delete(sandbox, 0)).await?;
    Ok(())
}
