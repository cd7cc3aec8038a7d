//! Can this machine's own KVM carry the host?
//!
//! It takes nested virtualisation, which a guest that boots (`crate::kvm`) doesn't show. So the host's own kernel is
//! booted under `-accel kvm` and has to say that it found a nested `/dev/kvm`, within a deadline. The answer holds
//! until the machine reboots.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};

use super::image::HostImage;
use super::machine::root_disk;
use crate::kvm::{self, Device};
use crate::{cache, exec, paths};

/// An ordinary guest needs well under a second; a paravirtual KVM never gets there.
const DEADLINE: Duration = Duration::from_secs(20);

/// Common part of the kernel command line.
pub(super) const COMMAND_LINE: &str = "root=/dev/nvme0n1 rw rootfstype=ext4 console=ttyS0 quiet \
     panic=1 oops=panic mitigations=off init=/usr/sbin/space-host-init";

/// What executes the host's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Accel {
    /// This machine's KVM, with nested virtualisation.
    Kvm,
    /// QEMU's emulator: 10 to 20 times slower, and the same everywhere.
    Tcg,
}

impl Accel {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Kvm => "nested in this machine's KVM",
            Self::Tcg => "emulated by QEMU",
        }
    }
}

/// What the probe found out about this machine's KVM.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Verdict {
    /// The kernel's id of this boot: a verdict is as old as that.
    boot: String,
    /// An ordinary guest answered, and has a working `/dev/kvm` of its own.
    nested: bool,
    why: String,
}

/// How a host is run on this machine. `SPACE_HOST_ACCEL=tcg` or `kvm` overrides the probe.
pub(super) fn accel(image: &HostImage) -> Result<Accel> {
    match std::env::var("SPACE_HOST_ACCEL").as_deref() {
        Ok("tcg") => return Ok(Accel::Tcg),
        Ok("kvm") => return Ok(Accel::Kvm),
        Ok(_) | Err(_) => {}
    }
    Ok(if verdict(image)?.nested { Accel::Kvm } else { Accel::Tcg })
}

/// The verdict on this machine's KVM, from a probe of this boot. A device that doesn't open is none, and not kept.
fn verdict(image: &HostImage) -> Result<Verdict> {
    let boot = kvm::boot_id();
    if let Some(why) = Device::look().obstacle() {
        eprintln!("this machine's KVM: {why}");
        return Ok(Verdict { boot, nested: false, why });
    }
    let path = path()?;
    let known: Option<Verdict> = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
    if let Some(verdict) = known.filter(|verdict| verdict.boot == boot) {
        return Ok(verdict);
    }
    let (nested, why) = probe(image)?;
    eprintln!("this machine's KVM: {why}");
    let verdict = Verdict { boot, nested, why };
    cache::write_atomic(&path, &serde_json::to_vec_pretty(&verdict)?)?;
    Ok(verdict)
}

fn path() -> Result<Utf8PathBuf> {
    Ok(paths::cache()?.join("kvm-probe.json"))
}

fn probe(image: &HostImage) -> Result<(bool, String)> {
    let bar = exec::spinner("trying this machine's KVM with a probe guest");
    let mut command = base_command(Accel::Kvm, 512, 1);
    command
        .args(["-serial", "stdio", "-kernel"])
        .arg(&image.kernel)
        .arg("-append")
        .arg(format!("{COMMAND_LINE} space.probe "))
        .args(root_disk(&image.disk));
    let log = paths::logs().join("kvm-probe.log");
    fs::create_dir_all(paths::logs())?;
    let output = fs::File::create(&log)?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .context("cannot start qemu-system-x86_64; `cargo xtask setup` installs it")?;
    let ended = exec::wait_for(&mut child, DEADLINE)?.is_some();
    if !ended {
        child.kill().context("cannot kill the probe guest")?;
        child.wait()?;
    }
    bar.finish_and_clear();
    let said = fs::read_to_string(&log).unwrap_or_default();
    Ok(judge(&said, ended))
}

fn judge(said: &str, ended: bool) -> (bool, String) {
    let guest = said.contains("space-host: probe answered");
    let nested = said.contains("nested=yes");
    let why = match (guest, nested, ended) {
        (true, true, _) => "usable, nested virtualisation included",
        (true, false, _) => "runs guests, without nested virtualisation",
        (false, _, true) => "not usable: the probe guest died",
        (false, _, false) => "not usable: the probe guest did not answer in time",
    };
    (guest && nested, why.to_owned())
}

/// QEMU with a processor, memory and nothing else.
pub(super) fn base_command(accel: Accel, memory: u32, smp: u32) -> Command {
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-M", "q35"]);
    match accel {
        Accel::Kvm => command.args(["-accel", "kvm", "-cpu", "host"]),
        Accel::Tcg => command.args(["-accel", "tcg,thread=multi,tb-size=1024", "-cpu", "max,+svm"]),
    };
    command.args(["-smp", &smp.to_string(), "-m", &memory.to_string()]).args([
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
    ]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_not_a_usable_kvm() {
        let (nested, why) = judge("", false);
        assert!(!nested);
        assert!(why.contains("did not answer"));
    }

    #[test]
    fn a_guest_without_nested_virtualisation_is_told_apart() {
        let (nested, why) = judge("space-host: probe answered, nested=no\n", true);
        assert!(!nested && why.starts_with("runs guests"), "{why}");
    }
}
