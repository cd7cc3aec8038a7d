//! This process's standard input, sent to a command piece by piece.
//!
//! Reading blocks, so it has a thread of its own, one piece ahead of the sender; the thread ends with the
//! process. Each write names its offset, so a repeated one is harmless.

use std::{io::Read, time::Duration};

use space_api::{
    ProblemCode, client::Client, client::ClientError, commands::WriteStdin, limits::STDIN_WRITE_BYTES,
};
use space_types::{CommandId, SandboxId};
use tokio::sync::mpsc;

use crate::error::CliError;

/// The command reads slowly: how long to let it before the rest is sent again. The API has no event for room.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn forward(client: &Client, sandbox: SandboxId, command: CommandId) -> Result<(), CliError> {
    let mut pieces = read();
    let mut offset = 0;
    loop {
        let piece = pieces
            .recv()
            .await
            .transpose()
            .map_err(|error| anyhow::Error::new(error).context("cannot read standard input"))?;
        let end = piece.is_none();
        let write = WriteStdin { offset, data: piece.unwrap_or_default().into(), eof: end };
        match send(client, sandbox, command, write).await {
            Ok(next) => offset = next,
            Err(error) if has_no_reader(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        if end {
            return Ok(());
        }
    }
}

/// Sends all of one piece.
async fn send(
    client: &Client,
    sandbox: SandboxId,
    command: CommandId,
    mut write: WriteStdin,
) -> Result<u64, ClientError> {
    let end = write.offset + write.data.len() as u64;
    let mut pause = FIRST_PAUSE;
    loop {
        let next = client.stdin_write(sandbox, command, &write).await?.next_offset.min(end);
        if next == end {
            return Ok(next);
        }
        let taken = usize::try_from(next.saturating_sub(write.offset)).unwrap_or(0);
        if taken == 0 {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        } else {
            write.data.0.drain(..taken);
            write.offset = next;
            pause = FIRST_PAUSE;
        }
    }
}

/// The command has ended or closed its input: what is left is nobody's, as with a pipe.
fn has_no_reader(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| {
        matches!(
            problem.code,
            ProblemCode::CommandNotRunning | ProblemCode::StdinClosed | ProblemCode::NotFound
        )
    })
}

/// Pieces as they come; the end is that of the channel.
pub(super) fn read() -> mpsc::Receiver<std::io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut piece = vec![0; STDIN_WRITE_BYTES];
            let piece = match input.read(&mut piece) {
                Ok(0) => return,
                Ok(length) => {
                    piece.truncate(length);
                    Ok(piece)
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let failed = piece.is_err();
            if sender.blocking_send(piece).is_err() || failed {
                return;
            }
        }
    });
    receiver
}
