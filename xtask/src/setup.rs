//! `xtask setup`: everything that building, running and testing SPACE needs on a fresh machine.
//!
//! Packages come from the distribution, with the machine's own apt sources. Where a person sits at a
//! terminal nothing is done with sudo before they agreed; elsewhere `--yes` is implied.

use std::fs;
use std::io::{BufRead, IsTerminal, Write};
use std::process::Command;

use anyhow::{Context, Result, bail};
use camino::Utf8Path;

use crate::{apt, exec, paths};

/// What is needed, as (program or file that proves it, package). The names are the same everywhere that
/// [`Distribution`] knows.
const PACKAGES: &[(&str, &str)] = &[
    ("bc", "bc"),
    ("bison", "bison"),
    ("cc", "build-essential"),
    ("cpio", "cpio"),
    ("curl", "curl"),
    ("flex", "flex"),
    ("git", "git"),
    ("ip", "iproute2"),
    ("kmod", "kmod"),
    ("mke2fs", "e2fsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("mmdebstrap", "mmdebstrap"),
    ("musl-gcc", "musl-tools"),
    ("nft", "nftables"),
    ("patch", "patch"),
    ("pip3", "python3-pip"),
    ("python3", "python3"),
    ("pkg-config", "pkg-config"),
    ("postgres", "postgresql"),
    ("qemu-system-x86_64", QEMU),
    ("ssh", "openssh-client"),
    ("ssh-keygen", "openssh-client"),
    ("strip", "binutils"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
    ("/usr/include/libelf.h", "libelf-dev"),
    ("/usr/include/openssl/ssl.h", "libssl-dev"),
    ("/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring"),
];

const QEMU: &str = "qemu-system-x86";

/// What stands in for root where we aren't root.
const ROOTLESS: &[(&str, &str)] = &[("fakeroot", "fakeroot"), ("newuidmap", "uidmap")];

/// Tools that cargo installs.
const CARGO_TOOLS: [&str; 2] = ["nextest", "deny"];

#[derive(Debug, clap::Args)]
pub(crate) struct SetupArgs {
    /// Don't ask.
    #[arg(short, long)]
    yes: bool,
    /// Only say what is missing.
    #[arg(long, conflicts_with = "yes")]
    check: bool,
}

/// Where we are, as far as packages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Distribution {
    Debian12,
    Debian13,
    Ubuntu2204,
    Ubuntu2404,
}

impl Distribution {
    fn detect() -> Result<Self> {
        let text = fs::read_to_string("/etc/os-release").context("no /etc/os-release")?;
        Self::parse(&text).context(
            "this distribution isn't one that we know (Debian 12 and 13, Ubuntu 22.04 and 24.04); \
             `cargo xtask setup --check` says what is needed",
        )
    }

    fn parse(os_release: &str) -> Option<Self> {
        let value = |key: &str| {
            os_release
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
                .map(|value| value.trim_matches('"'))
        };
        match (value("ID")?, value("VERSION_ID")?) {
            ("debian", "12") => Some(Self::Debian12),
            ("debian", "13") => Some(Self::Debian13),
            ("ubuntu", "22.04") => Some(Self::Ubuntu2204),
            ("ubuntu", "24.04") => Some(Self::Ubuntu2404),
            (_, _) => None,
        }
    }

    /// QEMU 7 and 8 hang while they emulate SVM; 10 doesn't. Debian 12 has 10 in its backports.
    fn backports(self) -> Option<&'static str> {
        match self {
            Self::Debian12 => Some("bookworm-backports"),
            Self::Debian13 | Self::Ubuntu2204 | Self::Ubuntu2404 => None,
        }
    }
}

/// What a machine lacks.
#[derive(Debug, Default)]
struct Missing {
    packages: Vec<&'static str>,
    cargo_tools: Vec<&'static str>,
    musl_target: bool,
    qemu: Qemu,
}

/// What is to be done about QEMU, which the emulated host needs. Versions before 10 hang now and then.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Qemu {
    #[default]
    Enough,
    /// The distribution has a newer one.
    Upgrade,
    /// It has not. Works mostly, and is no reason to ask for packages each time.
    Old(u32),
}

impl Qemu {
    fn judge(major: Option<u32>, backports: Option<&str>) -> Self {
        match (major, backports) {
            (Some(major), None) if major < 10 => Self::Old(major),
            (Some(major), Some(_)) if major < 10 => Self::Upgrade,
            // None at all is a missing package.
            (_, _) => Self::Enough,
        }
    }

    fn warn(self) {
        if let Self::Old(major) = self {
            eprintln!(
                "warning: this distribution has QEMU {major}; before QEMU 10 the emulated host hangs now and then"
            );
        }
    }
}

impl Missing {
    fn look() -> Self {
        let rootless = if rustix::process::geteuid().is_root() { &[] } else { ROOTLESS };
        let mut packages: Vec<&str> = PACKAGES
            .iter()
            .chain(rootless)
            .filter(|(proof, _)| !present(proof))
            .map(|(_, package)| *package)
            .collect();
        packages.sort_unstable();
        packages.dedup();
        let backports = Distribution::detect().ok().and_then(Distribution::backports);
        Self {
            packages,
            cargo_tools: CARGO_TOOLS.into_iter().filter(|tool| !exec::found_cargo_tool(tool)).collect(),
            musl_target: !musl_target_present(),
            qemu: Qemu::judge(qemu_major(), backports),
        }
    }

    fn is_empty(&self) -> bool {
        self.packages.is_empty()
            && self.cargo_tools.is_empty()
            && !self.musl_target
            && self.qemu != Qemu::Upgrade
    }

    fn describe(&self) -> String {
        let mut lines = Vec::new();
        if !self.packages.is_empty() {
            lines.push(format!("packages: {}", self.packages.join(" ")));
        }
        if self.qemu == Qemu::Upgrade {
            lines.push("QEMU 10 or newer (an older one is installed)".to_owned());
        }
        if self.musl_target {
            lines.push("the Rust target x86_64-unknown-linux-musl".to_owned());
        }
        for tool in &self.cargo_tools {
            lines.push(format!("cargo-{tool}"));
        }
        lines.join("\n  ")
    }
}

/// Installs what is missing.
pub(crate) fn run(args: &SetupArgs) -> Result<()> {
    let missing = Missing::look();
    missing.qemu.warn();
    if missing.is_empty() {
        println!("everything is installed");
        return Ok(());
    }
    eprintln!("missing:\n  {}", missing.describe());
    if args.check {
        bail!("not everything is installed");
    }
    if !args.yes && !agreed()? {
        bail!("nothing was changed");
    }
    install(&missing)
}

/// What a command is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Build and run: no tools for checks and tests.
    Run,
    Test,
}

/// Installs what `purpose` needs and this machine lacks, having asked.
pub(crate) fn require(purpose: Purpose) -> Result<()> {
    let mut missing = Missing::look();
    missing.qemu.warn();
    if purpose == Purpose::Run {
        missing.cargo_tools.clear();
    }
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("missing:\n  {}", missing.describe());
    if !agreed()? {
        bail!("nothing was changed; `cargo xtask setup` can be run at any time");
    }
    install(&missing)
}

/// `program` as root: itself for root, else with sudo.
pub(crate) fn sudo(program: &Utf8Path) -> Command {
    if rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.arg(program);
    command
}

/// Asks whoever is there. Without a terminal there is nobody to ask, and the command itself was the answer.
fn agreed() -> Result<bool> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Ok(true);
    }
    eprint!("Install them now? Packages are installed with apt (sudo). [Y/n] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "" | "y" | "Y" | "yes"))
}

fn install(missing: &Missing) -> Result<()> {
    if !missing.packages.is_empty() || missing.qemu == Qemu::Upgrade {
        install_packages(missing)?;
    }
    if missing.musl_target {
        exec::passed_through(
            Command::new("rustup")
                .args(["target", "add", "x86_64-unknown-linux-musl"])
                .current_dir(paths::root()),
        )?;
    }
    for tool in &missing.cargo_tools {
        exec::logged(
            &format!("compiling cargo-{tool} (takes minutes, once)"),
            &format!("install-cargo-{tool}"),
            Command::new(env!("CARGO"))
                .args(["install", "--locked"])
                .arg(format!("cargo-{tool}"))
                .current_dir("/"),
        )?;
    }
    Ok(())
}

fn install_packages(missing: &Missing) -> Result<()> {
    let distribution = Distribution::detect()?;
    let mut packages = missing.packages.clone();
    let has_none = packages.contains(&QEMU);
    packages.retain(|package| *package != QEMU);
    if !packages.is_empty() {
        update()?;
        apt_install(&packages, None)?;
    }
    if has_none || missing.qemu == Qemu::Upgrade {
        match install_qemu(distribution) {
            Err(error) if !has_none => eprintln!("warning: QEMU stays as old as it is: {error:#}"),
            done => done?,
        }
        Qemu::judge(qemu_major(), None).warn();
    }
    Ok(())
}

fn install_qemu(distribution: Distribution) -> Result<()> {
    if let Some(suite) = distribution.backports() {
        add_suite(suite)?;
    }
    update()?;
    apt_install(&[QEMU], distribution.backports())
}

fn update() -> Result<()> {
    exec::logged("apt-get update", "apt-update", sudo("apt-get".into()).arg("update"))
}

fn apt_install(packages: &[&str], suite: Option<&str>) -> Result<()> {
    let mut command = sudo("apt-get".into());
    command.env("DEBIAN_FRONTEND", "noninteractive").args(["install", "--yes", "--no-install-recommends"]);
    if let Some(suite) = suite {
        command.args(["--target-release", suite]);
    }
    command.args(packages);
    exec::logged(&format!("installing {}", packages.join(" ")), "apt-install", &mut command)
}

/// Adds a suite of the distribution's own archive, at the address that the machine's sources already name.
fn add_suite(suite: &str) -> Result<()> {
    let configured = apt::configured()?;
    if configured.iter().any(|(_, known)| known == suite) {
        return Ok(());
    }
    let base = suite.split('-').next().unwrap_or(suite);
    let uri = configured
        .iter()
        .find(|(_, known)| known == base)
        .map(|(uri, _)| uri)
        .with_context(|| format!("apt has no source for {base}, so none for {suite}"))?;
    let text = format!(
        "Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: main\n\
         Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    );
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), text)?;
    let target = format!("/etc/apt/sources.list.d/{suite}.sources");
    exec::output(sudo("install".into()).args(["-m", "0644"]).arg(file.path()).arg(target)).map(drop)
}

fn present(proof: &str) -> bool {
    if proof.starts_with('/') {
        return Utf8Path::new(proof).exists();
    }
    // Debian keeps a server's programs out of the path.
    if proof == "postgres" {
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        return exec::found(proof) || versions.into_iter().any(|v| v.path().join("bin/postgres").exists());
    }
    exec::found(proof)
}

fn qemu_major() -> Option<u32> {
    let text = exec::output(Command::new("qemu-system-x86_64").arg("--version")).ok()?;
    text.strip_prefix("QEMU emulator version ")?.split('.').next()?.parse().ok()
}

fn musl_target_present() -> bool {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).current_dir(paths::root()).output();
    let sysroot = sysroot.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    sysroot
        .is_ok_and(|sysroot| Utf8Path::new(&sysroot).join("lib/rustlib/x86_64-unknown-linux-musl").exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_told_apart() {
        let debian = "ID=debian\nVERSION_ID=\"12\"\n";
        assert_eq!(Distribution::parse(debian), Some(Distribution::Debian12));
        let ubuntu = "NAME=\"Ubuntu\"\nID=ubuntu\nVERSION_ID=\"24.04\"\n";
        assert_eq!(Distribution::parse(ubuntu), Some(Distribution::Ubuntu2404));
        assert_eq!(Distribution::parse("ID=fedora\nVERSION_ID=40\n"), None);
    }

    #[test]
    fn an_old_qemu_is_upgraded_where_the_distribution_can_and_else_a_warning() {
        assert_eq!(Qemu::judge(Some(7), Some("bookworm-backports")), Qemu::Upgrade);
        assert_eq!(Qemu::judge(Some(8), None), Qemu::Old(8));
        let warned = Missing { qemu: Qemu::Old(8), ..Missing::default() };
        assert!(warned.is_empty(), "nothing is asked for and nothing installed");
        assert_eq!(Qemu::judge(Some(10), None), Qemu::Enough);
        assert_eq!(Qemu::judge(None, None), Qemu::Enough);
    }
}
