//! The guest's two clocks in the units of the protocol.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

/// Unix time in nanoseconds; 0 for a clock before 1970.
pub(crate) fn wall_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Unix time in milliseconds.
pub(crate) fn wall_ms() -> u64 {
    wall_ns() / 1_000_000
}

/// Since boot, sleep included.
pub(crate) fn uptime_ms() -> u64 {
    let since = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(since.tv_sec).unwrap_or(0);
    seconds * 1000 + u64::try_from(since.tv_nsec).unwrap_or(0) / 1_000_000
}

/// How far the guest's clock is ahead of `wall_clock_ns`.
pub(crate) fn skew_ns(wall_clock_ns: u64) -> i64 {
    let skew = i128::from(wall_ns()) - i128::from(wall_clock_ns);
    i64::try_from(skew).unwrap_or(if skew < 0 { i64::MIN } else { i64::MAX })
}

/// Sets the wall clock.
pub(crate) fn set_wall(wall_clock_ns: u64) -> rustix::io::Result<()> {
    let seconds = i64::try_from(wall_clock_ns / 1_000_000_000).unwrap_or(i64::MAX);
    let nanoseconds = i64::try_from(wall_clock_ns % 1_000_000_000).unwrap_or(0);
    clock_settime(ClockId::Realtime, Timespec { tv_sec: seconds, tv_nsec: nanoseconds })
}
