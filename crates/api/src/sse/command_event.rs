//! The events of a command's stream.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Base64Bytes, Problem, commands::CommandCreated, commands::Exit};

/// One event of `GET …/commands/{id}/attach` or of a streaming `exec`. The name goes into `event:`, the rest
/// as JSON into `data:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandEvent {
    /// First event of `exec` alone, without an `id:`.
    Command(Box<CommandCreated>),
    Started(Started),
    Stdout(Output),
    Stderr(Output),
    /// The last event of a command.
    Exit(Exit),
    /// Output was lost because it came faster than it was read; never silently.
    Gap(Gap),
    /// The stream ends early; the command may still run. Without an `id:`.
    Error(StreamError),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Started {
    /// Process id inside the sandbox.
    pub pid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Output {
    /// Of the first byte, within its own stream.
    pub offset: u64,
    pub data: Base64Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Gap {
    /// Sequence numbers, both inclusive.
    pub first_lost: u64,
    pub last_lost: u64,
    /// Lost bytes of each stream, as far as they are known: fewer than were lost, down to 0, where the sandbox had
    /// forgotten what its output stood at. The `offset` of the next output is always right.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamError {
    pub problem: Problem,
}

impl CommandEvent {
    /// What goes into `event:`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Command(_) => "command",
            Self::Started(_) => "started",
            Self::Stdout(_) => "stdout",
            Self::Stderr(_) => "stderr",
            Self::Exit(_) => "exit",
            Self::Gap(_) => "gap",
            Self::Error(_) => "error",
        }
    }

    /// What goes into `data:`, on one line.
    pub fn data(&self) -> Result<String, serde_json::Error> {
        match self {
            Self::Command(created) => serde_json::to_string(created),
            Self::Started(started) => serde_json::to_string(started),
            Self::Stdout(output) | Self::Stderr(output) => serde_json::to_string(output),
            Self::Exit(exit) => serde_json::to_string(exit),
            Self::Gap(gap) => serde_json::to_string(gap),
            Self::Error(error) => serde_json::to_string(error),
        }
    }

    /// From the two. `None`: an event of a later server, to be skipped.
    pub fn parse(name: &str, data: &str) -> Option<Result<Self, serde_json::Error>> {
        Some(match name {
            "command" => serde_json::from_str(data).map(Self::Command),
            "started" => serde_json::from_str(data).map(Self::Started),
            "stdout" => serde_json::from_str(data).map(Self::Stdout),
            "stderr" => serde_json::from_str(data).map(Self::Stderr),
            "exit" => serde_json::from_str(data).map(Self::Exit),
            "gap" => serde_json::from_str(data).map(Self::Gap),
            "error" => serde_json::from_str(data).map(Self::Error),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProblemCode;

    #[test]
    fn every_event_parses_back() {
        let output = Output { offset: 5, data: b"hi\n".to_vec().into() };
        let events = [
            CommandEvent::Started(Started { pid: 7 }),
            CommandEvent::Stdout(output.clone()),
            CommandEvent::Stderr(output),
            CommandEvent::Exit(Exit { code: Some(0), ..Exit::default() }),
            CommandEvent::Gap(Gap { first_lost: 1, last_lost: 2, stdout_bytes: 3, stderr_bytes: 4 }),
            CommandEvent::Error(StreamError { problem: Problem::new(ProblemCode::GuestUnavailable, "gone") }),
        ];
        for event in events {
            let parsed = CommandEvent::parse(event.name(), &event.data().unwrap()).unwrap().unwrap();
            assert_eq!(parsed, event);
        }
    }

    #[test]
    fn an_unknown_event_is_no_error() {
        assert!(CommandEvent::parse("suspended", "{}").is_none());
    }
}
