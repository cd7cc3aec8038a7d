//! Bytes between this machine and a sandbox: what is interrupted goes on where it broke, for as long as there is
//! progress now and then.

mod download;
mod tree;
mod upload;

use std::time::Duration;

use space_api::{Problem, ProblemCode, client::ClientError};
use tokio::time::{Instant, sleep};

use crate::error::CliError;

pub(crate) use download::{to_file, to_standard_output};
pub(crate) use tree::{receive, send};
pub(crate) use upload::{from_file, from_standard_input};

/// How long to go on without a byte of progress.
const PATIENCE: Duration = Duration::from_mins(1);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Whether another attempt may do better. A broken upload is held for as long as its end has not been noticed.
fn may_pass(error: &ClientError) -> bool {
    let passes = |problem: &Problem| problem.code.is_transient() || problem.code == ProblemCode::FileBusy;
    error.problem().map_or_else(|| error.is_worth_repeating(), passes)
}

/// Attempts at one transfer.
struct Attempts {
    since: Instant,
    pause: Duration,
    reached: u64,
}

impl Attempts {
    fn new() -> Self {
        Self { since: Instant::now(), pause: FIRST_PAUSE, reached: 0 }
    }

    /// Rests before the next attempt; gives `error` back when there was no progress for too long, or when another
    /// attempt would end the same way.
    async fn rest(&mut self, reached: u64, error: ClientError) -> Result<(), CliError> {
        if reached > self.reached {
            *self = Self { reached, ..Self::new() };
        }
        if !may_pass(&error) || self.since.elapsed() > PATIENCE {
            return Err(error.into());
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}
