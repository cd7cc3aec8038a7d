//! `make bench`: SPACE against the floor under it, both measured in one run, turn by turn.
//!
//! - *create*: from the request to the first byte of a command's output, against a raw Firecracker with the same
//!   kernel, disk, device set and jailer, driven by hand;
//! - *exec*: one `/bin/true` by way of the API, against a byte over the same VM's vsock to a program that forks,
//!   executes `/bin/true` and answers;
//! - *streams*: a large standard output, and a large file each way, by way of the API, against the same commands with
//!   a raw vsock connection as their input and output;
//! - *memory*: resident size of each daemon, and of the agent.
//!
//! Only the ratios mean something: where the processor is emulated, times are ten to twenty times too long.
//! Prints a table, and the same as JSON to the file given as argument.

mod echo;
mod floor;
mod product;
mod raw;
mod stats;
mod streams;

use std::{env, fs};

use anyhow::Result;
use serde_json::json;
use space_e2e::{Sandbox, Server, daemons::Daemon, leftovers::Leftovers};

use crate::stats::Series;

fn runs(variable: &str, default: usize) -> usize {
    env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::get()?;
    let create = create(&server, runs("BENCH_CREATE_RUNS", 20)).await?;
    let sandbox = Sandbox::create_on(&server).await?;
    let exec = exec(&sandbox, runs("BENCH_EXEC_RUNS", 200)).await?;
    let memory = memory(&sandbox).await?;
    sandbox.remove().await?;
    let copies = streams::measure(&server, runs("BENCH_STREAM_MIB", 1024) as u64).await?;

    println!(
        "\n{:<28} {:>10} {:>10} {:>10} {:>8}",
        "milliseconds", "floor p50", "ours p50", "ours p90", "ratio"
    );
    for (name, (floor, ours)) in [("create to first output", &create), ("exec of /bin/true", &exec)] {
        let ratio = ours.median() / floor.median();
        println!(
            "{name:<28} {:>10.1} {:>10.1} {:>10.1} {ratio:>8.2}",
            floor.median(),
            ours.median(),
            ours.p90()
        );
    }
    println!("\n{:<28} {:>10} {:>10} {:>10} {:>8}", "MiB per second", "floor", "ours", "lost MiB", "ratio");
    for copy in &copies {
        println!("{}", copy.row());
    }
    println!("\n{:<28} {:>10}", "resident memory", "KiB");
    for (name, kib) in &memory {
        println!("{name:<28} {kib:>10}");
    }
    if let Some(path) = env::args().nth(1) {
        let pair = |(floor, ours): &(Series, Series)| json!({ "floor": floor.json(), "ours": ours.json(), "ratio_p50": ours.median() / floor.median() });
        let copies = copies.iter().map(|copy| (copy.name.to_owned(), copy.json()));
        let report = json!({
            "create_to_first_output_ms": pair(&create),
            "exec_true_ms": pair(&exec),
            "streams": copies.collect::<serde_json::Map<_, _>>(),
            "resident_kib": memory.into_iter().collect::<serde_json::Map<_, _>>(),
        });
        fs::write(path, serde_json::to_string_pretty(&report)?)?;
    }
    Ok(())
}

/// One of each in turn; the first pair brings the image to the node, warms the page cache, and is dropped.
async fn create(server: &Server, runs: usize) -> Result<(Series, Series)> {
    let (mut floor, mut ours) = (Series::default(), Series::default());
    for run in 0..=runs {
        // Each begins on a machine where nothing is prepared or cleared away.
        Leftovers::none_but_pool(server).await?;
        let api = product::create_to_first_output(server).await?;
        Leftovers::none_but_pool(server).await?;
        let raw = floor::boot_to_first_output(run)?;
        eprintln!("create {run}/{runs}: floor {raw:.2?}, ours {api:.2?}");
        if run > 0 {
            floor.push(raw);
            ours.push(api);
        }
    }
    Ok((floor, ours))
}

async fn exec(sandbox: &Sandbox, runs: usize) -> Result<(Series, Series)> {
    let mut echo = echo::Echo::start(sandbox).await?;
    let (mut floor, mut ours) = (Series::default(), Series::default());
    for run in 0..runs + 10 {
        let raw = echo.round_trip()?;
        let api = product::exec_true(sandbox).await?;
        if run >= 10 {
            floor.push(raw);
            ours.push(api);
        }
    }
    Ok((floor, ours))
}

async fn memory(sandbox: &Sandbox) -> Result<Vec<(String, serde_json::Value)>> {
    let mut found = Vec::new();
    for daemon in [Daemon::Control, Daemon::Node, Daemon::Worker] {
        found.push((daemon.program().to_owned(), daemon.resident_kib()?.into()));
    }
    let status = sandbox.root_sh("sed -n 's/^VmRSS:[^0-9]*\\([0-9]*\\) kB/\\1/p' /proc/1/status").await?;
    found.push(("space-guestd".to_owned(), status.stdout().trim().parse::<u64>()?.into()));
    Ok(found)
}
