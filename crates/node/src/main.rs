//! `space-noded`: reads its configuration, starts the node, and waits for the end.

use anyhow::Context;
use camino::Utf8PathBuf;
use clap::{Parser, Subcommand};
use space_node::{config::NodeConfig, daemon, fail_point};
use space_runtime::{internal, tasks::Tasks, telemetry};

/// The root daemon of one machine: microVMs and the workers that speak to them.
#[derive(Debug, Parser)]
#[command(name = "space-noded", version)]
struct Arguments {
    /// The configuration file; `SPACE_NODED__<KEY>` variables override it.
    #[arg(long, env = "SPACE_NODED_CONFIG", default_value = "/etc/space/noded.toml")]
    config: Utf8PathBuf,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the names of all fail points, one a line.
    FailPoints,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Command::FailPoints) => print_fail_points(),
        None => serve(&arguments),
    }
}

fn print_fail_points() -> anyhow::Result<()> {
    use std::io::Write;
    std::io::stdout().write_all(space_fail_point::list(fail_point::ALL).as_bytes())?;
    Ok(())
}

fn serve(arguments: &Arguments) -> anyhow::Result<()> {
    let config = NodeConfig::load(Some(&arguments.config))?;
    // Both of our TLS users take whatever is the process's default.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(config))
}

async fn run(config: NodeConfig) -> anyhow::Result<()> {
    let _telemetry = telemetry::init("space-noded", &config.telemetry)?;
    space_fail_point::arm(fail_point::ALL)?;
    let metrics = internal::install_metrics().context("cannot record metrics")?;
    let tasks = Tasks::new();
    let deadline = std::time::Duration::from_millis(config.deadlines.shutdown_ms);
    let result = tokio::select! {
        result = daemon::run(config, metrics, &tasks) => result.context("the node ended"),
        signal = tasks.until_signal() => signal.context("cannot listen for signals"),
    };
    tasks.finish(deadline).await;
    result
}
