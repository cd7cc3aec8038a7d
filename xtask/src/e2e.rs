//! `xtask e2e`: the tests that need microVMs, inside a host that has them.
//!
//! | step | what |
//! |---|---|
//! | 1 | binaries, assets and test binaries are built |
//! | 2 | a host boots; everything is shipped |
//! | 3 | the node's privileged tests run on the bare host |
//! | 4 | `space up` starts, and the suites of `tests/e2e` run against it, one after the other |
//! | 5 | the host powers off |
//!
//! A host that is lost on the way (hung, panicked) is started again once, loudly, and the run begins anew;
//! the second time is a failure. Nothing else is repeated.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use camino::Utf8PathBuf;

use crate::host::channel::{Ended, quoted};
use crate::host::image;
use crate::host::machine::{HostSpec, Machine};
use crate::provision::{self, INSIDE};
use crate::tests_inside::{self, Counts};
use crate::{assets, dist, exec, paths};

const HOST: &str = "e2e";
const SUITE_DEADLINE: Duration = Duration::from_mins(25);

/// Suites of `tests/e2e` in the order they run in: the ones that break things come last.
const SUITES: [&str; 4] = ["path", "work", "hostile", "faults"];

#[derive(Debug, clap::Args)]
pub(crate) struct E2eArgs {
    /// Only these suites: `privileged`, `path`, `work`, `hostile`, `faults`.
    #[arg(long = "suite")]
    suites: Vec<String>,
    /// Only tests whose name contains this.
    #[arg(long)]
    filter: Option<String>,
    /// Memory of the host in MiB.
    #[arg(short, long, default_value_t = 8192)]
    memory: u32,
    /// How many tests run at once.
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// Use the binaries, assets and tests of the last run as they are.
    #[arg(long)]
    no_build: bool,
    /// Leave the host running afterwards, for a look around.
    #[arg(long)]
    keep: bool,
}

/// What the run came to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) counts: Counts,
    pub(crate) restarts: u32,
}

/// Why a run ended early.
enum Stopped {
    HostLost(String),
    Error(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Stopped {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// Builds and runs everything; an `Err` is a run that could not be done.
pub(crate) fn run(args: &E2eArgs) -> Result<Outcome> {
    let tests = if args.no_build { tests_dir() } else { build(args)? };
    let image = image::ready()?;
    let mut restarts = 0;
    loop {
        match once(args, &tests, &image) {
            Ok(counts) => return Ok(Outcome { counts, restarts }),
            Err(Stopped::HostLost(reason)) if restarts == 0 => {
                restarts += 1;
                eprintln!("==== HOST LOST: {reason}. Starting it again, once; the tests begin anew.");
                save_logs();
                if let Some(machine) = Machine::find(HOST)? {
                    machine.kill()?;
                }
            }
            Err(Stopped::HostLost(reason)) => {
                save_logs();
                bail!("the host was lost a second time: {reason}");
            }
            Err(Stopped::Error(error)) => {
                save_logs();
                return Err(error);
            }
        }
    }
}

fn wants(args: &E2eArgs, suite: &str) -> bool {
    args.suites.is_empty() || args.suites.iter().any(|wanted| wanted == suite)
}

fn tests_dir() -> Utf8PathBuf {
    paths::space().join("tests")
}

fn build(args: &E2eArgs) -> Result<Utf8PathBuf> {
    dist::ready()?;
    assets::ready()?;
    let dir = tests_dir();
    crate::cache::remove_dir(&dir)?;
    if wants(args, "privileged") {
        let arguments = ["--features", "privileged", "--test", "privileged"];
        tests_inside::build("space-node", &arguments, &dir)?;
    }
    let wanted: Vec<&str> = SUITES.into_iter().filter(|suite| wants(args, suite)).collect();
    if !wanted.is_empty() {
        let arguments: Vec<&str> = wanted.iter().flat_map(|suite| ["--test", suite]).collect();
        tests_inside::build("space-e2e", &arguments, &dir)?;
    }
    Ok(dir)
}

fn once(args: &E2eArgs, tests: &Utf8PathBuf, image: &image::HostImage) -> Result<Counts, Stopped> {
    let spec = HostSpec {
        memory: args.memory,
        smp: 1,
        forwards: Vec::new(),
        keep_data: false,
        payload: Some(provision::payload()?),
    };
    let machine = Machine::start(HOST, &spec, image)?;
    provision::ship(&machine)?;
    machine.copy_in(std::slice::from_ref(tests), INSIDE)?;
    let mut counts = Counts::default();
    if wants(args, "privileged") {
        counts += suite(&machine, args, "privileged")?;
    }
    if SUITES.into_iter().any(|name| wants(args, name)) {
        provision::up(&machine, "")?;
        for name in SUITES.into_iter().filter(|name| wants(args, name)) {
            counts += suite(&machine, args, name)?;
        }
    }
    if counts.failed > 0 {
        save_logs();
    }
    if args.keep {
        eprintln!("the host runs on: cargo xtask host run --name {HOST} -- …");
    } else {
        machine.stop()?;
    }
    Ok(counts)
}

/// Runs one test binary and counts. A binary that dies without a result counts as one failure.
fn suite(machine: &Machine, args: &E2eArgs, name: &str) -> Result<Counts, Stopped> {
    eprintln!("==== {name}");
    let started = Instant::now();
    let line = format!(
        "cd {INSIDE} && TMPDIR=/var/lib/space PATH={INSIDE}/bin:$PATH SPACE_ASSETS={INSIDE}/assets \
         SPACE_BIN={INSIDE}/bin RUST_BACKTRACE=1 {INSIDE}/tests/{name} --test-threads={} {} 2>&1",
        args.threads,
        args.filter.as_deref().map(quoted).unwrap_or_default(),
    );
    let mut counts = None;
    let ended = machine.run_lines(&line, Some(SUITE_DEADLINE), |line| {
        println!("{line}");
        counts = counts.or(Counts::from_libtest(line));
    })?;
    eprintln!("==== {name}: {}", exec::seconds(started.elapsed()));
    match (ended, counts) {
        (Ended::HostLost(reason), _) => Err(Stopped::HostLost(reason)),
        (Ended::Code(_), Some(counts)) => Ok(counts),
        (Ended::Code(code), None) => {
            eprintln!("{name} ended with code {code} and no result");
            Ok(Counts { passed: 0, failed: 1 })
        }
        (Ended::TimedOut, _) => {
            eprintln!("{name} ran out of time");
            Ok(Counts { passed: 0, failed: 1 })
        }
    }
}

/// Logs are a help, not a verdict: what goes wrong here is said and that is all.
fn save_logs() {
    let to = paths::logs().join(HOST);
    let saved = Machine::find(HOST).and_then(|machine| match machine {
        Some(machine) => provision::fetch_logs(&machine, &to),
        None => Ok(()),
    });
    match saved {
        Ok(()) => eprintln!("logs are in {to}"),
        Err(error) => eprintln!("cannot fetch the logs: {error:#}"),
    }
    eprintln!("---- end of the host's console");
    eprintln!("{}", exec::tail(&crate::host::machine::dir(HOST).join("console.log"), 30));
}
