//! SPACE's daemons as processes: finding them, killing them, arming their fail points.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, bail, ensure};

use crate::wait;

/// A daemon that `space up` supervises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Daemon {
    Control,
    Edge,
    Node,
    Worker,
    Postgres,
}

impl Daemon {
    /// The program's file name.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Control => "space-controld",
            Self::Edge => "space-edged",
            Self::Node => "space-noded",
            Self::Worker => "space-sandboxd",
            Self::Postgres => "postgres",
        }
    }

    /// The oldest living process of it.
    pub fn pid(self) -> Result<u32> {
        let pids = processes(self.program())?;
        pids.first().copied().with_context(|| format!("no {} is running", self.program()))
    }

    /// `kill -9`, then waits until another process has taken its place.
    pub async fn kill(self) -> Result<()> {
        let before = self.pid()?;
        signal(before, "KILL")?;
        self.replaced(before).await
    }

    /// As `kill`; but a tenant without sandboxes has no worker, the next one is started with the next sandbox.
    pub async fn restart(self) -> Result<()> {
        if self == Self::Worker {
            return processes(self.program())?.into_iter().try_for_each(|pid| signal(pid, "KILL"));
        }
        self.kill().await
    }

    /// Waits until a process other than `before` runs.
    pub async fn replaced(self, before: u32) -> Result<()> {
        wait::until("a new process", Duration::from_mins(1), || async move {
            let pid = self.pid()?;
            ensure!(pid != before, "{} still has pid {pid}", self.program());
            Ok(())
        })
        .await
    }

    /// Restarts the daemon with a fail point armed: it will abort there once, and come back unarmed.
    pub async fn arm(self, point: &str) -> Result<()> {
        let file = Path::new("/run/space").join(format!("fail-point.{}", self.program()));
        fs::write(&file, point).with_context(|| format!("cannot write {}", file.display()))?;
        self.restart().await?;
        if self == Self::Worker {
            return Ok(());
        }
        wait::until("the fail point to be taken", Duration::from_mins(1), || async {
            ensure!(!file.exists(), "{} is still there", file.display());
            Ok(())
        })
        .await
    }

    /// How often it has died at that fail point, by its log.
    pub fn deaths_at(self, point: &str) -> Result<usize> {
        // A worker logs where its node does.
        let program = if self == Self::Worker { Self::Node.program() } else { self.program() };
        let log = fs::read_to_string(format!("/var/lib/space/logs/{program}.log"))?;
        let named = format!("\"{point}\"");
        Ok(log.lines().filter(|line| line.contains("aborting as asked") && line.contains(&named)).count())
    }

    /// The names of its fail points, as the daemon itself lists them.
    pub fn fail_points(self) -> Result<Vec<String>> {
        let output =
            Command::new(self.program()).arg("fail-points").output().context("cannot list fail points")?;
        ensure!(output.status.success(), "`{} fail-points` failed", self.program());
        let names = String::from_utf8(output.stdout)?;
        Ok(names.split_whitespace().map(str::to_owned).collect())
    }

    /// Runs a program as the user that the daemon runs as, and tells whether it succeeded: what whoever has taken the daemon
    /// over can do.
    pub fn can(self, program: &[&str]) -> Result<bool> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()?))?;
        let id = |name: &str| {
            let ids = status.lines().find_map(|line| line.strip_prefix(name));
            ids.and_then(|ids| ids.split_whitespace().next())
                .with_context(|| format!("no {name} in {status}"))
        };
        let (user, group) = (format!("--reuid={}", id("Uid:")?), format!("--regid={}", id("Gid:")?));
        let output = Command::new("setpriv")
            .args([user.as_str(), &group, "--clear-groups", "--"])
            .args(program)
            .output()
            .context("cannot start setpriv")?;
        Ok(output.status.success())
    }

    /// Resident memory in KiB.
    pub fn resident_kib(self) -> Result<u64> {
        resident_kib(self.pid()?)
    }
}

/// Pids of all processes whose program file has that name, oldest first.
pub fn processes(program: &str) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may end while we look.
        let Ok(command) = fs::read(format!("/proc/{pid}/cmdline")) else { continue };
        let first = command.split(|byte| *byte == 0).next().unwrap_or_default();
        if Path::new(&*String::from_utf8_lossy(first)).file_name().is_some_and(|name| name == program) {
            found.push(pid);
        }
    }
    found.sort_unstable_by_key(|pid| start_time(*pid).unwrap_or(u64::MAX));
    Ok(found)
}

pub fn signal(pid: u32, name: &str) -> Result<()> {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status()?;
    if !status.success() {
        bail!("kill -{name} {pid} failed");
    }
    Ok(())
}

pub fn resident_kib(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Field 22 of `/proc/<pid>/stat`; the name in parentheses may hold spaces.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}
