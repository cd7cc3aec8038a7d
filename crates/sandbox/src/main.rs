//! `space-sandboxd`: gives up what it doesn't need, then serves one tenant's sandboxes until noded says otherwise.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use space_sandbox::{SandboxdConfig, fail_point, sys, worker};
use tracing_subscriber::EnvFilter;

/// Speaks to one tenant's sandboxes. Started by space-noded, which passes its socket as descriptor 3.
#[derive(Debug, Parser)]
#[command(name = "space-sandboxd", version, about, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(flatten)]
    config: SandboxdConfig,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the names of all fail points, one a line.
    FailPoints,
}

fn main() -> ExitCode {
    // Before the runtime, so that the filter covers every thread.
    let hardened = sys::harden();
    let Arguments { config, command } = Arguments::parse();
    if matches!(command, Some(Command::FailPoints)) {
        return print_fail_points();
    }
    if let Err(error) = telemetry(&config) {
        eprintln!("space-sandboxd: {error:#}");
        return ExitCode::FAILURE;
    }
    let armed = space_fail_point::arm(fail_point::ALL).context("cannot arm a fail point");
    match hardened.context("cannot harden the process").and(armed).and_then(|()| serve(config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "space-sandboxd ends");
            ExitCode::FAILURE
        }
    }
}

fn print_fail_points() -> ExitCode {
    use std::io::Write;
    let names = space_fail_point::list(fail_point::ALL);
    if std::io::stdout().write_all(names.as_bytes()).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn serve(config: SandboxdConfig) -> anyhow::Result<()> {
    let socket = sys::node_socket()?;
    // One thread: a tenant's guests are I/O, and its worker is one of many on the machine.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(worker::run(socket, config))?;
    Ok(())
}

fn telemetry(config: &SandboxdConfig) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&config.log).context("the log filter")?;
    tracing_subscriber::fmt().json().with_writer(std::io::stderr).with_env_filter(filter).init();
    Ok(())
}
