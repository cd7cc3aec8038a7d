//! Test binaries: built here, run inside a host, counted.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use serde_json::Value;

use crate::failures::Failure;
use crate::{dist, paths};

/// What tests came to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) counts: Counts,
    pub(crate) failures: Vec<Failure>,
}

impl std::ops::AddAssign for Outcome {
    fn add_assign(&mut self, other: Self) {
        self.counts += other.counts;
        self.failures.extend(other.failures);
    }
}

/// How every run ends: what failed, and the line of counts.
impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.failures.iter().try_for_each(|failure| writeln!(f, "{failure}"))?;
        write!(f, "{}", self.counts)
    }
}

/// How many tests passed and failed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

impl Counts {
    /// Reads libtest's closing line: `test result: ok. 3 passed; 0 failed; …`.
    pub(crate) fn from_libtest(line: &str) -> Option<Self> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let number = |name: &str| {
            counts.split(';').find_map(|part| part.trim().strip_suffix(name)?.trim().parse().ok())
        };
        Some(Self { passed: number("passed")?, failed: number("failed")? })
    }
}

/// Always the same packages: another choice would be another choice of features, for which every dependency
/// would be compiled again.
const PACKAGES: [&str; 6] =
    ["--package", "space-node", "--features", "space-node/privileged", "--package", "space-e2e"];

/// Builds the test and bench targets that `arguments` choose, in release, and puts them, stripped, into `to`.
pub(crate) fn build(arguments: &[&str], to: &Utf8Path) -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["test", "--no-run", "--release"])
        .args(["--message-format=json-render-diagnostics"])
        .args(PACKAGES)
        .args(arguments)
        .current_dir(paths::root())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if let Some(target) = dist::target()? {
        cargo.args(["--target", target]);
    }
    let mut child = cargo.spawn().context("cannot run cargo")?;
    let stdout = child.stdout.take().context("cargo has an output")?;
    let mut built = Vec::new();
    for line in BufReader::new(stdout).lines() {
        built.extend(artifact(&line?));
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("building the tests: cargo ended with {status}");
    }
    std::fs::create_dir_all(to)?;
    for (name, path) in &built {
        dist::copy(path, &to.join(name))?;
    }
    Ok(())
}

/// Name and path of an executable that one of cargo's messages announces.
fn artifact(line: &str) -> Option<(String, Utf8PathBuf)> {
    let message: Value = serde_json::from_str(line).ok()?;
    let path = message.get("executable")?.as_str()?;
    let name = message.get("target")?.get("name")?.as_str()?;
    Some((name.to_owned(), path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_of_libtest_is_counted() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out";
        let counts = Counts::from_libtest(line);
        assert_eq!(counts, Some(Counts { passed: 12, failed: 3 }));
    }

    #[test]
    fn other_lines_count_nothing() {
        assert_eq!(Counts::from_libtest("test stop_is_idempotent ... ok"), None);
    }
}
