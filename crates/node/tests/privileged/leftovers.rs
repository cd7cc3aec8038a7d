//! What a node has made on its machine, looked at from the outside, and clearing away after a test that
//! failed.

use std::{
    fs,
    time::{Duration, Instant},
};

use camino::Utf8Path;

use crate::kit::{Kit, PATIENCE};

/// Names of things that exist.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Leftovers {
    pub(crate) jails: Vec<String>,
    pub(crate) spools: Vec<String>,
    pub(crate) namespaces: Vec<String>,
    pub(crate) consoles: Vec<String>,
    pub(crate) vm_cgroups: Vec<String>,
    pub(crate) worker_cgroups: Vec<String>,
    pub(crate) mounts: Vec<String>,
    /// Of this node's users.
    pub(crate) processes: Vec<String>,
}

impl Kit {
    pub(crate) fn leftovers(&self) -> Leftovers {
        Leftovers {
            jails: names(&self.path("data/jails/firecracker")),
            spools: names(&self.path("data/spools")),
            namespaces: names(&self.path("run/netns")),
            consoles: names(&self.path("run/console")),
            vm_cgroups: directories(&cgroup(&self.vm_cgroup())),
            worker_cgroups: directories(&cgroup(&self.worker_cgroup())),
            mounts: self.mounts(),
            processes: self.processes(),
        }
    }

    /// Waits until nothing is left, pool and workers included: the daemon must have been stopped. A worker
    /// dies with it, but its cgroup stays until the next start, so that one is not looked at.
    pub(crate) fn nothing_is_left(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = Leftovers { worker_cgroups: Vec::new(), ..self.leftovers() };
            if left == Leftovers::default() {
                return;
            }
            assert!(Instant::now() < deadline, "left: {left:#?}\n{}", self.log());
            // The kernel tears processes down in its own time.
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn mounts(&self) -> Vec<String> {
        let own = self.path("run").to_string();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.lines().filter(|line| line.contains(&own)).map(str::to_owned).collect()
    }

    fn processes(&self) -> Vec<String> {
        let users = self.first_uid()..self.first_uid() + 100;
        let of_ours = |pid: &String| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next());
            uid.and_then(|uid| uid.parse().ok()).is_some_and(|uid: u32| users.contains(&uid))
        };
        let pids = names(Utf8Path::new("/proc")).into_iter();
        pids.filter(|name| name.bytes().all(|b| b.is_ascii_digit())).filter(of_ours).collect()
    }

    /// After a test, whatever became of it.
    pub(crate) fn clear_away(&self) {
        for parent in [self.vm_cgroup(), self.worker_cgroup()] {
            let parent = cgroup(&parent);
            for leaf in directories(&parent) {
                drop(fs::write(parent.join(&leaf).join("cgroup.kill"), "1"));
                let deadline = Instant::now() + Duration::from_secs(10);
                while fs::remove_dir(parent.join(&leaf)).is_err() && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            drop(fs::remove_dir(&parent));
        }
        for name in names(&self.path("run/netns")) {
            let path = self.path("run/netns").join(name);
            #[expect(clippy::disallowed_methods, reason = "what a dead node leaves mounted")]
            let gone = rustix::mount::unmount(path.as_str(), rustix::mount::UnmountFlags::DETACH);
            gone.unwrap_or_else(|error| eprintln!("{path}: {error}"));
        }
    }
}

fn cgroup(name: &str) -> camino::Utf8PathBuf {
    Utf8Path::new("/sys/fs/cgroup").join(name)
}

fn names(directory: &Utf8Path) -> Vec<String> {
    let Ok(entries) = directory.read_dir_utf8() else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().to_owned()).collect()
}

fn directories(directory: &Utf8Path) -> Vec<String> {
    names(directory).into_iter().filter(|name| directory.join(name).is_dir()).collect()
}
