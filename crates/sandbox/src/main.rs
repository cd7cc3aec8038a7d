//! `space-sandboxd`: gives up what it doesn't need, then serves one tenant's sandboxes until noded says otherwise.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use space_sandbox::{SandboxdConfig, sys, worker};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    // Before the runtime, so that the filter covers every thread.
    let hardened = sys::harden();
    let config = SandboxdConfig::parse();
    if let Err(error) = telemetry(&config) {
        eprintln!("space-sandboxd: {error:#}");
        return ExitCode::FAILURE;
    }
    match hardened.context("cannot harden the process").and_then(|()| serve(config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "space-sandboxd ends");
            ExitCode::FAILURE
        }
    }
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
