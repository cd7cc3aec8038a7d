//! `xtask host`: a Linux machine with a real `/dev/kvm`, on any machine that has QEMU.
//!
//! QEMU emulates a processor with SVM; the Linux inside loads `kvm-amd` and runs Firecracker unchanged.
//! `docs/design/0002-the-emulated-host.md` has the reasons and the measurements.

pub(crate) mod channel;
pub(crate) mod image;
pub(crate) mod machine;
pub(crate) mod probe;
pub(crate) mod transfer;
pub(crate) mod watch;

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use camino::Utf8PathBuf;

use self::channel::{Ended, quoted};
use self::machine::{HostSpec, Machine};
use crate::exec;

/// Exit code of `host run` when the host itself was lost: no verdict on the command.
const HOST_LOST: i32 = 120;

#[derive(Debug, clap::Args)]
pub(crate) struct HostArgs {
    /// Which host: several can run side by side.
    #[arg(long, default_value = "default", global = true)]
    name: String,
    #[command(subcommand)]
    command: HostCommand,
}

#[derive(Debug, clap::Subcommand)]
enum HostCommand {
    /// Boot a host, building its image first where needed.
    Start(HostSpec),
    /// Run a command inside; output streams, the exit code comes through. One word is a shell line.
    Run {
        /// End the command after this many seconds (exit code 124).
        #[arg(long)]
        timeout: Option<u64>,
        /// Pass standard input on.
        #[arg(short, long)]
        interactive: bool,
        #[arg(trailing_var_arg = true, required = true)]
        command: Vec<String>,
    },
    /// Copy files or trees into a directory of the host.
    Cp {
        #[arg(required = true)]
        from: Vec<Utf8PathBuf>,
        to: String,
    },
    /// Copy files or trees out of the host into a directory.
    Fetch {
        #[arg(required = true)]
        from: Vec<String>,
        to: Utf8PathBuf,
    },
    /// Print the host's console.
    Log,
    /// Power the host off.
    Stop,
    /// Say which hosts run and how they are.
    Status,
    /// Only build the host's image.
    Build,
}

/// Runs one `xtask host` command and returns the exit code.
pub(crate) fn main(args: HostArgs) -> Result<i32> {
    let name = args.name;
    match args.command {
        HostCommand::Start(spec) => {
            Machine::start(&name, &spec, &image::ready()?)?;
        }
        HostCommand::Run { timeout, interactive, command } => {
            return run(&running(&name)?, timeout, interactive, &command);
        }
        HostCommand::Cp { from, to } => running(&name)?.copy_in(&from, &to)?,
        HostCommand::Fetch { from, to } => running(&name)?.copy_out(&from, &to)?,
        HostCommand::Log => print!("{}", exec::tail(&machine::dir(&name).join("console.log"), 500)),
        HostCommand::Stop => running(&name)?.stop()?,
        HostCommand::Status => status()?,
        HostCommand::Build => println!("{}", image::ready()?.disk),
    }
    Ok(0)
}

/// The running host called `name`.
pub(crate) fn running(name: &str) -> Result<Machine> {
    Machine::find(name)?
        .with_context(|| format!("no host {name} runs; `cargo xtask host start --name {name}`"))
}

fn run(machine: &Machine, timeout: Option<u64>, interactive: bool, words: &[String]) -> Result<i32> {
    let line = match words {
        [line] => line.clone(),
        words => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
    };
    let stdin = if interactive { Stdio::inherit() } else { Stdio::null() };
    match machine.run(&line, timeout.map(Duration::from_secs), stdin)? {
        Ended::Code(code) => Ok(code),
        Ended::TimedOut => {
            eprintln!("host {}: the command ran out of time", machine.name);
            Ok(124)
        }
        Ended::HostLost(reason) => {
            eprintln!("HOST LOST, no verdict on the command: {reason}");
            eprintln!("{}", exec::tail(&machine.console(), 40));
            Ok(HOST_LOST)
        }
    }
}

fn status() -> Result<()> {
    let hosts = machine::dir("x");
    let hosts = hosts.parent().context("a host directory has a parent")?;
    let Ok(entries) = hosts.read_dir_utf8() else {
        println!("no hosts");
        return Ok(());
    };
    for entry in entries {
        let name = entry?.file_name().to_owned();
        match Machine::find(&name)? {
            Some(machine) => println!(
                "{name}: running, pid {}, {}, {} MiB, ssh port {}, forwards {}",
                machine.process.pid,
                machine.accel.describe(),
                machine.spec.memory,
                machine.ssh_port,
                machine
                    .spec
                    .forwards
                    .iter()
                    .map(|f| format!("{}:{}", f.outer, f.inner))
                    .collect::<Vec<_>>()
                    .join(" "),
            ),
            None => println!("{name}: stopped"),
        }
    }
    Ok(())
}

/// Fails unless `ended` is an exit with 0.
pub(crate) fn expect_success(what: &str, ended: Ended) -> Result<()> {
    match ended {
        Ended::Code(0) => Ok(()),
        Ended::Code(code) => bail!("{what} ended with code {code}"),
        Ended::TimedOut => bail!("{what} ran out of time"),
        Ended::HostLost(reason) => bail!("{what}: the host was lost: {reason}"),
    }
}
