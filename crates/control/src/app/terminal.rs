//! Input of a command, written by whoever holds a connection to it open.
//!
//! Each byte has an offset and the agent takes it once, so whatever became of an attempt, a write is repeated until
//! it is answered: a worker that restarts costs time, no keystroke and none twice.

use crate::grants::Reach;
use std::{sync::Arc, time::Duration};

use space_api::commands::WriteStdin;
use space_types::{CommandId, SandboxId};

use super::{App, AppError};
use crate::store::StoreError;

/// Before a write is repeated. The output's stream knows when there is no sense in that any more.
const PAUSES: std::ops::RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(1);

pub(crate) struct Input {
    pub(crate) app: Arc<App>,
    pub(crate) reach: Option<Reach>,
    pub(crate) sandbox: SandboxId,
    pub(crate) command: CommandId,
    /// Of the next byte; none: behind all that was taken so far.
    pub(crate) offset: Option<u64>,
}

impl Input {
    /// Writes all of `data`, for as long as that takes; how many bytes the command has taken since its start.
    /// Dropping it leaves open how much was written.
    pub(crate) async fn write(&mut self, data: &[u8], eof: bool) -> Result<u64, AppError> {
        let offset = match self.offset {
            Some(offset) => offset,
            // Nothing at the beginning is taken already: the answer tells how far things are.
            None => self.repeat(&WriteStdin { offset: 0, data: Vec::new().into(), eof: false }).await?,
        };
        let end = offset.saturating_add(data.len() as u64);
        let mut next = offset;
        loop {
            let taken = usize::try_from(next.saturating_sub(offset)).unwrap_or(usize::MAX).min(data.len());
            let rest = data.get(taken..).unwrap_or_default();
            let write = WriteStdin { offset: next.min(end), data: rest.to_vec().into(), eof };
            next = self.repeat(&write).await?;
            if next >= end {
                break;
            }
            // An agent answers when all is taken. One that doesn't is not to be asked in a loop.
            tokio::time::sleep(*PAUSES.start()).await;
        }
        self.offset = Some(end);
        Ok(next)
    }

    async fn repeat(&self, write: &WriteStdin) -> Result<u64, AppError> {
        let mut pause = *PAUSES.start();
        loop {
            let wrote = self.app.command_write_stdin(self.reach, self.sandbox, self.command, write).await;
            match wrote {
                Ok(written) => return Ok(written.next_offset),
                Err(error) if passes(&error) => tokio::time::sleep(pause).await,
                Err(error) => return Err(error),
            }
            pause = (pause * 2).min(*PAUSES.end());
        }
    }
}

/// Waiting may mend it. A command that does not read holds its writer back until the call's time is over.
fn passes(error: &AppError) -> bool {
    matches!(
        error,
        AppError::GuestUnavailable
            | AppError::NodeUnavailable
            | AppError::Timeout
            | AppError::Store(StoreError::Unavailable(_))
    )
}
