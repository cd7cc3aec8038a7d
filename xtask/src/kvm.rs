//! Can SPACE run right on this machine?
//!
//! A `/dev/kvm` that opens proves nothing: a paravirtual KVM creates VMs and then can't run an ordinary kernel. So
//! `space doctor` boots the guest that sandboxes boot, with the Firecracker that they use. What it found holds until
//! the machine reboots or the assets change. Whether the device opens is looked at anew each time: that costs nothing,
//! and joining a group changes it.

use std::fs::{self, File};
use std::io;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::setup::sudo;
use crate::{cache, exec, paths};

/// What a user in no group of the device does about it.
const REMEDY: &str = "`sudo adduser $USER kvm` and a new login let you use it";

/// What opening `/dev/kvm` comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Device {
    Opens,
    /// It is there, for others than this user.
    Denied,
    Unusable(String),
}

impl Device {
    pub(crate) fn look() -> Self {
        let opened = File::options().read(true).write(true).open("/dev/kvm");
        Self::judge(opened.map(drop), rustix::process::geteuid().is_root())
    }

    /// `EPERM` is the word of a container that keeps devices away: no group helps there.
    fn judge(opened: io::Result<()>, is_root: bool) -> Self {
        match opened {
            Ok(()) => Self::Opens,
            Err(error) if !is_root && Errno::from_io_error(&error) == Some(Errno::ACCESS) => Self::Denied,
            Err(error) => Self::Unusable(format!("not usable: /dev/kvm: {error}")),
        }
    }

    /// Why this user can't go on to try it with a guest.
    pub(crate) fn obstacle(self) -> Option<String> {
        match self {
            Self::Opens => None,
            Self::Denied => Some(format!("closed to this user: {REMEDY}")),
            Self::Unusable(why) => Some(why),
        }
    }
}

/// What the probe guest came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// SPACE can run right here.
    pub(crate) usable: bool,
    /// What this machine's KVM is.
    pub(crate) why: String,
}

impl Verdict {
    fn unusable(why: String) -> Self {
        Self { usable: false, why }
    }
}

/// A verdict and what it is of.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    boot: String,
    assets: String,
    verdict: Verdict,
}

/// The verdict on this machine. Needs the binaries and the assets. Root's right to the device is asked for where the
/// user has none, since SPACE itself runs as root.
pub(crate) fn verdict(data: &Utf8Path) -> Result<Verdict> {
    let device = Device::look();
    if let Device::Unusable(why) = &device {
        return Ok(Verdict::unusable(why.clone()));
    }
    let path = paths::cache()?.join("kvm-direct.json");
    let boot = boot_id();
    let assets = cache::sha256_file(&paths::assets().join("manifest.json"))?;
    let kept: Option<Kept> = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
    if let Some(kept) = kept.filter(|kept| kept.boot == boot && kept.assets == assets) {
        return Ok(kept.verdict);
    }
    if device == Device::Denied && !sudo_allows() {
        return Ok(Verdict::unusable(format!("closed to this user: {REMEDY}")));
    }
    let program = paths::bin().join("space");
    let command = if device == Device::Denied { sudo(&program) } else { Command::new(&program) };
    let verdict = doctor(command, data)?;
    let kept = Kept { boot, assets, verdict: verdict.clone() };
    cache::write_atomic(&path, &serde_json::to_vec_pretty(&kept)?)?;
    Ok(verdict)
}

fn sudo_allows() -> bool {
    eprintln!(
        "/dev/kvm is closed to this user: {REMEDY}.\n\
         For now it is tried with sudo: SPACE itself runs as root."
    );
    exec::passed_through(Command::new("sudo").arg("--validate")).is_ok()
}

/// The kernel's id of this boot.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// An ordinary guest needs well under a second; a paravirtual KVM never gets there.
const SECONDS: &str = "20";

fn doctor(mut command: Command, data: &Utf8Path) -> Result<Verdict> {
    let bar = exec::spinner("trying this machine's KVM with a probe guest");
    let output = command
        .args(["--json", "doctor", "--deadline", SECONDS, "--data", data.as_str()])
        .args(["--assets", paths::assets().as_str()])
        .stdin(Stdio::null())
        .output()
        .context("cannot run `space doctor`")?;
    bar.finish_and_clear();
    // Its exit code is about everything that it checks; `space up` says the rest.
    let report: Report = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("`space doctor` says {}", String::from_utf8_lossy(&output.stderr).trim()))?;
    judge(&report)
}

/// The part of `space doctor --json` that this is about.
#[derive(Debug, Deserialize)]
struct Report {
    checks: Vec<Finding>,
}

#[derive(Debug, Deserialize)]
struct Finding {
    check: String,
    status: String,
    detail: String,
}

fn judge(report: &Report) -> Result<Verdict> {
    let probe = report.checks.iter().find(|check| check.check == "probe guest");
    let probe = probe.context("`space doctor` tried no probe guest")?;
    if probe.status == "ok" {
        return Ok(Verdict { usable: true, why: "usable".to_owned() });
    }
    // Where the probe was not tried, another check says why.
    let before =
        report.checks.iter().filter(|check| check.status == "failed" && check.check != "probe guest");
    let others: Vec<_> = before.map(|check| format!("{}: {}", check.check, check.detail)).collect();
    let why = if probe.detail == "not tried" { others.join("; ") } else { probe.detail.clone() };
    Ok(Verdict::unusable(format!("not usable: {why}")))
}

/// The first directory above `path` that users other than its owner may not pass. SPACE's own users have to, so it
/// can't keep its data below one, such as a home directory.
pub(crate) fn closed_ancestor(
    path: &Utf8Path,
    mode: impl Fn(&Utf8Path) -> Option<u32>,
) -> Option<Utf8PathBuf> {
    let closed = |dir: &&Utf8Path| mode(dir).is_some_and(|mode| mode & 0o001 == 0);
    path.ancestors().skip(1).find(closed).map(Utf8Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(errno: Errno, is_root: bool) -> Device {
        Device::judge(Err(errno.into()), is_root)
    }

    #[test]
    fn a_device_for_another_group_is_no_verdict_on_the_machine() {
        assert_eq!(refused(Errno::ACCESS, false), Device::Denied);
        let obstacle = refused(Errno::ACCESS, false).obstacle().unwrap();
        assert!(obstacle.contains("adduser $USER kvm"), "{obstacle}");
    }

    #[test]
    fn no_group_is_advised_where_none_would_help() {
        for device in [
            refused(Errno::NOENT, false),
            refused(Errno::NODEV, false),
            refused(Errno::PERM, false),
            refused(Errno::ACCESS, true),
        ] {
            let obstacle = device.obstacle().unwrap();
            assert!(obstacle.starts_with("not usable") && !obstacle.contains("adduser"), "{obstacle}");
        }
        assert_eq!(Device::judge(Ok(()), false).obstacle(), None);
    }

    fn report(checks: &[(&str, &str, &str)]) -> Report {
        let check = |(check, status, detail): &(&str, &str, &str)| Finding {
            check: (*check).to_owned(),
            status: (*status).to_owned(),
            detail: (*detail).to_owned(),
        };
        Report { checks: checks.iter().map(check).collect() }
    }

    #[test]
    fn a_guest_that_answers_decides_whatever_else_is_amiss() {
        let report = report(&[("postgresql", "failed", "none"), ("probe guest", "ok", "answered")]);
        assert!(judge(&report).unwrap().usable);
    }

    #[test]
    fn a_guest_that_does_not_answer_makes_the_machine_unusable() {
        let silent = judge(&report(&[("kvm", "ok", ""), ("probe guest", "failed", "no answer")])).unwrap();
        assert_eq!(silent, Verdict::unusable("not usable: no answer".to_owned()));
        let untried = report(&[("kvm", "failed", "none"), ("probe guest", "failed", "not tried")]);
        assert_eq!(judge(&untried).unwrap().why, "not usable: kvm: none");
    }

    #[test]
    fn a_report_without_a_probe_is_no_verdict() {
        judge(&report(&[("kvm", "ok", "")])).unwrap_err();
    }

    #[test]
    fn data_below_a_closed_home_is_found_and_below_var_lib_is_not() {
        let mode = |dir: &Utf8Path| match dir.as_str() {
            "/home/ann" | "/root" => Some(0o700),
            "/home/ben" => Some(0o750),
            "/" | "/home" | "/var" | "/var/lib" | "/home/cat" => Some(0o755),
            _ => None,
        };
        let closed = |path: &str| closed_ancestor(Utf8Path::new(path), mode);
        assert_eq!(closed("/home/ann/space/target/data").as_deref(), Some(Utf8Path::new("/home/ann")));
        assert_eq!(closed("/home/ben/data").as_deref(), Some(Utf8Path::new("/home/ben")));
        assert_eq!(closed("/root/data").as_deref(), Some(Utf8Path::new("/root")));
        assert_eq!(closed("/var/lib/space"), None);
        assert_eq!(closed("/home/cat/not/there/yet"), None);
    }
}
