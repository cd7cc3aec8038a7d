//! Settings of the worker, from flags or the environment. noded sets them when it starts one.

use std::time::Duration;

use clap::Args;

use crate::spool::SpoolLimits;

/// What noded decides.
#[derive(Debug, Clone, Args)]
pub struct SandboxdConfig {
    /// Seconds that a guest's agent gets to answer, after its start and whenever its connection is lost.
    #[arg(long, env = "SPACE_SANDBOXD_BOOT_DEADLINE", default_value = "60", value_parser = seconds)]
    pub boot_deadline: Duration,

    /// Seconds that a guest gets to answer one request, and a client for the first message of an upload or a tunnel.
    #[arg(long, env = "SPACE_SANDBOXD_REQUEST_DEADLINE", default_value = "30", value_parser = seconds)]
    pub request_deadline: Duration,

    /// Seconds between two lines with counters in the log.
    #[arg(long, env = "SPACE_SANDBOXD_SUMMARY_INTERVAL", default_value = "300", value_parser = seconds)]
    pub summary_interval: Duration,

    /// The sizes of spools; tests make them small.
    #[arg(skip)]
    pub spool_limits: SpoolLimits,

    /// What to log, as a filter of tracing-subscriber.
    #[arg(long, env = "SPACE_SANDBOXD_LOG", default_value = "info")]
    pub log: String,
}

#[derive(Debug, thiserror::Error)]
#[error("expected a number of seconds between 0.001 and 86400")]
struct SecondsError;

fn seconds(text: &str) -> Result<Duration, SecondsError> {
    let seconds = text.parse::<f64>().ok().filter(|s| (0.001..=86_400.0).contains(s)).ok_or(SecondsError)?;
    Duration::try_from_secs_f64(seconds).ok().ok_or(SecondsError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_positive_and_finite() {
        assert_eq!(seconds("1.5").unwrap(), Duration::from_millis(1500));
        for text in ["0", "-1", "NaN", "inf", "1e9", "", "1s"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
