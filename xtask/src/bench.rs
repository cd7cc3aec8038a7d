//! `xtask bench`: `space-bench` inside the emulated host, next to a SPACE of its own.
//!
//! `xtask bench control`: the control plane with simulated nodes, on this machine.
//!
//! Times measured in there mean nothing by themselves; the ratios of one run do. The table goes to the
//! terminal, what the bench writes to `target/space/bench/`.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::host::machine::{HostSpec, Machine};
use crate::host::{expect_success, image};
use crate::provision::{self, INSIDE};
use crate::{assets, dist, paths, tests_inside};

const HOST: &str = "bench";
const DEADLINE: Duration = Duration::from_mins(40);

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Subject {
    /// Sandboxes, in the emulated host.
    Sandbox,
    /// The control plane, with simulated nodes.
    Control,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    #[arg(value_enum, default_value = "sandbox")]
    subject: Subject,
    /// Memory of the host in MiB.
    #[arg(short, long, default_value_t = 8192)]
    memory: u32,
    /// How many pairs of creates.
    #[arg(long, default_value_t = 20)]
    creates: u32,
    /// MiB of output, and of a file each way.
    #[arg(long, default_value_t = 1024)]
    stream_mib: u32,
    /// Leave the host running afterwards.
    #[arg(long)]
    keep: bool,
}

/// Builds and measures.
pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    match args.subject {
        Subject::Sandbox => sandbox(args),
        Subject::Control => control(),
    }
}

/// Its settings are variables, for shorter runs: see `crates/control/benches`.
fn control() -> Result<()> {
    let dir = paths::space().join("bench");
    std::fs::create_dir_all(&dir)?;
    let report = dir.join("control.json");
    // It lies beside the control plane's program then, where the bench looks for it.
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--package", "space-edge"])
        .current_dir(paths::root())
        .status()?;
    if !built.success() {
        bail!("space-edged can't be built: {built}");
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["bench", "--package", "space-control", "--bench", "control-plane"]);
    let status = cargo.env("BENCH_REPORT", &report).current_dir(paths::root()).status()?;
    if !status.success() {
        bail!("the bench ended with {status}");
    }
    println!("results: {report}");
    Ok(())
}

fn sandbox(args: &BenchArgs) -> Result<()> {
    dist::ready()?;
    assets::ready()?;
    let tests = paths::space().join("bench-bin");
    tests_inside::build(&["--bench", "space-bench"], &tests)?;
    let spec = HostSpec {
        memory: args.memory,
        smp: 1,
        forwards: Vec::new(),
        keep_data: false,
        payload: Some(provision::payload()?),
    };
    let machine = Machine::start(HOST, &spec, &image::ready()?)?;
    provision::ship(&machine)?;
    machine.copy_in(&[tests], INSIDE)?;
    provision::up(&machine, "")?;
    let line = format!(
        "mkdir -p /tmp/bench && cd /tmp/bench && PATH={INSIDE}/bin:$PATH SPACE_ASSETS={INSIDE}/assets \
         BENCH_CREATE_RUNS={} BENCH_STREAM_MIB={} {INSIDE}/bench-bin/space-bench /tmp/bench/bench.json",
        args.creates, args.stream_mib
    );
    let ended = machine.run(&line, Some(DEADLINE), Stdio::null())?;
    machine.copy_out(&["/tmp/bench".to_owned()], &paths::space())?;
    let outcome = expect_success("space-bench", ended);
    if outcome.is_err() {
        provision::fetch_logs(&machine, &paths::logs().join(HOST))?;
    }
    if !args.keep {
        machine.stop()?;
    }
    outcome?;
    println!("results: {}", paths::space().join("bench"));
    Ok(())
}
