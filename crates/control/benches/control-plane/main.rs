//! `cargo xtask bench control`: what the control plane costs, as ratios of one run.
//!
//! | figure | against |
//! |---|---|
//! | creates a second, 50 simulated nodes | `pgbench` with the very statements of a create, as many clients ([`capture`]) |
//! | p99 of create, get and list with 100,000 sandboxes | the same with 1,000 |
//! | attaches a second and their p99, 10,000 streams open, at control and through an edge | the same with none open |
//! | resident memory for an open stream | |
//!
//! `space-controld` is a process of its own; nodes and clients are in this one, and PostgreSQL beside both, so what is
//! measured shares the processors with what measures. PostgreSQL runs without fsync, on both sides of each ratio: the
//! disk would hide what we cost.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

mod capture;
mod edge;
mod floor;
mod installation;
mod load;
mod sessions;

use std::{env, fs, time::Duration};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use self::{floor::Floor, installation::Installation, load::Load};

const NODES: usize = 50;
const CLIENTS: usize = 16;
const SMALL: usize = 1_000;

/// From the environment, so that a short run is possible.
fn setting(variable: &str, default: usize) -> usize {
    env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let report = runtime.block_on(run())?;
    let text = serde_json::to_string_pretty(&report)?;
    // Cargo hands a bench arguments of its own.
    if let Some(path) = env::var_os("BENCH_REPORT") {
        fs::write(path, &text)?;
    }
    println!("{text}");
    Ok(())
}

async fn run() -> Result<Value> {
    let floor = Floor::capture(NODES).await.context("capturing the statements of a create")?;
    eprintln!(
        "a create runs {} statements in {} transactions",
        floor.script.statements, floor.script.transactions
    );
    if let Some(path) = env::var_os("BENCH_SCRIPT") {
        fs::write(path, &floor.script.text)?;
    }
    let installation = Installation::start(NODES, Duration::from_secs(5)).await?;
    let seconds = Duration::from_secs(setting("BENCH_SECONDS", 20) as u64);

    let throughput = throughput(&installation, &floor, seconds).await?;
    let edge = edge::Edge::start(&installation).await?;
    let sessions = sessions::measure(&installation, &edge, setting("BENCH_SESSIONS", 10_000)).await?;
    drop(edge);
    let small = scale(&installation, SMALL).await?;
    let large = scale(&installation, setting("BENCH_SANDBOXES", 100_000)).await?;
    let ratio =
        |name: &str| large[name]["p99_ms"].as_f64().zip(small[name]["p99_ms"].as_f64()).map(|(l, s)| l / s);
    Ok(json!({
        "creates": throughput,
        "sessions": sessions,
        "scale": {
            "small": small,
            "large": large,
            "p99_ratio": { "create": ratio("create"), "get": ratio("get"), "list": ratio("list") },
        },
    }))
}

/// Both in turn, twice, so that neither has the quiet minute for itself.
async fn throughput(installation: &Installation, under: &Floor, seconds: Duration) -> Result<Value> {
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let load = Load::for_time(CLIENTS, seconds, || installation.create()).await?;
        ours.push(load.per_second());
        floor.push(under.per_second(CLIENTS, seconds).await?);
        eprintln!(
            "creates a second: ours {:.0}, pgbench {:.0}",
            ours[ours.len() - 1],
            floor[floor.len() - 1]
        );
    }
    let sum = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    Ok(json!({
        "ours_per_second": ours, "pgbench_per_second": floor, "ratio": sum(&ours) / sum(&floor),
        "statements": under.script.statements, "transactions": under.script.transactions,
    }))
}

/// With `count` sandboxes there.
async fn scale(installation: &Installation, count: usize) -> Result<Value> {
    installation.fill_up_to(count).await?;
    let requests = setting("BENCH_REQUESTS", 2_000);
    let create = Load::for_count(4, requests, || installation.create()).await?;
    let get = Load::for_count(4, requests, || installation.get()).await?;
    let list = Load::for_count(4, requests, || installation.list()).await?;
    eprintln!(
        "{count} sandboxes: p99 create {:.1} ms, get {:.1} ms, list {:.1} ms",
        create.p99(),
        get.p99(),
        list.p99()
    );
    Ok(json!({
        "sandboxes": installation.count().await?,
        "create": create.json(), "get": get.json(), "list": list.json(),
    }))
}
