//! A bounded number of buckets, by whom they belong to.
//!
//! A full bucket is forgotten, since it says nothing. That happens when the number has doubled since the last time, so
//! it costs a request nothing on average. Where that leaves more than half of the most, every second one is forgotten
//! too, and its owner forgiven: a flood from very many addresses must neither fill the memory nor lock out whoever
//! comes later.

use std::{collections::HashMap, hash::Hash, time::Duration};

use super::bucket::{Bucket, Rate};

/// About 4 MiB for the largest key.
const MOST: usize = 1 << 16;
const FEWEST: usize = 1 << 10;

#[derive(Debug)]
pub struct Buckets<K> {
    rate: Option<Rate>,
    by_owner: HashMap<K, Bucket>,
    /// With so many the full ones are forgotten.
    sweep_at: usize,
}

impl<K: Eq + Hash> Buckets<K> {
    /// No rate: no limit.
    pub fn new(rate: Option<Rate>) -> Self {
        Self { rate, by_owner: HashMap::new(), sweep_at: FEWEST }
    }

    /// How long until a request of this owner may pass; zero: now.
    pub fn wait(&self, owner: &K, now: Duration) -> Duration {
        match (self.rate, self.by_owner.get(owner)) {
            (Some(rate), Some(bucket)) => bucket.wait(rate, now),
            (Some(_), None) | (None, _) => Duration::ZERO,
        }
    }

    pub fn take(&mut self, owner: K, now: Duration) {
        let Some(rate) = self.rate else { return };
        if self.by_owner.len() >= self.sweep_at && !self.by_owner.contains_key(&owner) {
            self.sweep(now);
        }
        self.by_owner.entry(owner).or_default().take(rate, now);
    }

    fn sweep(&mut self, now: Duration) {
        self.by_owner.retain(|_, bucket| !bucket.is_full(now));
        if self.by_owner.len() > MOST / 2 {
            let mut is_kept = false;
            self.by_owner.retain(|_, _| {
                is_kept = !is_kept;
                is_kept
            });
        }
        self.sweep_at = (self.by_owner.len() * 2).clamp(FEWEST, MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_a_minute() -> Buckets<usize> {
        Buckets::new(Rate::new(1, Duration::from_mins(1), 1))
    }

    #[test]
    fn owners_do_not_share_a_bucket() {
        let (mut buckets, now) = (one_a_minute(), Duration::ZERO);
        buckets.take(1, now);
        assert_eq!((buckets.wait(&1, now), buckets.wait(&2, now)), (Duration::from_mins(1), Duration::ZERO));
    }

    #[test]
    fn without_a_rate_nothing_is_kept() {
        let mut buckets = Buckets::new(None);
        for _ in 0..10 {
            buckets.take(1, Duration::ZERO);
        }
        assert!(buckets.wait(&1, Duration::ZERO).is_zero() && buckets.by_owner.is_empty());
    }

    #[test]
    fn full_buckets_are_forgotten_and_others_kept() {
        let mut buckets = one_a_minute();
        for owner in 0..FEWEST - 1 {
            buckets.take(owner, Duration::ZERO);
        }
        let later = Duration::from_mins(1);
        buckets.take(FEWEST, later);
        buckets.take(FEWEST + 1, later);
        assert_eq!(buckets.by_owner.len(), 2);
        assert!(!buckets.wait(&FEWEST, later).is_zero());
    }

    #[test]
    fn there_are_never_more_than_the_most() {
        let mut buckets = one_a_minute();
        for owner in 0..MOST * 3 {
            buckets.take(owner, Duration::ZERO);
            assert!(buckets.by_owner.len() <= MOST);
        }
    }
}
