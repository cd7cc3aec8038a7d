//! `space-edged`: the front door of sandboxes' ports.

use std::{process::ExitCode, time::Duration};

use anyhow::Context as _;
use camino::{Utf8Path, Utf8PathBuf};
use clap::Parser;
use space_edge::{
    Server,
    config::{Config, ENVIRONMENT_PREFIX},
};
use space_runtime::{config, internal, tasks::Tasks, telemetry};

#[derive(Parser)]
#[command(name = "space-edged", version, about = "The front door of sandboxes' ports")]
struct Arguments {
    /// Configuration file (TOML). Variables named SPACE_EDGED__… override it.
    #[arg(long, env = "SPACE_EDGED_CONFIG")]
    config: Option<Utf8PathBuf>,
}

fn main() -> ExitCode {
    match serve(Arguments::parse().config.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "space-edged failed");
            eprintln!("space-edged: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn serve(path: Option<&Utf8Path>) -> anyhow::Result<()> {
    let config: Config = config::load(path, ENVIRONMENT_PREFIX)?;
    let _telemetry = telemetry::init("space-edged", &config.telemetry)?;
    // Visitors, workers and control are all spoken to with it.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let metrics = internal::install_metrics()?;
    let tasks = Tasks::new();
    let server = tokio::select! {
        started = Server::start(&config, &tasks, Some(metrics)) => started?,
        ended = tasks.until_signal() => return ended.context("cannot wait for signals"),
    };
    tracing::info!(
        listen = %server.address(),
        internal = server.internal_address().map(tracing::field::display),
        domain = config.domain,
        "serving"
    );
    tasks.until_signal().await.context("cannot wait for signals")?;
    tasks.finish(Duration::from_secs(config.limits.drain_seconds)).await;
    tracing::info!("ended");
    Ok(())
}
