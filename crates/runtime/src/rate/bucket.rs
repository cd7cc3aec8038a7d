//! One token bucket, without a clock of its own.
//!
//! A bucket is one number: when it will be full again. Taking a token moves that by the time in which one token
//! comes back, and is refused where that would be more than the whole burst away. So there is nothing to refill, no
//! fraction to round, and a full bucket is the same as none. Within any time `t` at most `burst + rate * t` are let
//! through.

use std::{num::NonZeroU32, time::Duration};

/// How fast, and how many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// In which one token comes back. Rounded up: never faster than was asked for.
    interval: Duration,
    burst: NonZeroU32,
}

impl Rate {
    /// None where `tokens` is 0: no limit. A burst of 0 would let nothing through, and counts as 1.
    pub fn new(tokens: u32, per: Duration, burst: u32) -> Option<Self> {
        let tokens = NonZeroU32::new(tokens)?;
        let nanoseconds = per.as_nanos().div_ceil(u128::from(tokens.get()));
        let interval = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        Some(Self { interval, burst: NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN) })
    }

    /// From empty to full.
    fn span(self) -> Duration {
        self.interval.saturating_mul(self.burst.get())
    }
}

/// Times are since one moment that all calls share. One that lies before an earlier call's does no harm: calls from
/// several threads may come out of order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bucket {
    full_at: Duration,
}

impl Bucket {
    pub fn is_full(self, now: Duration) -> bool {
        self.full_at <= now
    }

    /// How long until there is a token; zero: there is one.
    pub fn wait(self, rate: Rate, now: Duration) -> Duration {
        self.after_one(rate, now).saturating_sub(now.saturating_add(rate.span()))
    }

    /// Takes a token, also one that is not there: then it is owed. Ask [`Bucket::wait`] before.
    pub fn take(&mut self, rate: Rate, now: Duration) {
        self.full_at = self.after_one(rate, now);
    }

    fn after_one(self, rate: Rate, now: Duration) -> Duration {
        self.full_at.max(now).saturating_add(rate.interval)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn admit(bucket: &mut Bucket, rate: Rate, now: Duration) -> bool {
        let is_admitted = bucket.wait(rate, now).is_zero();
        if is_admitted {
            bucket.take(rate, now);
        }
        is_admitted
    }

    #[test]
    fn a_burst_goes_at_once_and_the_next_waits_for_its_token() {
        let rate = Rate::new(10, Duration::from_secs(1), 3).unwrap();
        let (mut bucket, now) = (Bucket::default(), Duration::from_secs(5));
        assert_eq!([(); 4].map(|()| admit(&mut bucket, rate, now)), [true, true, true, false]);
        assert_eq!(bucket.wait(rate, now), Duration::from_millis(100));
        let later = now + Duration::from_millis(100);
        assert_eq!([(); 2].map(|()| admit(&mut bucket, rate, later)), [true, false]);
        assert!(!bucket.is_full(now + Duration::from_millis(399)));
        assert!(bucket.is_full(now + Duration::from_millis(400)));
    }

    #[test]
    fn no_rate_is_no_limit_and_no_burst_is_one() {
        assert_eq!(Rate::new(0, Duration::from_secs(1), 5), None);
        let rate = Rate::new(1, Duration::from_secs(1), 0).unwrap();
        let mut bucket = Bucket::default();
        assert_eq!([(); 2].map(|()| admit(&mut bucket, rate, Duration::ZERO)), [true, false]);
    }

    #[test]
    fn what_is_owed_is_waited_for() {
        let rate = Rate::new(1, Duration::from_secs(1), 1).unwrap();
        let mut bucket = Bucket::default();
        for _ in 0..3 {
            bucket.take(rate, Duration::ZERO);
        }
        assert_eq!(bucket.wait(rate, Duration::ZERO), Duration::from_secs(3));
    }

    proptest! {
        /// In every stretch between two requests, not only from the beginning.
        #[test]
        fn never_more_than_the_burst_and_what_came_back(
            tokens in 1_u32..2000,
            per in 1_u64..120,
            burst in 1_u32..20,
            pauses in prop::collection::vec(0_u64..2_000_000_000, 1..120),
        ) {
            let per = Duration::from_secs(per);
            let rate = Rate::new(tokens, per, burst).unwrap();
            let (mut bucket, mut now, mut admitted) = (Bucket::default(), Duration::ZERO, Vec::new());
            for pause in pauses {
                now += Duration::from_nanos(pause);
                if admit(&mut bucket, rate, now) {
                    admitted.push(now);
                }
            }
            for (first, begin) in admitted.iter().enumerate() {
                for (last, end) in admitted.iter().enumerate().skip(first) {
                    let came_back = end.saturating_sub(*begin).as_nanos() * u128::from(tokens) / per.as_nanos();
                    prop_assert!((last - first + 1) as u128 <= u128::from(burst) + came_back);
                }
            }
        }

        /// Who waits as long as was said is let through, and not a nanosecond earlier.
        #[test]
        fn the_wait_is_exact(tokens in 1_u32..2000, burst in 1_u32..20, taken in 1_u32..60, at in 0_u64..1 << 40) {
            let rate = Rate::new(tokens, Duration::from_secs(1), burst).unwrap();
            let (mut bucket, now) = (Bucket::default(), Duration::from_nanos(at));
            for _ in 0..taken {
                bucket.take(rate, now);
            }
            let wait = bucket.wait(rate, now);
            prop_assert_eq!(wait.is_zero(), taken < burst);
            prop_assert!(bucket.wait(rate, now + wait).is_zero());
            if let Some(earlier) = wait.checked_sub(Duration::from_nanos(1)) {
                prop_assert!(!bucket.wait(rate, now + earlier).is_zero());
            }
        }
    }
}
