//! Waiting for a condition that announces itself nowhere (a process table, a directory, a socket).

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Looks again every 50 ms until `look` answers `Ok`, for at most `deadline`; then fails with what it said last.
pub async fn until<T, F>(what: &str, deadline: Duration, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let end = Instant::now() + deadline;
    loop {
        match look().await {
            Ok(found) => return Ok(found),
            Err(error) if Instant::now() > end => bail!("{what}: not within {deadline:?}: {error:#}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
