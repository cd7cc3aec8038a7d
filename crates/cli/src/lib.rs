//! The `space` command: a client of the public API for users, and `up` and `doctor` for whoever runs a
//! machine. It holds no rule of its own about sandboxes; what the API says is what it shows.
//!
//! Standard output carries results alone, so that it can be piped; everything said to a person goes to
//! standard error.

mod args;
mod assets;
mod commands;
mod connect;
mod doctor;
mod error;
mod forward;
mod image;
mod output;
mod progress;
mod session;
mod sys;
mod transfer;
mod up;

pub use args::Cli;

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser, error::ErrorKind};

use error::RUN_FAILURE;

/// Exit code of a wrong call, where it can't be taken for a command's own.
const USAGE: u8 = 2;

/// Parses the arguments, does what they say, and answers the exit code.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let own_failure = error::own_failure_code(arguments);
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, own_failure),
    };
    let json = cli.global.json;
    let outcome = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => {
            let outcome = runtime.block_on(commands::run(cli));
            // A thread may sit in a read of standard input that never ends.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => {
            Err(error::CliError::from(anyhow::Error::from(error).context("cannot start the runtime")))
        }
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            error.report(json);
            ExitCode::from(own_failure)
        }
    }
}

/// Help and version are no errors; a wrong call is one of ours.
fn usage(refused: &clap::Error, own_failure: u8) -> ExitCode {
    let shown = refused.print().is_ok();
    if shown && [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion].contains(&refused.kind()) {
        return ExitCode::SUCCESS;
    }
    ExitCode::from(if own_failure == RUN_FAILURE { own_failure } else { USAGE })
}
