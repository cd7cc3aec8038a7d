//! `space-controld`: the control plane's daemon.

use std::{process::ExitCode, time::Duration};

use anyhow::Context as _;
use camino::Utf8PathBuf;
use clap::{Parser, Subcommand};
use space_control::{
    Server,
    config::{Config, ENVIRONMENT_PREFIX},
    fail_point, openapi_json,
};
use space_runtime::{config, internal, tasks::Tasks, telemetry};

/// How long tasks get to end at shutdown.
const SHUTDOWN: Duration = Duration::from_secs(15);

#[derive(Parser)]
#[command(name = "space-controld", version, about = "The control plane of SPACE")]
struct Arguments {
    /// Configuration file (TOML). Variables named SPACE_CONTROLD__… override it.
    #[arg(long, env = "SPACE_CONTROLD_CONFIG")]
    config: Option<Utf8PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run the daemon (the default).
    Serve,
    /// Print the OpenAPI document.
    Openapi,
    /// Print the names that SPACE_FAIL_POINT takes.
    FailPoints,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command.unwrap_or(Command::Serve) {
        Command::Serve => serve(arguments.config.as_deref()),
        Command::Openapi => print(&openapi_json()),
        Command::FailPoints => print(&space_fail_point::list(fail_point::ALL)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "space-controld failed");
            eprintln!("space-controld: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

#[tokio::main]
async fn serve(path: Option<&camino::Utf8Path>) -> anyhow::Result<()> {
    let config: Config = config::load(path, ENVIRONMENT_PREFIX)?;
    let _telemetry = telemetry::init("space-controld", &config.telemetry)?;
    space_fail_point::arm(fail_point::ALL)?;
    let metrics = internal::install_metrics()?;
    let tasks = Tasks::new();
    let server = Server::start(&config, &tasks, Some(metrics)).await?;
    tracing::info!(
        http = %server.http_address(),
        registry = %server.registry_address(),
        internal = server.internal_address().map(tracing::field::display),
        "serving"
    );
    tasks.until_signal().await.context("cannot wait for signals")?;
    server.stop(SHUTDOWN).await;
    tracing::info!("ended");
    Ok(())
}
