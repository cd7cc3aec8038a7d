//! `xtask test`: everything that CI runs, in one order: checks, tests without microVMs, a little fuzzing, tests with
//! microVMs.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::check::CheckArgs;
use crate::e2e::{self, E2eArgs};
use crate::setup::Purpose;
use crate::tests_inside::Outcome;
use crate::{check, exec, fuzz, setup, unit};

/// Runs it all. The last line is `N passed, N failed`; `Ok(false)` means that tests failed.
pub(crate) fn run(e2e_args: &E2eArgs) -> Result<bool> {
    setup::require(Purpose::Test)?;
    let mut times: Vec<(&str, Duration)> = Vec::new();
    let mut timed = |name, started: Instant| times.push((name, started.elapsed()));
    let mut all = Outcome::default();

    let started = Instant::now();
    check::run(&CheckArgs::default())?;
    timed("check", started);

    let started = Instant::now();
    all += unit::run()?;
    timed("unit", started);

    let started = Instant::now();
    all += fuzz::in_brief()?;
    timed("fuzz", started);

    let started = Instant::now();
    let (outcome, restarts) = e2e::run(e2e_args)?;
    all += outcome;
    timed("e2e", started);

    println!();
    for (name, took) in times {
        println!("{name:>8}  {}", exec::seconds(took));
    }
    println!("host restarts: {restarts}");
    println!("{all}");
    Ok(all.counts.failed == 0)
}
