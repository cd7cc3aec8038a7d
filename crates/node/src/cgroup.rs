//! cgroup v2, by its files: one leaf a VM below the parent for VMs, one a worker below another.
//!
//! A cgroup is made before the process that lives in it and journaled before that, and a child enters it
//! before it executes anything. So writing `cgroup.kill` ends everything that was ever started there, pids or
//! no pids.

use std::{
    fs,
    io::{self, Write},
    time::Duration,
};

use camino::{Utf8Path, Utf8PathBuf};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open},
};
use space_types::ByteSize;

const ROOT: &str = "/sys/fs/cgroup";
const CONTROLLERS: &str = "+cpu +memory +pids";
/// How long the kernel may take to tear down what was killed.
const KILL_DEADLINE: Duration = Duration::from_secs(30);

/// The parent of all leaves of one kind.
#[derive(Debug, Clone)]
pub(crate) struct CgroupParent {
    name: String,
}

/// One leaf.
#[derive(Debug, Clone)]
pub(crate) struct Cgroup {
    path: Utf8PathBuf,
    name: String,
}

/// What a leaf may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CgroupLimits {
    pub(crate) memory: ByteSize,
    /// Hundredths of a processor.
    pub(crate) cpu_percent: u32,
    pub(crate) tasks: u32,
}

impl CgroupParent {
    /// Makes the parent where it is missing and turns on the controllers that leaves need. Blocks.
    pub(crate) fn prepare(name: &str) -> io::Result<Self> {
        let root = Utf8Path::new(ROOT);
        fs::write(root.join("cgroup.subtree_control"), CONTROLLERS)?;
        let path = root.join(name);
        fs::create_dir_all(&path)?;
        fs::write(path.join("cgroup.subtree_control"), CONTROLLERS)?;
        Ok(Self { name: name.to_owned() })
    }

    /// One that nothing is made in.
    #[cfg(test)]
    pub(crate) fn unprepared() -> Self {
        Self { name: "space-no-such-parent".to_owned() }
    }

    pub(crate) fn leaf(&self, leaf: &str) -> Cgroup {
        let name = format!("{}/{leaf}", self.name);
        Cgroup { path: Utf8Path::new(ROOT).join(&name), name }
    }
}

impl Cgroup {
    /// Relative to the root of the hierarchy, as the jailer wants it and `/proc/<pid>/cgroup` shows it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Idempotent.
    pub(crate) fn create(&self) -> io::Result<()> {
        match fs::create_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    pub(crate) fn limit(&self, limits: CgroupLimits) -> io::Result<()> {
        const PERIOD: u32 = 100_000;
        let quota = PERIOD / 100 * limits.cpu_percent;
        fs::write(self.path.join("memory.max"), limits.memory.as_bytes().to_string())?;
        // Guests' memory and workers' keys stay off the disk, and a guest's limit is not widened by what is swapped.
        self.write_if_there("memory.swap.max", "0")?;
        fs::write(self.path.join("memory.oom.group"), "1")?;
        fs::write(self.path.join("cpu.max"), format!("{quota} {PERIOD}"))?;
        fs::write(self.path.join("pids.max"), limits.tasks.to_string())
    }

    /// For a file that kernels without the feature lack.
    fn write_if_there(&self, name: &str, value: &str) -> io::Result<()> {
        match fs::File::options().write(true).open(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            opened => opened?.write_all(value.as_bytes()),
        }
    }

    /// For a child to enter by.
    pub(crate) fn entrance(&self) -> io::Result<fs::File> {
        fs::OpenOptions::new().write(true).open(self.path.join("cgroup.procs"))
    }

    /// Times that the kernel killed something here for want of memory.
    pub(crate) fn oom_kills(&self) -> u64 {
        let events = fs::read_to_string(self.path.join("memory.events")).unwrap_or_default();
        events.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok()).unwrap_or(0)
    }

    /// Whether the process `pid` lives here.
    pub(crate) fn holds(&self, pid: i32) -> bool {
        let wanted = format!("0::/{}", self.name);
        fs::read_to_string(format!("/proc/{pid}/cgroup"))
            .is_ok_and(|text| text.lines().any(|line| line == wanted))
    }

    /// Kills everything in it, waits until that is gone and removes it. Idempotent. Blocks.
    pub(crate) fn destroy(&self) -> io::Result<()> {
        if !self.path.exists() {
            return Ok(());
        }
        fs::write(self.path.join("cgroup.kill"), "1")?;
        self.wait_until_empty()?;
        match fs::remove_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn wait_until_empty(&self) -> io::Result<()> {
        let deadline = std::time::Instant::now() + KILL_DEADLINE;
        let path = self.path.join("cgroup.events");
        let events = open(path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        loop {
            let mut buffer = [0_u8; 256];
            let length = rustix::io::pread(&events, &mut buffer, 0)?;
            if buffer[..length].windows(11).any(|window| window == b"populated 0") {
                return Ok(());
            }
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return Err(io::Error::from(io::ErrorKind::TimedOut));
            }
            let wait = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(1),
                tv_nsec: left.subsec_nanos().into(),
            };
            poll(&mut [PollFd::new(&events, PollFlags::PRI)], Some(&wait))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_limited_may_not_swap_where_the_kernel_can_tell() {
        let directory = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(directory.path()).unwrap().to_owned();
        let cgroup = Cgroup { path: path.clone(), name: "leaf".to_owned() };
        let limits = CgroupLimits { memory: ByteSize::mib(1), cpu_percent: 150, tasks: 3 };
        cgroup.limit(limits).unwrap();
        assert!(!path.join("memory.swap.max").exists(), "a cgroup's files are the kernel's to make");
        fs::write(path.join("memory.swap.max"), "max").unwrap();
        cgroup.limit(limits).unwrap();
        // A file of the kernel's is written as a whole; this one keeps what is longer.
        assert!(fs::read_to_string(path.join("memory.swap.max")).unwrap().starts_with('0'));
        assert_eq!(fs::read_to_string(path.join("cpu.max")).unwrap(), "150000 100000");
    }
}
