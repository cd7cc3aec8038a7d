//! `xtask check`: everything that is wrong without running anything, the cheapest first.

use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::{exec, paths};

type Step = (&'static str, fn() -> Result<()>);

/// In the order of what they cost.
const STEPS: [Step; 5] = [
    ("format", format),
    ("files", files),
    ("dependencies", dependencies),
    ("lints", lints),
    ("documentation", documentation),
];

/// Runs every step and says what each took; stops at the first that fails.
pub(crate) fn run() -> Result<()> {
    for (name, step) in STEPS {
        let started = Instant::now();
        eprintln!("== check: {name}");
        step()?;
        eprintln!("== check: {name} passed in {}", exec::seconds(started.elapsed()));
    }
    Ok(())
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).current_dir(paths::root());
    command
}

fn format() -> Result<()> {
    exec::passed_through(&mut cargo(&["fmt", "--all", "--check"]))
}

/// Licences, sources, advisories where they can be had, and which crate may use which.
fn dependencies() -> Result<()> {
    if !exec::found_cargo_tool("deny") {
        bail!("cargo-deny is missing; `cargo xtask setup` installs it");
    }
    // Advisories need a database from elsewhere; CI has no way out, so they are a job of their own.
    exec::passed_through(&mut cargo(&["deny", "check", "bans", "licenses", "sources"]))
}

fn lints() -> Result<()> {
    exec::passed_through(&mut cargo(&[
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--",
        "-D",
        "warnings",
    ]))
}

fn documentation() -> Result<()> {
    exec::passed_through(
        cargo(&["doc", "--quiet", "--workspace", "--all-features", "--no-deps", "--document-private-items"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}

/// Shell scripts parse, and every path that the documentation links to exists.
fn files() -> Result<()> {
    for script in SCRIPTS {
        exec::output(Command::new("sh").arg("-n").arg(paths::root().join(script)))?;
    }
    crate::links::check()
}

const SCRIPTS: [&str; 6] = [
    ".ci/run",
    "images/base/assemble",
    "images/base/customize",
    "images/host/assemble",
    "images/host/init",
    "images/host/poweroff",
];
