//! `space ps`: the commands that a sandbox remembers. Everything in it but their ids comes from inside the sandbox.

use space_api::{
    client::Client,
    commands::{Command, CommandState, Exit},
};

use crate::{
    args::{GlobalArgs, SandboxArgs},
    error::CliError,
    output,
};

/// Characters of a command line that are shown.
const ARGV_WIDTH: usize = 80;

pub(super) async fn run(client: &Client, global: &GlobalArgs, args: &SandboxArgs) -> Result<u8, CliError> {
    let commands = client.command_list(args.sandbox).await?.items;
    if global.json {
        output::json(&commands)?;
    } else {
        let rows: Vec<_> = commands.iter().map(row).collect();
        output::line(&output::table(["ID", "STATE", "EXIT", "STARTED", "ARGV"], &rows));
    }
    Ok(0)
}

fn row(command: &Command) -> [String; 5] {
    [
        command.id.to_string(),
        state(command.state).to_owned(),
        command.exit.as_ref().map(exit).unwrap_or_default(),
        command.started_at.map(|at| at.to_string()).unwrap_or_default(),
        output::cut(&output::plain(&command_line(&command.argv)), ARGV_WIDTH),
    ]
}

fn state(state: CommandState) -> &'static str {
    match state {
        CommandState::Created => "created",
        CommandState::Running => "running",
        CommandState::Exited => "exited",
    }
}

/// As a shell has it, and why where that is no plain end.
fn exit(exit: &Exit) -> String {
    let why = match (&exit.error, exit.timed_out, exit.signal) {
        (Some(_), ..) => " (not started)".to_owned(),
        (None, true, _) => " (timed out)".to_owned(),
        (None, false, Some(signal)) => format!(" (signal {signal})"),
        (None, false, None) => String::new(),
    };
    format!("{}{why}", exit.shell_status())
}

/// As one would type it into a shell.
fn command_line(argv: &[String]) -> String {
    argv.iter().map(|argument| quoted(argument)).collect::<Vec<_>>().join(" ")
}

fn quoted(argument: &str) -> String {
    let bare = |c: char| c.is_alphanumeric() || "-_./:=,+@%^".contains(c);
    if !argument.is_empty() && argument.chars().all(bare) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_typed_again() {
        let argv = ["sh", "-c", "echo 'a b'", "", "x=1"].map(str::to_owned);
        assert_eq!(command_line(&argv), r"sh -c 'echo '\''a b'\''' '' x=1");
    }

    #[test]
    fn an_end_says_why() {
        let ends = [
            Exit { code: Some(3), ..Exit::default() },
            Exit { signal: Some(9), ..Exit::default() },
            Exit { signal: Some(15), timed_out: true, ..Exit::default() },
            Exit { code: Some(127), error: Some("no such file".to_owned()), ..Exit::default() },
        ];
        assert_eq!(
            ends.each_ref().map(exit),
            ["3", "137 (signal 9)", "143 (timed out)", "127 (not started)"]
        );
    }
}
