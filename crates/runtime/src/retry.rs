//! Retries, in one place: growing pauses with full jitter and a cap, until a deadline. For connections and
//! start-up; controllers don't retry, their timer does.

use std::{future::Future, time::Duration};

use tokio::time::Instant;

/// How long to wait between attempts.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    pub first: Duration,
    pub cap: Duration,
    /// No attempt begins later than this after the first.
    pub give_up_after: Duration,
}

impl Backoff {
    /// The longest pause before attempt number `attempt` (the second attempt is 1).
    fn ceiling(self, attempt: u32) -> Duration {
        let factor = 1u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.cap)
    }

    /// A pause between half of the ceiling and the ceiling, so that a crowd disperses.
    pub fn pause(self, attempt: u32) -> Duration {
        self.ceiling(attempt).mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

/// Calls `attempt` until it succeeds, `is_transient` says no, or the time is over; answers the last error.
/// Cancel safe as far as one attempt is.
pub async fn retry<T, E, F, Fut>(
    backoff: Backoff,
    is_transient: impl Fn(&E) -> bool,
    mut attempt: F,
) -> Result<T, E>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let end = Instant::now() + backoff.give_up_after;
    let mut tries = 0u32;
    loop {
        let error = match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        tries = tries.saturating_add(1);
        let next = Instant::now() + backoff.pause(tries);
        if !is_transient(&error) || next > end {
            return Err(error);
        }
        tokio::time::sleep_until(next).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Backoff = Backoff {
        first: Duration::from_millis(10),
        cap: Duration::from_millis(40),
        give_up_after: Duration::from_millis(500),
    };

    #[tokio::test(start_paused = true)]
    async fn a_transient_error_is_tried_again() {
        let mut calls = 0;
        let result = retry(
            FAST,
            |_: &&str| true,
            || {
                calls += 1;
                let answer = if calls < 3 { Err("busy") } else { Ok(calls) };
                async move { answer }
            },
        );
        assert_eq!(result.await, Ok(3));
    }

    #[tokio::test(start_paused = true)]
    async fn it_gives_up_in_time_with_the_last_error() {
        let begun = Instant::now();
        let result: Result<(), &str> = retry(FAST, |_| true, || async { Err("down") }).await;
        assert_eq!(result, Err("down"));
        assert!(begun.elapsed() <= FAST.give_up_after);
    }

    #[test]
    fn pauses_stay_below_the_cap() {
        for attempt in 1..80 {
            assert!(FAST.pause(attempt) <= FAST.cap);
        }
    }
}
