//! `xtask bench`: `space-bench` inside the emulated host, next to a SPACE of its own.
//!
//! Times measured in there mean nothing by themselves; the ratios of one run do. The table goes to the
//! terminal, what the bench writes to `target/space/bench/`.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Result;

use crate::host::machine::{HostSpec, Machine};
use crate::host::{expect_success, image};
use crate::provision::{self, INSIDE};
use crate::{assets, dist, paths, tests_inside};

const HOST: &str = "bench";
const DEADLINE: Duration = Duration::from_mins(40);

#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// Memory of the host in MiB.
    #[arg(short, long, default_value_t = 8192)]
    memory: u32,
    /// How many pairs of creates.
    #[arg(long, default_value_t = 20)]
    creates: u32,
    /// Leave the host running afterwards.
    #[arg(long)]
    keep: bool,
}

/// Builds, boots, measures.
pub(crate) fn run(args: &BenchArgs) -> Result<()> {
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
         BENCH_CREATE_RUNS={} {INSIDE}/bench-bin/space-bench /tmp/bench/bench.json",
        args.creates
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
