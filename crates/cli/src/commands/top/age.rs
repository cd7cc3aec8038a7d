//! How long ago something was, as short as it can be read.

use space_api::Timestamp;

/// `5s`, `3m20s`, `2h05m`, `4d03h`. What the clocks here and there disagree about is no time.
pub(super) fn age(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.unix_milliseconds().saturating_sub(at.unix_milliseconds()).max(0) / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, ..) => format!("{hours}h{:02}m", minutes % 60),
        (..) => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_two_units_at_most() {
        let shown = [-5, 0, 59, 60, 3599, 3600, 86_399, 90_000].map(|seconds: i64| {
            age(Timestamp::from_unix_milliseconds(0), Timestamp::from_unix_milliseconds(seconds * 1000))
        });
        assert_eq!(shown, ["0s", "0s", "59s", "1m00s", "59m59s", "1h00m", "23h59m", "1d01h"]);
    }
}
