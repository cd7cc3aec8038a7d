//! `space rm`

use std::time::Duration;

use space_api::{client::Client, sandboxes::SandboxOperation};
use space_types::SandboxId;

use super::succeeded;
use crate::{
    args::{GlobalArgs, RemoveArgs},
    error::{CliError, FAILURE},
    output, progress,
};

const DEADLINE: Duration = Duration::from_mins(5);

/// Tries each of them, also when one fails.
pub(super) async fn run(client: &Client, global: &GlobalArgs, args: &RemoveArgs) -> Result<u8, CliError> {
    let mut code = 0;
    for id in &args.sandboxes {
        match progress::during(&format!("deleting {id}"), remove(client, *id, args.no_wait)).await {
            Ok(removed) if global.json => output::json(&removed)?,
            Ok(_) => output::line(&id.to_string()),
            Err(error) => {
                error.report(global.json);
                code = FAILURE;
            }
        }
    }
    Ok(code)
}

async fn remove(client: &Client, id: SandboxId, no_wait: bool) -> Result<SandboxOperation, CliError> {
    let mut removed = client.sandbox_delete(id, 0).await?;
    if !no_wait && !removed.operation.status.is_done() {
        removed.operation = client.operation_finish(removed.operation.id, DEADLINE).await?;
    }
    succeeded(&removed.operation)?;
    Ok(removed)
}
