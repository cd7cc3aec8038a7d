//! `xtask check`: everything that is wrong without running anything, the cheapest first.

use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::{exec, paths};

#[derive(Debug, Default, clap::Args)]
pub(crate) struct CheckArgs {
    /// Look the dependencies up among the security advisories as well. Fetches their database, which neither
    /// `make test` nor CI can.
    #[arg(long)]
    advisories: bool,
}

type Step = (&'static str, fn() -> Result<()>);

/// In the order of what they cost.
const STEPS: [Step; 5] = [
    ("format", format),
    ("files", files),
    ("dependencies", dependencies),
    ("lints", lints),
    ("documentation", documentation),
];

/// Needs the network, so it comes on request alone.
const ADVISORIES: Step = ("advisories", advisories);

/// Runs every step and says what each took; stops at the first that fails.
pub(crate) fn run(args: &CheckArgs) -> Result<()> {
    for (name, step) in STEPS.into_iter().chain(args.advisories.then_some(ADVISORIES)) {
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

/// Licences, sources, and which crate may use which.
fn dependencies() -> Result<()> {
    deny(&["bans", "licenses", "sources"])
}

fn advisories() -> Result<()> {
    deny(&["advisories"])
}

fn deny(checks: &[&str]) -> Result<()> {
    if !exec::found_cargo_tool("deny") {
        bail!("cargo-deny is missing; `cargo xtask setup` installs it");
    }
    // A crate may be allowed to use another one before it does.
    exec::passed_through(cargo(&["deny", "check", "--allow", "unused-wrapper"]).args(checks))
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

const SCRIPTS: [&str; 7] = [
    ".ci/run",
    "crates/fuzz/instrument",
    "images/base/assemble",
    "images/base/customize",
    "images/host/assemble",
    "images/host/init",
    "images/host/poweroff",
];
