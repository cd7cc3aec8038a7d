//! `space logs`: what a command put out, from the first event that is kept.
//!
//! ```text
//!   command_get ──last_sequence──▶ the end without --follow
//!   attach ──events──▶ this process's streams, until the end or the command's exit
//! ```
//! A stream of a running command has no end, and silence means nothing. So the end is fixed before the stream is
//! opened: the newest event of that moment. Attaching starts a command that was not started, which reading must not
//! do; such a command is refused. One that was started never goes back to that.

use std::time::Duration;

use space_api::{
    client::{Client, StreamConfig},
    commands::{Command, CommandState},
    sse::{CommandEvent, Position},
};
use space_types::CommandId;
use tokio::time::timeout;

use crate::{
    args::{GlobalArgs, LogsArgs},
    error::CliError,
    session::{self, Interrupts, Renderer},
};

/// For the next of the events that the sandbox says it has.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn run(client: &Client, global: &GlobalArgs, args: &LogsArgs) -> Result<u8, CliError> {
    let mut interrupts = Interrupts::listen()?;
    let mut reading = Reading { follow: args.follow, since: args.since_event, last: None };
    let outcome = tokio::select! {
        outcome = read(client, global, args, &mut reading) => outcome,
        _ = interrupts.next() => Ok(session::INTERRUPTED),
    };
    let broke = !matches!(outcome, Ok(code) if code != session::INTERRUPTED);
    if let (true, false, Some((command, position))) = (broke, global.json, reading.last) {
        eprintln!(
            "space: `space logs {} {command} --since-event {position}` goes on behind what was printed",
            args.sandbox
        );
    }
    outcome
}

struct Reading {
    follow: bool,
    since: Option<Position>,
    /// Whose event was printed last, and which.
    last: Option<(CommandId, Position)>,
}

async fn read(
    client: &Client,
    global: &GlobalArgs,
    args: &LogsArgs,
    reading: &mut Reading,
) -> Result<u8, CliError> {
    let command = match args.command {
        Some(id) => client.command_get(args.sandbox, id).await?,
        None => newest(client.command_list(args.sandbox).await?.items, args)?,
    };
    match command.state {
        CommandState::Created => return Err(not_started(&command)),
        // Nothing has been said yet.
        CommandState::Running if !reading.follow && command.last_sequence == 0 => return Ok(0),
        CommandState::Running | CommandState::Exited => {}
    }
    let begin = begin(reading.since, command.last_sequence);
    let mut stream = client.command_follow(args.sandbox, command.id, begin, StreamConfig::default());
    let renderer = Renderer::new(global.json);
    loop {
        let next = stream.next();
        let event = if reading.follow {
            next.await?
        } else {
            timeout(PATIENCE, next).await.map_err(|_elapsed| withheld(&command))??
        };
        let Some(event) = event else {
            return Err(anyhow::anyhow!("the stream ended without the command's exit").into());
        };
        let position = stream.position();
        if position.is_none_or(|position| Some(position) > reading.since) {
            if !renderer.show(position, &event)? {
                return Ok(session::READER_GONE);
            }
            reading.last = position.map(|position| (command.id, position));
        }
        if let Some(code) = ended(reading.follow, position, &event, command.last_sequence) {
            return Ok(code);
        }
    }
}

/// Where to attach. Behind the newest event there may never be another, and then nothing would tell that this is the
/// end; so that event is asked for again, and not shown. Of an id from before a restore the server makes the beginning.
fn begin(since: Option<Position>, last_sequence: u64) -> Option<Position> {
    since.map(|since| Position { sequence: since.sequence.min(last_sequence.saturating_sub(1)), ..since })
}

/// The exit code, once all that was asked for has come.
fn ended(follow: bool, position: Option<Position>, event: &CommandEvent, last_sequence: u64) -> Option<u8> {
    match event {
        CommandEvent::Exit(exit) if follow => Some(session::shell_code(exit)),
        CommandEvent::Exit(_) => Some(0),
        CommandEvent::Command(_)
        | CommandEvent::Started(_)
        | CommandEvent::Stdout(_)
        | CommandEvent::Stderr(_)
        | CommandEvent::Gap(_)
        | CommandEvent::Error(_) => {
            let all = position.is_some_and(|position| position.sequence >= last_sequence);
            (all && !follow).then_some(0)
        }
    }
}

fn newest(commands: Vec<Command>, args: &LogsArgs) -> Result<Command, CliError> {
    let started = commands.into_iter().filter(|command| command.state != CommandState::Created);
    started.max_by_key(|command| (command.started_at, command.created_at)).ok_or_else(|| {
        CliError::hinted(
            anyhow::anyhow!("{} remembers no command that was started", args.sandbox),
            format!("`space exec {} -- …` runs one", args.sandbox),
        )
    })
}

fn not_started(command: &Command) -> CliError {
    CliError::hinted(
        anyhow::anyhow!("{} has not been started", command.id),
        "a command starts when it is attached to, which reading its output must not do",
    )
}

fn withheld(command: &Command) -> CliError {
    let (id, last, seconds) = (command.id, command.last_sequence, PATIENCE.as_secs());
    CliError::hinted(
        anyhow::anyhow!("{id} says it has events up to {last}, and none came for {seconds} seconds"),
        "the sandbox may be overloaded: try again, or --follow",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_event_is_asked_for_even_by_who_has_seen_it() {
        let at = |sequence| Some(Position { generation: 1, sequence });
        assert_eq!((begin(None, 9), begin(at(3), 9)), (None, at(3)));
        assert_eq!((begin(at(9), 9), begin(at(12), 9), begin(at(0), 0)), (at(8), at(8), at(0)));
    }
}
