//! A series of durations, and what is quoted of it.

use std::time::Duration;

use serde_json::{Value, json};

#[derive(Debug, Default)]
pub(crate) struct Series(Vec<f64>);

impl Series {
    pub(crate) fn push(&mut self, duration: Duration) {
        self.0.push(duration.as_secs_f64() * 1e3);
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub(crate) fn p90(&self) -> f64 {
        self.quantile(0.9)
    }

    fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index into a short list"
        )]
        let index = (part * sorted.len() as f64) as usize;
        sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "runs": self.0.len(), "p50": self.median(), "p90": self.p90(), "all": self.0 })
    }
}
