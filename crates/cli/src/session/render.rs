//! A command's events on this process's standard streams.

use std::io::{self, Write};

use serde_json::{Value, json};
use space_api::sse::{CommandEvent, Position};

use crate::output;

/// Bytes as they are, or with `--json` one event a line.
pub(crate) struct Renderer {
    json: bool,
}

impl Renderer {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// False when whoever reads has gone.
    pub(crate) fn show(&self, position: Option<Position>, event: &CommandEvent) -> anyhow::Result<bool> {
        if self.json {
            let data: Value = serde_json::from_str(&event.data()?)?;
            let id = position.map(|position| position.to_string());
            let line = json!({ "event": event.name(), "id": id, "data": data });
            return written(writeln!(io::stdout().lock(), "{line}"));
        }
        match event {
            CommandEvent::Stdout(output) => written(write(&mut io::stdout().lock(), output.data.as_ref())),
            CommandEvent::Stderr(output) => written(write(&mut io::stderr().lock(), output.data.as_ref())),
            CommandEvent::Gap(gap) => {
                eprintln!(
                    "space: lost {} bytes of stdout and {} of stderr: they came faster than they were read",
                    gap.stdout_bytes, gap.stderr_bytes
                );
                Ok(true)
            }
            CommandEvent::Exit(exit) => {
                if let Some(error) = &exit.error {
                    eprintln!("space: cannot start the command: {}", output::plain(error));
                } else if exit.timed_out {
                    eprintln!("space: the command's time was up");
                }
                Ok(true)
            }
            CommandEvent::Command(_) | CommandEvent::Started(_) | CommandEvent::Error(_) => Ok(true),
        }
    }
}

fn write(stream: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}

fn written(result: io::Result<()>) -> anyhow::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(anyhow::Error::new(error).context("cannot write the command's output")),
    }
}
