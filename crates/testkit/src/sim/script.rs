//! One played command.

use std::sync::{Mutex, MutexGuard, PoisonError};

use space_node_proto::commands::{
    Command, CommandEvent, CommandSpec, CommandState, Exit, Output, Started, TerminalSize,
    command_event::Kind, output::Stream,
};
use tokio::sync::watch;
use tonic::Status;

#[derive(Default)]
struct Inner {
    state: CommandState,
    events: Vec<CommandEvent>,
    stdout: u64,
    stdin: u64,
    exit: Option<Exit>,
    closed: bool,
}

pub(super) struct Session {
    id: String,
    generation: u64,
    spec: CommandSpec,
    inner: Mutex<Inner>,
    length: watch::Sender<usize>,
}

impl Session {
    pub(super) fn new(id: &str, generation: u64, spec: CommandSpec) -> Self {
        let inner = Inner { state: CommandState::Created, ..Inner::default() };
        Self { id: id.to_owned(), generation, spec, inner: Mutex::new(inner), length: watch::Sender::new(0) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn spec(&self) -> &CommandSpec {
        &self.spec
    }

    pub(super) fn lengths(&self) -> watch::Receiver<usize> {
        self.length.subscribe()
    }

    /// The events after `sequence`, and whether they include the last.
    pub(super) fn after(&self, sequence: u64) -> (Vec<CommandEvent>, bool) {
        let inner = self.inner();
        let events = inner.events.iter().filter(|event| event.sequence > sequence).cloned().collect();
        (events, inner.exit.is_some())
    }

    pub(super) fn describe(&self) -> Command {
        let inner = self.inner();
        Command {
            command_id: self.id.clone(),
            spec: Some(self.spec.clone()),
            state: inner.state.into(),
            pid: 2,
            exit: inner.exit.clone(),
            last_sequence: inner.events.len() as u64,
            created_at_ms: 1,
            started_at_ms: 1,
            exited_at_ms: u64::from(inner.exit.is_some()),
        }
    }

    /// Plays the command unless that was begun.
    pub(super) fn start(&self) {
        {
            let mut inner = self.inner();
            if inner.state != CommandState::Created {
                return;
            }
            inner.state = CommandState::Running;
        }
        self.push(Kind::Started(Started { pid: 2 }));
        let words: Vec<&str> = self.spec.argv.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["echo", words @ ..] => {
                self.print(format!("{}\n", words.join(" ")).as_bytes());
                self.exit(0, 0);
            }
            ["count", count] => {
                for line in 1..=count.parse::<u32>().unwrap_or(0) {
                    self.print(format!("{line}\n").as_bytes());
                }
                self.exit(0, 0);
            }
            ["exit", code] => self.exit(code.parse().unwrap_or(255), 0),
            ["cat" | "deaf"] | ["sleep", ..] => {}
            ["tty"] => self.show_size(self.spec.terminal.unwrap_or_default()),
            ["true"] => self.exit(0, 0),
            _ => self.exit_with(Exit { code: 127, error: "no such program".to_owned(), ..Exit::default() }),
        }
    }

    pub(super) fn write(&self, offset: u64, data: &[u8], eof: bool) -> Result<u64, Status> {
        if self.inner().exit.is_some() {
            return Err(refusal(Status::failed_precondition("not running"), "not_running"));
        }
        let known = self.inner().stdin;
        if offset > known {
            return Err(refusal(Status::invalid_argument("a hole"), "stdin_hole"));
        }
        let seen = usize::try_from(known - offset).unwrap_or(usize::MAX).min(data.len());
        let fresh = &data[seen..];
        self.inner().stdin += fresh.len() as u64;
        let echoes = self.spec.argv == ["cat"] || self.spec.argv == ["tty"];
        if echoes && !fresh.is_empty() {
            self.print(fresh);
        }
        if eof || (self.spec.terminal.is_some() && fresh.contains(&4)) {
            self.exit(0, 0);
        }
        Ok(self.inner().stdin)
    }

    pub(super) fn signal(&self, signal: i32) -> Result<(), Status> {
        if self.inner().state != CommandState::Running {
            return Err(refusal(Status::failed_precondition("not running"), "not_running"));
        }
        self.exit(0, signal);
        Ok(())
    }

    pub(super) fn resize(&self, size: TerminalSize) -> Result<(), Status> {
        if self.spec.terminal.is_none() {
            return Err(refusal(Status::failed_precondition("no terminal"), "no_terminal"));
        }
        if self.inner().state != CommandState::Running {
            return Err(refusal(Status::failed_precondition("not running"), "not_running"));
        }
        self.show_size(size);
        Ok(())
    }

    fn show_size(&self, size: TerminalSize) {
        self.print(format!("{} {}\n", size.rows, size.columns).as_bytes());
    }

    /// Its sandbox is gone.
    pub(super) fn close(&self) {
        self.inner().closed = true;
        self.length.send_modify(|length| *length += 1);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.inner().closed
    }

    fn print(&self, data: &[u8]) {
        let offset = self.inner().stdout;
        self.inner().stdout += data.len() as u64;
        let stream = Stream::Stdout.into();
        self.push(Kind::Output(Output { stream, offset, data: data.to_vec() }));
    }

    fn exit(&self, code: i32, signal: i32) {
        self.exit_with(Exit { code, signal, ..Exit::default() });
    }

    fn exit_with(&self, exit: Exit) {
        self.inner().state = CommandState::Exited;
        self.push(Kind::Exit(exit.clone()));
        self.inner().exit = Some(exit);
        self.length.send_modify(|length| *length += 1);
    }

    fn push(&self, kind: Kind) {
        let mut inner = self.inner();
        let sequence = inner.events.len() as u64 + 1;
        inner.events.push(CommandEvent { sequence, generation: self.generation, at_ms: 1, kind: Some(kind) });
        drop(inner);
        self.length.send_modify(|length| *length += 1);
    }
}

fn refusal(mut status: Status, word: &'static str) -> Status {
    status.metadata_mut().insert("space-refusal", tonic::metadata::MetadataValue::from_static(word));
    status
}
