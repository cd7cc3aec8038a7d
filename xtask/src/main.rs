//! What `cargo xtask` does: everything around the code that isn't compiling it.
//!
//! One file a noun: the guest kernel, Firecracker, the base template, the agent's initramfs, the emulated
//! host, and the steps of `make run` and `make test`. Whatever takes long is in the content-keyed cache.

mod apt;
mod assets;
mod bench;
mod cache;
mod check;
mod cpio;
mod dist;
mod e2e;
mod exec;
mod failures;
mod firecracker;
mod fuzz;
mod host;
mod initramfs;
mod kernel;
mod kernel_source;
mod kvm;
mod links;
mod local;
mod paths;
mod process;
mod provision;
mod python;
mod rootfs;
mod run;
mod setup;
mod template;
mod test;
mod tests_inside;
mod unit;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Builds, runs and tests SPACE")]
enum Command {
    /// The emulated host: a Linux machine with a real /dev/kvm, anywhere.
    Host(host::HostArgs),
    /// The guest kernel.
    Kernel,
    /// Firecracker and its jailer.
    Firecracker,
    /// A template's image.
    Template {
        #[arg(value_parser = ["base"])]
        name: String,
    },
    /// The guest agent, packed for the kernel to boot into.
    Initramfs,
    /// Everything above in `target/space/assets/`, with a manifest.
    Assets,
    /// Release binaries in `target/space/bin/`.
    Dist,
    /// Install what building, running and testing need.
    Setup(setup::SetupArgs),
    /// Format, lints, documentation, dependencies.
    Check(check::CheckArgs),
    /// Tests that need no microVM.
    Unit,
    /// Fuzz targets: parsers of hostile bytes under libFuzzer.
    Fuzz(fuzz::FuzzArgs),
    /// Tests on real microVMs.
    E2e(e2e::E2eArgs),
    /// Everything that CI runs.
    Test(e2e::E2eArgs),
    /// Measure SPACE against raw Firecracker.
    Bench(bench::BenchArgs),
    /// The generated part of the Python client, from the OpenAPI document.
    Python(python::PythonArgs),
    /// Start SPACE and run a program in a sandbox.
    Run(run::RunArgs),
}

fn main() -> ExitCode {
    match run(Command::parse()) {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<i32> {
    match command {
        Command::Host(args) => return host::main(args),
        Command::Kernel => println!("{}", kernel::ready()?.vmlinux),
        Command::Firecracker => println!("{}", firecracker::ready()?.dir),
        Command::Template { name: _ } => template::describe(&template::base()?)?,
        Command::Initramfs => initramfs::describe(&initramfs::ready()?)?,
        Command::Assets => println!("{}", assets::ready()?),
        Command::Dist => println!("{}", dist::ready()?),
        Command::Setup(args) => setup::run(&args)?,
        Command::Check(args) => check::run(&args)?,
        Command::Unit => {
            let outcome = unit::run()?;
            println!("{outcome}");
            return Ok(i32::from(outcome.counts.failed > 0));
        }
        Command::Fuzz(args) => {
            let outcome = fuzz::run(&args)?;
            println!("{outcome}");
            return Ok(i32::from(outcome.counts.failed > 0));
        }
        Command::E2e(args) => {
            let (outcome, restarts) = e2e::run(&args)?;
            println!("host restarts: {restarts}\n{outcome}");
            return Ok(i32::from(outcome.counts.failed > 0));
        }
        Command::Test(args) => return Ok(i32::from(!test::run(&args)?)),
        Command::Bench(args) => bench::run(&args)?,
        Command::Python(args) => python::run(&args)?,
        Command::Run(args) => run::run(&args)?,
    }
    Ok(0)
}
