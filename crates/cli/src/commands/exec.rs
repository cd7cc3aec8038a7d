//! `space exec`

use space_api::client::Client;

use crate::{
    args::{ExecArgs, GlobalArgs},
    error::CliError,
    session::{self, Interrupts},
};

pub(super) async fn run(client: &Client, global: &GlobalArgs, args: &ExecArgs) -> Result<u8, CliError> {
    let mut interrupts = Interrupts::listen()?;
    session::run(client, global, args.sandbox, &args.command, &args.argv, &mut interrupts).await
}
