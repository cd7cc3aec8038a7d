//! Closed-loop load: so many clients, each with one request at a time.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::Result;
use futures::future::try_join_all;
use serde_json::{Value, json};

pub(crate) struct Load {
    /// Milliseconds, sorted.
    latencies: Vec<f64>,
    took: Duration,
}

impl Load {
    pub(crate) async fn for_count<F: Future<Output = Result<()>>>(
        clients: usize,
        count: usize,
        request: impl Fn() -> F,
    ) -> Result<Self> {
        let left = AtomicUsize::new(count);
        let more =
            || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        Self::run(clients, more, request).await
    }

    pub(crate) async fn for_time<F: Future<Output = Result<()>>>(
        clients: usize,
        time: Duration,
        request: impl Fn() -> F,
    ) -> Result<Self> {
        let end = Instant::now() + time;
        Self::run(clients, || Instant::now() < end, request).await
    }

    async fn run<F: Future<Output = Result<()>>>(
        clients: usize,
        more: impl Fn() -> bool,
        request: impl Fn() -> F,
    ) -> Result<Self> {
        let (started, more, request) = (Instant::now(), &more, &request);
        let client = || async move {
            let mut latencies = Vec::new();
            while more() {
                let begun = Instant::now();
                request().await?;
                latencies.push(begun.elapsed().as_secs_f64() * 1e3);
            }
            anyhow::Ok(latencies)
        };
        let mut latencies = try_join_all((0..clients).map(|_| client())).await?.concat();
        latencies.sort_by(f64::total_cmp);
        Ok(Self { latencies, took: started.elapsed() })
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.took.as_secs_f64()
    }

    pub(crate) fn p99(&self) -> f64 {
        self.quantile(99)
    }

    fn quantile(&self, percent: usize) -> f64 {
        let index = self.latencies.len() * percent / 100;
        self.latencies.get(index.min(self.latencies.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "requests": self.latencies.len(), "per_second": self.per_second(),
            "p50_ms": self.quantile(50), "p90_ms": self.quantile(90), "p99_ms": self.p99(),
        })
    }
}
