//! `exec`: a command made, started and streamed by one call to its worker.

use std::sync::Arc;

use futures::{Stream, StreamExt as _, stream};
use space_api::{
    commands::{CommandCreated, CreateCommand, ExecResult, Exit},
    limits,
    sse::{CommandEvent, Output},
};
use space_attach::Positioned;
use space_types::{CommandId, SandboxId};

use super::{
    App, AppError,
    command_stream::{CommandStream, Target},
    commands::{NewCommand, fresh, spec},
};
use crate::{fail_point, grants::Reach};

/// A command under way.
pub(crate) struct Exec {
    pub(crate) created: CommandCreated,
    stream: CommandStream,
}

impl App {
    pub(crate) async fn exec(
        self: &Arc<Self>,
        reach: Reach,
        sandbox: SandboxId,
        request: &CreateCommand,
        key: Option<&str>,
    ) -> Result<Exec, AppError> {
        request.validate()?;
        let new = NewCommand::new(reach.tenant_id, sandbox, key);
        fail_point::EXEC_BEFORE_WORKER_CALL.pass();
        let target =
            Target { reach: Some(reach), sandbox, command: new.id, after: None, create: Some(spec(request)) };
        let stream = self.command_attach(target).await.map_err(|error| new.refusal(error))?;
        fail_point::EXEC_AFTER_WORKER_CALL.pass();
        let created =
            CommandCreated { command: fresh(sandbox, new.id, request), attach: self.attach(sandbox, new.id) };
        Ok(Exec { created, stream })
    }
}

impl Exec {
    /// First the command, then its events.
    pub(crate) fn into_stream(self) -> impl Stream<Item = Positioned> {
        let first = Positioned { position: None, event: CommandEvent::Command(Box::new(self.created)) };
        stream::once(async {
            fail_point::EXEC_BEFORE_FIRST_EVENT.pass();
            first
        })
        .chain(self.stream.into_stream())
    }

    /// Waits for the end and gathers the output, as far as the limit for that goes.
    pub(crate) async fn into_result(mut self) -> Result<ExecResult, AppError> {
        let mut result = Gathered::new(self.created.command.id);
        while let Some(Positioned { event, .. }) = self.stream.next().await {
            match event {
                CommandEvent::Stdout(output) => result.add(&output, false),
                CommandEvent::Stderr(output) => result.add(&output, true),
                CommandEvent::Gap(gap) => {
                    result.0.stdout_truncated |= gap.stdout_bytes > 0;
                    result.0.stderr_truncated |= gap.stderr_bytes > 0;
                }
                CommandEvent::Exit(exit) => return Ok(ExecResult { exit, ..result.0 }),
                CommandEvent::Error(error) => return Err(AppError::Stream(Box::new(error.problem))),
                CommandEvent::Command(_) | CommandEvent::Started(_) => {}
            }
        }
        Err(AppError::GuestUnavailable)
    }
}

struct Gathered(ExecResult);

impl Gathered {
    fn new(command_id: CommandId) -> Self {
        Self(ExecResult {
            command_id,
            exit: Exit::default(),
            stdout: Vec::new().into(),
            stderr: Vec::new().into(),
            stdout_truncated: false,
            stderr_truncated: false,
        })
    }

    fn add(&mut self, output: &Output, is_stderr: bool) {
        let (buffer, truncated) = if is_stderr {
            (&mut self.0.stderr.0, &mut self.0.stderr_truncated)
        } else {
            (&mut self.0.stdout.0, &mut self.0.stdout_truncated)
        };
        let room = limits::EXEC_OUTPUT_BYTES.saturating_sub(buffer.len());
        let taken = room.min(output.data.len());
        buffer.extend_from_slice(&output.data.0[..taken]);
        *truncated |= taken < output.data.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_beyond_the_limit_is_cut_off_and_said_so() {
        let mut gathered = Gathered::new(CommandId::new());
        let output = Output { offset: 0, data: vec![7; limits::EXEC_OUTPUT_BYTES - 1].into() };
        gathered.add(&output, false);
        assert!(!gathered.0.stdout_truncated);
        gathered.add(&Output { offset: 0, data: vec![8; 2].into() }, false);
        assert!(gathered.0.stdout_truncated && !gathered.0.stderr_truncated);
        assert_eq!(gathered.0.stdout.len(), limits::EXEC_OUTPUT_BYTES);
    }
}
