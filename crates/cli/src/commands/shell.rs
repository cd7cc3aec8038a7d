//! `space shell`: a terminal in a sandbox, which is made for it if none is named.

use space_api::client::Client;
use space_types::SandboxId;

use super::{create, run::remove};
use crate::{
    args::ShellArgs,
    error::CliError,
    output, progress,
    session::{
        self, Interrupts,
        shell::{self, Left, LocalTerminal},
    },
};

/// The login shell of the user, as the agent has it, unless it is one that only says no.
const LOGIN_SHELL: &str = "s=${SHELL:-}\n\
    case $s in */nologin|*/false) s= ;; esac\n\
    [ -x \"$s\" ] || s=/bin/bash\n\
    [ -x \"$s\" ] || s=/bin/sh\n\
    exec \"$s\" -l";

pub(super) async fn run(client: &Client, args: &ShellArgs) -> Result<u8, CliError> {
    let local = LocalTerminal::open()?;
    let argv = if args.argv.is_empty() {
        ["/bin/sh", "-c", LOGIN_SHELL].map(str::to_owned).to_vec()
    } else {
        args.argv.clone()
    };
    let body = args.settings.terminal_body(&argv, local.size());
    body.validate()?;
    let mut interrupts = Interrupts::listen()?;
    match (args.sandbox, args.attach) {
        (Some(sandbox), Some(command)) => {
            Ok(shell::attach(client, sandbox, command, local, &mut interrupts).await?.code())
        }
        (Some(sandbox), None) => Ok(shell::run(client, sandbox, &body, local, &mut interrupts).await?.code()),
        (None, _) => {
            let new = args.new.body();
            new.validate()?;
            let accepted = client.sandbox_create(&new, 0).await?;
            let sandbox = accepted.sandbox.id;
            let waited = progress::during("creating the sandbox", async {
                tokio::select! {
                    done = create::finish(client, accepted, args.new.wait) => done.map(Some),
                    _ = interrupts.next() => Ok(None),
                }
            });
            let left = match waited.await {
                Ok(Some(_)) => shell::run(client, sandbox, &body, local, &mut interrupts).await,
                Ok(None) => Ok(Left::Exited(session::INTERRUPTED)),
                Err(error) => Err(error),
            };
            end(client, sandbox, args.keep, &left).await;
            left.map(Left::code)
        }
    }
}

/// Who left a command that goes on wants to come back to it, so its sandbox stays.
async fn end(client: &Client, sandbox: SandboxId, keep: bool, left: &Result<Left, CliError>) {
    if keep || matches!(left, Ok(Left::Detached)) {
        eprintln!("space: kept {sandbox}");
    } else if let Err(error) = remove(client, sandbox).await {
        eprintln!("space: {sandbox} could not be deleted: {}", output::plain(&error.to_string()));
    }
}
