//! `space`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    space_cli::run(&std::env::args_os().collect::<Vec<_>>())
}
