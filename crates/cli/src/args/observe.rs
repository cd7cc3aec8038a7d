//! Arguments of the commands that look at sandboxes and change nothing.

use clap::Args;
use space_api::sse::Position;
use space_types::{CommandId, SandboxId};

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The sandbox's id
    pub(crate) sandbox: SandboxId,
    /// The command's id [default: the one that was started last]
    pub(crate) command: Option<CommandId>,
    /// Go on until the command ends, and exit as it does
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Begin behind this event (`<generation>.<sequence>`, the `id` that --json shows) [default: the first that is kept]
    #[arg(long, value_name = "ID")]
    pub(crate) since_event: Option<Position>,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Its processes, by the processor time they use [default: all sandboxes]
    pub(crate) sandbox: Option<SandboxId>,
}
