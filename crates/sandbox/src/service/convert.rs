//! Between what clients and what guests call a command.

use space_guest_proto::{
    InvalidRequest,
    message::{Command as GuestCommand, CommandSpec as GuestSpec, CommandState as GuestState},
    validate,
};
use space_node_proto::commands::{Command, CommandSpec, CommandState};
use tonic::Status;

use super::status;
use crate::guest::exit;

/// A specification that any guest takes.
pub(super) fn checked_spec(spec: Option<CommandSpec>) -> Result<GuestSpec, Status> {
    let spec =
        spec.ok_or(InvalidRequest::Missing { field: "spec" }).map_err(|error| status::invalid(&error))?;
    let CommandSpec { argv, env, cwd, user, timeout_ms, stdin } = spec;
    let spec = GuestSpec { argv, env: env.into_iter().collect(), cwd, user, timeout_ms, stdin };
    validate::spec(&spec).map_err(|error| status::invalid(&error))?;
    Ok(spec)
}

pub(super) fn command(command: GuestCommand) -> Command {
    let state = match command.state() {
        GuestState::Unspecified => CommandState::Unspecified,
        GuestState::Created => CommandState::Created,
        GuestState::Running => CommandState::Running,
        GuestState::Exited => CommandState::Exited,
    };
    Command {
        command_id: command.command_id,
        spec: command.spec.map(spec),
        state: state.into(),
        pid: command.pid,
        exit: command.exit.map(exit),
        last_sequence: command.last_sequence,
        created_at_ms: command.created_at_ms,
        started_at_ms: command.started_at_ms,
        exited_at_ms: command.exited_at_ms,
    }
}

fn spec(spec: GuestSpec) -> CommandSpec {
    let GuestSpec { argv, env, cwd, user, timeout_ms, stdin } = spec;
    CommandSpec { argv, env: env.into_iter().collect(), cwd, user, timeout_ms, stdin }
}
