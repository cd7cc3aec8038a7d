//! Unit and integration tests that need no microVM, under nextest.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::failures::NextestFailures;
use crate::tests_inside::{Counts, Outcome};
use crate::{exec, paths};

/// Runs them all and counts.
pub(crate) fn run() -> Result<Outcome> {
    if !exec::found_cargo_tool("nextest") {
        bail!("cargo-nextest is missing; `cargo xtask setup` installs it");
    }
    let mut child = Command::new(env!("CARGO"))
        .args(["nextest", "run", "--workspace", "--profile", "ci", "--no-fail-fast"])
        .current_dir(paths::root())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run cargo nextest")?;
    let stderr = child.stderr.take().context("nextest has an output")?;
    let mut counts = None;
    let mut failures = NextestFailures::default();
    for line in BufReader::new(stderr).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        eprintln!("{line}");
        failures.line(&line);
        counts = from_nextest(&line).or(counts);
    }
    let status = child.wait()?;
    match counts {
        Some(counts) if status.success() || counts.failed > 0 => {
            Ok(Outcome { counts, failures: failures.found })
        }
        Some(_) | None => bail!("cargo nextest ended with {status}"),
    }
}

/// Reads nextest's closing line: `Summary [ 1.5s] 12 tests run: 11 passed (1 slow), 1 failed, 2 skipped`.
fn from_nextest(line: &str) -> Option<Counts> {
    let (_, counts) = line.split_once(" run: ").filter(|_| line.contains("Summary ["))?;
    let number = |names: &[&str]| -> u64 {
        counts
            .split(", ")
            .filter(|part| names.iter().any(|name| part.contains(name)))
            .filter_map(|part| part.split_whitespace().next()?.parse::<u64>().ok())
            .sum()
    };
    Some(Counts { passed: number(&["passed"]), failed: number(&["failed", "timed out"]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_of_nextest_is_counted() {
        let line =
            "     Summary [   1.503s] 12 tests run: 10 passed (1 slow), 1 failed, 1 timed out, 2 skipped";
        assert_eq!(from_nextest(line), Some(Counts { passed: 10, failed: 2 }));
    }
}
