//! `space exec`

use space_api::client::Client;

use crate::{
    args::{ExecArgs, GlobalArgs},
    error::CliError,
    session::{
        self, Interrupts,
        detach::{self, Detached, detach},
        shell,
    },
};

pub(super) async fn run(client: &Client, global: &GlobalArgs, args: &ExecArgs) -> Result<u8, CliError> {
    let mut interrupts = Interrupts::listen()?;
    if args.terminal {
        let local = shell::LocalTerminal::open()?;
        let body = args.command.settings.terminal_body(&args.argv, local.size());
        let left = shell::run(client, args.sandbox, &body, local, &mut interrupts).await?;
        return Ok(left.code());
    }
    if args.detach {
        let detached = detach(client, args.sandbox, &args.command, &args.argv, &mut interrupts).await?;
        return match detached {
            Detached::Started(command) => {
                detach::show(client, global, args.sandbox, command, &command.to_string()).await.map(|()| 0)
            }
            Detached::Not(code) => Ok(code),
        };
    }
    session::run(client, global, args.sandbox, &args.command, &args.argv, &mut interrupts).await
}
