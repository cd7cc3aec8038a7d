//! `xtask fuzz`: the fuzz targets under libFuzzer, for seconds in CI and as long as asked here.
//!
//! Our own crates are compiled with coverage (`crates/fuzz/instrument`), everything else is the build that is there
//! already. What is found lies under `target/space/fuzz/` until somebody takes it into the corpus; a finding is printed
//! with the command that shows it again.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};

use crate::failures::Failure;
use crate::tests_inside::{Counts, Outcome};
use crate::{exec, paths};

#[derive(Debug, clap::Args)]
pub(crate) struct FuzzArgs {
    /// How long each target runs.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Try the same inputs in the same order each time, beginning with the corpus alone.
    #[arg(long)]
    seed: Option<u32>,
    /// Write the inputs that reach something new into the corpus, the smallest set of them.
    #[arg(long, conflicts_with = "replay")]
    keep: bool,
    /// Run this one input instead of looking for others.
    #[arg(long, requires = "target")]
    replay: Option<Utf8PathBuf>,
    /// A directory of `crates/fuzz/corpus/`; all of them without it.
    target: Option<String>,
}

/// In `xtask test`. All targets together take less than a minute.
const CI_SECONDS: u64 = 3;
const CI_SEED: u32 = 1;
/// One input may take this long on a busy machine.
const INPUT_SECONDS: u64 = 10;
/// Of the whole process; what one input may take is each target's own limit.
const MEMORY_MIB: u64 = 1024;
/// Beyond the time that was asked for: the corpus is read, and the last input ends.
const GRACE: Duration = Duration::from_mins(1);

/// What `xtask test` does: every target for a few seconds, the same ones each time. A change is judged by itself, and not by
/// who is lucky; luck is what the command is for.
pub(crate) fn in_brief() -> Result<Outcome> {
    run(&FuzzArgs { seconds: CI_SECONDS, seed: Some(CI_SEED), keep: false, replay: None, target: None })
}

/// Runs what was asked for; a target in which something was found counts as failed.
pub(crate) fn run(args: &FuzzArgs) -> Result<Outcome> {
    let targets = chosen(args.target.as_deref())?;
    let program = build()?;
    let mut all = Outcome::default();
    for name in targets {
        let target = Target { program: &program, name };
        let passed = match &args.replay {
            Some(input) => target.replay(input)?,
            None => target.fuzz(args.seconds, args.seed)?,
        };
        if passed && args.keep {
            target.keep()?;
        }
        all.counts += Counts { passed: u64::from(passed), failed: u64::from(!passed) };
        if !passed {
            let log = paths::logs().join(format!("fuzz-{}.log", target.name));
            all.failures.push(Failure::new(format!("fuzz: {}", target.name), exec::tail(&log, 6)));
        }
    }
    Ok(all)
}

fn corpus() -> Utf8PathBuf {
    paths::root().join("crates/fuzz/corpus")
}

/// A target is what has a corpus; a test sees to it that the two are the same.
fn chosen(wanted: Option<&str>) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in corpus().read_dir_utf8().context("there is no corpus")? {
        names.push(entry?.file_name().to_owned());
    }
    names.sort();
    match wanted {
        None => Ok(names),
        Some(name) if names.iter().any(|known| known == name) => Ok(vec![name.to_owned()]),
        Some(name) => bail!("there is no target {name:?}; there are {}", names.join(", ")),
    }
}

fn build() -> Result<Utf8PathBuf> {
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["build", "--package", "space-fuzz", "--features", "libfuzzer", "--bin", "space-fuzz"])
        .env("RUSTC_WORKSPACE_WRAPPER", paths::root().join("crates/fuzz/instrument"))
        .current_dir(paths::root());
    exec::logged("building the fuzz targets", "fuzz-build", &mut command)?;
    Ok(paths::target().join("debug/space-fuzz"))
}

struct Target<'a> {
    program: &'a Utf8Path,
    name: String,
}

impl Target<'_> {
    /// Whether nothing was found.
    fn fuzz(&self, seconds: u64, seed: Option<u32>) -> Result<bool> {
        let artifacts = self.directory("artifacts")?;
        let found = if seed.is_some() {
            let empty = self.directory("seeded")?;
            fs::remove_dir_all(&empty).with_context(|| format!("cannot empty {empty}"))?;
            self.directory("seeded")?
        } else {
            self.directory("corpus")?
        };
        let log = paths::logs().join(format!("fuzz-{}.log", self.name));
        fs::create_dir_all(paths::logs())?;
        let output = fs::File::create(&log).with_context(|| format!("cannot make {log}"))?;
        let mut child = self
            .command()
            .args([format!("-max_total_time={seconds}"), format!("-artifact_prefix={artifacts}/")])
            .args(seed.map(|seed| format!("-seed={seed}")))
            .args([found.as_str(), corpus().join(&self.name).as_str()])
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot run {}", self.program))?;
        let started = Instant::now();
        let ended = exec::wait_for(&mut child, Duration::from_secs(seconds) + GRACE)?;
        let Some(status) = ended else {
            child.kill()?;
            child.wait()?;
            bail!("{} does not end after {seconds} s (log: {log})", self.name);
        };
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        eprintln!("== fuzz: {:<19} {} in {}", self.name, summary(&text), exec::seconds(started.elapsed()));
        if !status.success() {
            eprintln!("{}", exec::tail(&log, 30));
            for input in saved(&text) {
                eprintln!("shown again by: cargo xtask fuzz --replay {input} {}", self.name);
                eprintln!("kept for good by: cp {input} crates/fuzz/corpus/{}/WHAT_IT_IS", self.name);
            }
        }
        Ok(status.success())
    }

    fn replay(&self, input: &Utf8Path) -> Result<bool> {
        let input = input.canonicalize_utf8().with_context(|| format!("no {input}"))?;
        let status = self.command().arg(input).status().context("cannot run the target")?;
        Ok(status.success())
    }

    /// Adds to the corpus what reaches something that it does not, and no more than that takes.
    fn keep(&self) -> Result<()> {
        let (kept, found) = (corpus().join(&self.name), self.directory("corpus")?);
        let name = format!("fuzz-{}-merge", self.name);
        exec::logged(
            &format!("{}: choosing inputs", self.name),
            &name,
            self.command().arg("-merge=1").args([kept.as_str(), found.as_str()]),
        )
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command
            .env("SPACE_FUZZ_TARGET", &self.name)
            .env("RUST_BACKTRACE", "1")
            .args([format!("-timeout={INPUT_SECONDS}"), format!("-rss_limit_mb={MEMORY_MIB}")])
            // Prefixes of lengths decide much here, so long inputs are tried from the start.
            .args(["-len_control=0", "-print_final_stats=1", "-use_value_profile=1"])
            .current_dir(paths::root());
        command
    }

    fn directory(&self, kind: &str) -> Result<Utf8PathBuf> {
        let directory = paths::space().join("fuzz").join(kind).join(&self.name);
        fs::create_dir_all(&directory).with_context(|| format!("cannot make {directory}"))?;
        Ok(directory)
    }
}

/// `12345 runs, 678 edges` out of libFuzzer's log.
fn summary(log: &str) -> String {
    let number = |line: &str, word: &str| -> Option<u64> {
        line.split_once(word)?.1.split_whitespace().next()?.parse().ok()
    };
    let runs = log.lines().find_map(|line| number(line, "stat::number_of_executed_units:"));
    let edges = log.lines().filter_map(|line| number(line, " cov: ")).next_back();
    format!("{} runs, {} edges", runs.unwrap_or(0), edges.unwrap_or(0))
}

/// The inputs that libFuzzer saved.
fn saved(log: &str) -> Vec<&str> {
    log.lines().filter_map(|line| line.split_once("Test unit written to ").map(|(_, path)| path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "#2\tINITED cov: 12 ft: 13 corp: 1/1b\n\
        #80\tNEW    cov: 40 ft: 51 corp: 2/9b lim: 64 exec/s: 0\n\
        artifact_prefix='/t/'; Test unit written to /t/crash-0a\n\
        stat::number_of_executed_units: 91234\n";

    #[test]
    fn the_log_of_a_run_is_told_in_one_line() {
        assert_eq!(summary(LOG), "91234 runs, 40 edges");
        assert_eq!(saved(LOG), ["/t/crash-0a"]);
    }

    #[test]
    fn a_target_that_does_not_exist_is_told_with_those_that_do() {
        assert_eq!(chosen(Some("archive")).unwrap(), ["archive"]);
        let error = chosen(Some("nothing")).unwrap_err().to_string();
        assert!(error.contains("archive"), "{error}");
    }
}
