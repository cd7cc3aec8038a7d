//! `xtask e2e`: the tests that need microVMs, inside a host that has them.
//!
//! | step | what |
//! |---|---|
//! | 1 | binaries, assets and test binaries are built |
//! | 2 | two hosts boot, for a host uses one processor; everything is shipped |
//! | 3 | the node's privileged tests run on the bare host |
//! | 4 | `space up` starts, and suites of `tests/e2e` run against it, one after the other |
//! | 5 | the hosts power off |
//!
//! A host that is lost on the way (hung, panicked) is started again once, loudly, and its suites begin anew;
//! the second time is a failure. Nothing else is repeated.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use clap::builder::PossibleValuesParser;

use crate::failures::{Failure, LibtestFailures};
use crate::host::channel::{Ended, quoted};
use crate::host::image;
use crate::host::machine::{HostSpec, Machine};
use crate::provision::{self, INSIDE};
use crate::tests_inside::{self, Counts, Outcome};
use crate::{assets, dist, exec, paths};

const SUITE_DEADLINE: Duration = Duration::from_mins(25);

/// The node's own tests, on a host without a SPACE.
const PRIVILEGED: &str = "privileged";

/// Lets the suites arm a fail point for a daemon's next start.
const FAIL_POINTS: &str = "SPACE_FAIL_POINT_DIR=/run/space";

/// One host and the suites that run in it, in their order: the ones that break things come last.
#[derive(Debug, Clone, Copy)]
struct Lane {
    host: &'static str,
    suites: &'static [&'static str],
}

/// Two of about the same length.
const LANES: [Lane; 2] = [
    Lane { host: "e2e-1", suites: &[PRIVILEGED, "path", "surface", "work", "hostile", "faults"] },
    Lane { host: "e2e-2", suites: &["guides", "deaths"] },
];

#[derive(Debug, clap::Args)]
pub(crate) struct E2eArgs {
    /// Only these suites.
    #[arg(long = "suite", value_parser = PossibleValuesParser::new(suites()))]
    suites: Vec<String>,
    /// Only tests whose name contains this.
    #[arg(long)]
    filter: Option<String>,
    /// Memory of each host in MiB.
    #[arg(short, long, default_value_t = 6144)]
    memory: u32,
    /// How many tests run at once.
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// Use the binaries, assets and tests of the last run as they are.
    #[arg(long)]
    no_build: bool,
    /// Leave the hosts running afterwards, for a look around.
    #[arg(long)]
    keep: bool,
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

/// Builds and runs everything, and says how often a host had to be started again; an `Err` is a run that could not be
/// done.
pub(crate) fn run(args: &E2eArgs) -> Result<(Outcome, u32)> {
    let tests = if args.no_build { tests_dir() } else { build()? };
    let image = image::ready()?;
    let payload = provision::payload()?;
    let lanes: Vec<Lane> =
        LANES.into_iter().filter(|lane| lane.suites.iter().any(|suite| wants(args, suite))).collect();
    let ran: Vec<Result<(Outcome, u32)>> = std::thread::scope(|scope| {
        let start = |lane: &Lane| {
            let (lane, tests, image, payload) = (*lane, &tests, &image, &payload);
            scope.spawn(move || lane.run(args, tests, image, payload))
        };
        let threads: Vec<_> = lanes.iter().map(start).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_panic| bail!("a lane of the tests panicked"))
        };
        threads.into_iter().map(join).collect()
    });
    let mut all = (Outcome::default(), 0);
    for ran in ran {
        let (outcome, restarts) = ran?;
        all.0 += outcome;
        all.1 += restarts;
    }
    Ok(all)
}

fn suites() -> impl Iterator<Item = &'static str> {
    LANES.into_iter().flat_map(|lane| lane.suites).copied()
}

fn wants(args: &E2eArgs, suite: &str) -> bool {
    args.suites.is_empty() || args.suites.iter().any(|wanted| wanted == suite)
}

fn tests_dir() -> Utf8PathBuf {
    paths::space().join("tests")
}

fn build() -> Result<Utf8PathBuf> {
    dist::ready()?;
    assets::ready()?;
    let dir = tests_dir();
    crate::cache::remove_dir(&dir)?;
    let arguments: Vec<&str> = suites().flat_map(|suite| ["--test", suite]).collect();
    tests_inside::build(&arguments, &dir)?;
    Ok(dir)
}

impl Lane {
    fn run(
        self,
        args: &E2eArgs,
        tests: &Utf8Path,
        image: &image::HostImage,
        payload: &Utf8Path,
    ) -> Result<(Outcome, u32)> {
        let mut restarts = 0;
        loop {
            match self.once(args, tests, image, payload) {
                Ok(outcome) => return Ok((outcome, restarts)),
                Err(Stopped::HostLost(reason)) if restarts == 0 => {
                    restarts += 1;
                    eprintln!("==== HOST LOST: {reason}. Starting it again, once; its suites begin anew.");
                    self.save_logs();
                    if let Some(machine) = Machine::find(self.host)? {
                        machine.kill()?;
                    }
                }
                Err(Stopped::HostLost(reason)) => {
                    self.save_logs();
                    bail!("host {} was lost a second time: {reason}", self.host);
                }
                Err(Stopped::Error(error)) => {
                    self.save_logs();
                    return Err(error);
                }
            }
        }
    }

    fn once(
        self,
        args: &E2eArgs,
        tests: &Utf8Path,
        image: &image::HostImage,
        payload: &Utf8Path,
    ) -> Result<Outcome, Stopped> {
        let spec = HostSpec {
            memory: args.memory,
            smp: 1,
            forwards: Vec::new(),
            keep_data: false,
            payload: Some(payload.to_owned()),
        };
        let machine = Machine::start(self.host, &spec, image)?;
        provision::ship(&machine)?;
        machine.copy_in(&[tests.to_owned()], INSIDE)?;
        let mut all = Outcome::default();
        let mut is_up = false;
        for name in self.suites.iter().copied().filter(|name| wants(args, name)) {
            if name != PRIVILEGED && !is_up {
                provision::up(&machine, FAIL_POINTS)?;
                is_up = true;
            }
            all += suite(&machine, args, name)?;
        }
        if all.counts.failed > 0 {
            self.save_logs();
        }
        if args.keep {
            eprintln!("the host runs on: cargo xtask host run --name {} -- …", self.host);
        } else {
            machine.stop()?;
        }
        Ok(all)
    }

    /// Logs are a help, not a verdict: what goes wrong here is said and that is all.
    fn save_logs(self) {
        let to = paths::logs().join(self.host);
        let saved = Machine::find(self.host).and_then(|machine| match machine {
            Some(machine) => provision::fetch_logs(&machine, &to),
            None => Ok(()),
        });
        match saved {
            Ok(()) => eprintln!("logs are in {to}"),
            Err(error) => eprintln!("cannot fetch the logs: {error:#}"),
        }
        eprintln!("---- end of the console of {}", self.host);
        eprintln!("{}", exec::tail(&crate::host::machine::dir(self.host).join("console.log"), 30));
    }
}

/// Runs one test binary and counts. A binary that dies without a result counts as one failure.
fn suite(machine: &Machine, args: &E2eArgs, name: &str) -> Result<Outcome, Stopped> {
    eprintln!("==== {name}");
    let started = Instant::now();
    let line = format!(
        "cd {INSIDE} && TMPDIR=/var/lib/space PATH={INSIDE}/bin:$PATH SPACE_ASSETS={INSIDE}/assets \
         SPACE_BIN={INSIDE}/bin RUST_BACKTRACE=1 {INSIDE}/tests/{name} --nocapture --test-threads={} {} 2>&1",
        args.threads,
        args.filter.as_deref().map(quoted).unwrap_or_default(),
    );
    let mut counts = None;
    let mut failures = LibtestFailures::new(name);
    let ended = machine.run_lines(&line, Some(SUITE_DEADLINE), |line| {
        println!("{name:>10} | {line}");
        failures.line(line);
        counts = counts.or(Counts::from_libtest(line));
    })?;
    eprintln!("==== {name}: {}", exec::seconds(started.elapsed()));
    let mut failures = failures.found;
    let died = match (ended, counts) {
        (Ended::HostLost(reason), _) => return Err(Stopped::HostLost(reason)),
        (Ended::Code(_), Some(counts)) => return Ok(Outcome { counts, failures }),
        (Ended::Code(code), None) => format!("ended with code {code} and no result"),
        (Ended::TimedOut, _) => "ran out of time".to_owned(),
    };
    eprintln!("{name} {died}");
    failures.push(Failure::new(name, died));
    Ok(Outcome { counts: Counts { passed: 0, failed: 1 }, failures })
}
