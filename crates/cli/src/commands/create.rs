//! `space create`

use std::time::Duration;

use space_api::{client::Client, sandboxes::SandboxOperation};

use super::{project, succeeded};
use crate::{
    args::{CreateArgs, GlobalArgs},
    error::CliError,
    output, progress,
};

pub(super) async fn run(client: &Client, global: &GlobalArgs, args: &CreateArgs) -> Result<u8, CliError> {
    let created = create(client, args).await?;
    if global.json {
        output::json(&created)?;
    } else {
        output::line(&created.sandbox.id.to_string());
    }
    Ok(0)
}

/// Makes a sandbox and, unless told otherwise, waits until it runs.
async fn create(client: &Client, args: &CreateArgs) -> Result<SandboxOperation, CliError> {
    let mut body = args.sandbox.body();
    body.validate()?;
    body.project_id = project::find(client, args.sandbox.project.as_deref()).await?;
    // Accepted first, so that an interruption or a lost connection leaves an id behind.
    let accepted = client.sandbox_create(&body, 0).await?;
    if args.no_wait {
        return Ok(accepted);
    }
    progress::during("creating the sandbox", finish(client, accepted, args.sandbox.wait)).await
}

/// Waits until the sandbox runs, at most `seconds`.
pub(super) async fn finish(
    client: &Client,
    mut accepted: SandboxOperation,
    seconds: u64,
) -> Result<SandboxOperation, CliError> {
    if !accepted.operation.status.is_done() {
        let deadline = Duration::from_secs(seconds);
        accepted.operation = client.operation_finish(accepted.operation.id, deadline).await?;
    }
    succeeded(&accepted.operation)?;
    accepted.sandbox = client.sandbox_get(accepted.sandbox.id).await?;
    Ok(accepted)
}
