//! Our side: the public API as a plain HTTP client sees it.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use space_api::{client::StreamConfig, commands::CreateCommand, sse::CommandEvent};
use space_e2e::{Sandbox, Server};

fn command(argv: &[&str]) -> CreateCommand {
    CreateCommand { argv: argv.iter().map(|word| (*word).to_owned()).collect(), ..CreateCommand::default() }
}

pub(crate) async fn create_to_first_output(server: &Server) -> Result<Duration> {
    let began = Instant::now();
    let sandbox = Sandbox::create_on(server).await?;
    let mut stream =
        server.client.command_exec(sandbox.id, &command(&["/bin/echo", "x"]), StreamConfig::default())?;
    let mut first = None;
    while let Some(event) = stream.next().await? {
        if let (CommandEvent::Stdout(_), None) = (&event, first) {
            first = Some(began.elapsed());
        }
    }
    sandbox.remove().await?;
    let Some(first) = first else { bail!("no output") };
    Ok(first)
}

pub(crate) async fn exec_true(sandbox: &Sandbox) -> Result<Duration> {
    let began = Instant::now();
    let result = sandbox.server.client.command_run(sandbox.id, &command(&["/bin/true"])).await?;
    let took = began.elapsed();
    if result.exit.code != Some(0) {
        bail!("{:?}", result.exit);
    }
    Ok(took)
}
