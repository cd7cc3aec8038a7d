//! `space-guestd`: the agent in a guest.
//!
//! As PID 1 it sets the guest up and serves on vsock until the guest goes down. Started in any other way it
//! takes `--listen-unix PATH` and serves there, without touching the machine: for tests and development.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::process::id() == 1 {
        space_guest::run_as_init();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--listen-unix", path] => match space_guest::serve_unix(path) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => complain(&error.to_string()),
        },
        ["--version"] => complain(env!("CARGO_PKG_VERSION")),
        _ => complain("it is the first process of a guest; elsewhere: space-guestd --listen-unix PATH"),
    }
}

fn complain(text: &str) -> ExitCode {
    eprintln!("space-guestd: {text}");
    ExitCode::FAILURE
}
