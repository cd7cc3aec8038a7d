//! Between what clients and what guests call a command.

use space_guest_proto::{
    InvalidRequest,
    message::{
        Command as GuestCommand, CommandSpec as GuestSpec, CommandState as GuestState,
        TerminalSize as GuestSize,
    },
    validate,
};
use space_node_proto::commands::{Command, CommandSpec, CommandState, TerminalSize};
use tonic::Status;

use super::status;
use crate::guest::exit;

/// A specification that any guest takes.
pub(super) fn checked_spec(spec: Option<CommandSpec>) -> Result<GuestSpec, Status> {
    let spec =
        spec.ok_or(InvalidRequest::Missing { field: "spec" }).map_err(|error| status::invalid(&error))?;
    let CommandSpec { argv, env, cwd, user, timeout_ms, stdin, terminal } = spec;
    let terminal = terminal.map(guest_size);
    let spec = GuestSpec { argv, env: env.into_iter().collect(), cwd, user, timeout_ms, stdin, terminal };
    validate::spec(&spec).map_err(|error| status::invalid(&error))?;
    Ok(spec)
}

pub(super) const fn guest_size(size: TerminalSize) -> GuestSize {
    GuestSize { rows: size.rows, columns: size.columns }
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
    let GuestSpec { argv, env, cwd, user, timeout_ms, stdin, terminal } = spec;
    let terminal = terminal.map(|size| TerminalSize { rows: size.rows, columns: size.columns });
    CommandSpec { argv, env: env.into_iter().collect(), cwd, user, timeout_ms, stdin, terminal }
}

#[cfg(test)]
mod tests {
    use space_api::{commands::CreateCommand, limits, terminal::TerminalSize as ApiSize};

    use super::*;

    #[test]
    fn the_largest_command_that_the_api_takes_fits_the_guest_protocol() {
        let names = (0..limits::ENV_VARIABLES).map(|n| (format!("V{n:03}"), String::new()));
        let env: std::collections::BTreeMap<_, _> = names.collect();
        let room = limits::COMMAND_BYTES - limits::ENV_VARIABLES * 6 - (limits::ARGV_ITEMS - 1) * 2;
        let mut argv = vec!["x".to_owned(); limits::ARGV_ITEMS - 1];
        argv.push("x".repeat(room - 1));
        let command = CreateCommand {
            argv,
            env,
            cwd: Some(format!("/{}", "x".repeat(limits::CWD_BYTES - 1))),
            user: Some("x".repeat(limits::USER_CHARS)),
            timeout_seconds: Some(limits::TIMEOUT_SECONDS),
            stdin: true,
            terminal: Some(ApiSize { rows: limits::TERMINAL_CELLS, columns: limits::TERMINAL_CELLS }),
        };
        assert_eq!(command.validate(), Ok(()));
        let spec = CommandSpec {
            argv: command.argv,
            env: command.env.into_iter().collect(),
            cwd: command.cwd.unwrap_or_default(),
            user: command.user.unwrap_or_default(),
            timeout_ms: limits::TIMEOUT_SECONDS * 1000,
            stdin: true,
            terminal: Some(TerminalSize { rows: 4096, columns: 4096 }),
        };
        assert!(checked_spec(Some(spec.clone())).is_ok());
        let longer = spec.argv.iter().chain([&"x".repeat(4096)]).cloned().collect();
        assert!(
            checked_spec(Some(CommandSpec { argv: longer, ..spec })).is_err(),
            "the limit could be higher"
        );
    }
}
