//! Pauses between attempts: doubling, with jitter, until the patience is used up.

use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Backoff {
    patience: Duration,
    next: Duration,
    since: Option<Instant>,
}

impl Backoff {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, next: FIRST, since: None }
    }

    /// Waits for the next attempt, at least as long as the server asked for. False: give up.
    ///
    /// Cancel safe: a cancelled pause has been counted and is not repeated.
    pub(super) async fn pause(&mut self, at_least: Option<Duration>) -> bool {
        let Some(pause) = self.next(at_least) else { return false };
        tokio::time::sleep(pause).await;
        true
    }

    /// How long to wait for the next attempt; none: give up.
    pub(super) fn next(&mut self, at_least: Option<Duration>) -> Option<Duration> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let pause = jittered(self.next).max(at_least.unwrap_or_default());
        self.next = (self.next * 2).min(LONGEST);
        (since.elapsed() + pause <= self.patience).then_some(pause)
    }
}

/// Between half and all of `pause`, so that clients that lost the same server don't return in step.
fn jittered(pause: Duration) -> Duration {
    let random = uuid::Uuid::new_v4().as_bytes()[0];
    pause / 2 + pause / 2 * u32::from(random) / 255
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn patience_ends() {
        let (mut backoff, begin) = (Backoff::new(Duration::from_secs(10)), Instant::now());
        let mut attempts = 0;
        while backoff.pause(None).await {
            attempts += 1;
        }
        assert!((5..20).contains(&attempts), "{attempts}");
        assert!(begin.elapsed() <= Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn the_servers_wish_is_kept_to() {
        let (mut backoff, begin) = (Backoff::new(Duration::from_secs(10)), Instant::now());
        assert!(backoff.pause(Some(Duration::from_secs(3))).await);
        assert!(begin.elapsed() >= Duration::from_secs(3));
        assert!(!backoff.pause(Some(Duration::from_mins(1))).await);
    }
}
