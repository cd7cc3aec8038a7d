//! What can be told by looking.

use std::{
    fs::{self, OpenOptions},
    path::Path,
};

use camino::Utf8Path;
use nix::{
    sys::{statfs::statfs, statvfs::statvfs, utsname::uname},
    unistd::Uid,
};
use space_types::{ByteSize, UidRange, VM_UIDS, WORKER_UIDS};

use super::Finding;
use crate::{assets::Assets, up::postgres};

const MEMORY_NEEDED: ByteSize = ByteSize::gib(1);
const DISK_NEEDED: ByteSize = ByteSize::gib(8);

pub(super) fn examine(data: &Utf8Path, assets: &Assets) -> Vec<Finding> {
    vec![
        root(),
        kernel(),
        processor(),
        kvm(),
        device("tun", "/dev/net/tun", "load the kernel module `tun` (`modprobe tun`)"),
        cgroup(),
        uids(),
        btrfs(data),
        postgresql(),
        memory(),
        disk(data),
        files(assets),
    ]
}

fn root() -> Finding {
    if Uid::effective().is_root() {
        Finding::ok("root", "yes")
    } else {
        Finding::warning("root", "no", "`space up` needs it: `sudo space up`. Users of the API don't")
    }
}

fn kernel() -> Finding {
    let release =
        uname().map_or_else(|_| String::from("unknown"), |name| name.release().to_string_lossy().into());
    if version(&release) >= Some((5, 10)) {
        Finding::ok("kernel", release)
    } else {
        Finding::failed("kernel", release, "Linux 5.10 or newer is needed: update the system")
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn processor() -> Finding {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |flag: &str| flags.split_ascii_whitespace().any(|word| word == flag);
    if has("vmx") || has("svm") {
        return Finding::ok("processor", if has("vmx") { "Intel VT-x" } else { "AMD SVM" });
    }
    // The probe decides: some hypervisors hide the flag.
    Finding::warning(
        "processor",
        "no virtualisation to be seen",
        "enable it in the firmware (VT-x, SVM), or for a VM on its host (nested virtualisation)",
    )
}

fn kvm() -> Finding {
    let fix =
        "load `kvm_intel` or `kvm_amd`; where there is no virtualisation, `make run` brings an emulated host";
    device("kvm", "/dev/kvm", fix)
}

fn device(check: &'static str, path: &str, fix: &str) -> Finding {
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) => Finding::ok(check, format!("{path} opens")),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Finding::failed(check, format!("{path}: {error}"), "run this as root")
        }
        Err(error) => Finding::failed(check, format!("{path}: {error}"), fix),
    }
}

fn cgroup() -> Finding {
    let fix = "boot with cgroup v2 alone (`systemd.unified_cgroup_hierarchy=1` on older systems), or mount it \
               there: `mount -t cgroup2 cgroup2 /sys/fs/cgroup`";
    let Ok(controllers) = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers") else {
        return Finding::failed("cgroup", "no cgroup v2 at /sys/fs/cgroup", fix);
    };
    let has = |name: &&str| controllers.split_ascii_whitespace().any(|word| word == *name);
    let missing: Vec<_> = ["cpu", "memory", "pids"].into_iter().filter(|name| !has(name)).collect();
    if missing.is_empty() {
        Finding::ok("cgroup", "v2 with cpu, memory and pids")
    } else {
        Finding::failed("cgroup", format!("v2 without {}", missing.join(", ")), fix)
    }
}

/// Whoever has a microVM's user id among the subordinate ids of their containers could become that user.
fn uids() -> Finding {
    let ours = [VM_UIDS, WORKER_UIDS];
    for path in ["/etc/subuid", "/etc/subgid"] {
        let list = fs::read_to_string(path).unwrap_or_default();
        if let Some(line) = claim(&list, &ours) {
            let detail = format!("{path} gives away ids that microVMs and workers run under: {line}");
            let fix = "give that user another range, or the node one by the environment of `space up`: \
                       SPACE_NODED__VM_UIDS__FIRST, SPACE_NODED__WORKER_UIDS__FIRST";
            return Finding::warning("user ids", detail, fix);
        }
    }
    let last = WORKER_UIDS.first + WORKER_UIDS.count - 1;
    Finding::ok("user ids", format!("nobody has subordinate ids among {} to {last}", VM_UIDS.first))
}

/// The first line of `list` (`name:first:count`) that has an id in `ours`.
fn claim<'a>(list: &'a str, ours: &[UidRange]) -> Option<&'a str> {
    list.lines().find(|line| {
        let mut fields = line.split(':').skip(1).map(|field| field.trim().parse().ok());
        let (Some(Some(first)), Some(Some(count))) = (fields.next(), fields.next()) else { return false };
        ours.iter().any(|range| range.overlaps(UidRange { first, count }))
    })
}

/// Reflinks: by the data directory itself, or by a pool file on btrfs that `space up` mounts.
fn btrfs(data: &Utf8Path) -> Finding {
    if is_btrfs(data) {
        return Finding::ok("btrfs", format!("{data} is on btrfs"));
    }
    let known = fs::read_to_string("/proc/filesystems").is_ok_and(|list| list.contains("\tbtrfs\n"));
    let release =
        uname().map_or_else(|_| String::new(), |name| name.release().to_string_lossy().into_owned());
    let module = Path::new("/lib/modules").join(release).join("kernel/fs/btrfs");
    if !known && !module.exists() {
        return Finding::failed(
            "btrfs",
            "the kernel has none",
            "use a kernel with btrfs, such as the distribution's",
        );
    }
    if postgres::find_in_path("mkfs.btrfs").is_none() {
        return Finding::failed("btrfs", "no mkfs.btrfs", "install it: `apt-get install btrfs-progs`");
    }
    Finding::ok("btrfs", "available; a pool file will be made and mounted")
}

/// Whether what is, or would come, at `path` lies on btrfs.
pub(crate) fn is_btrfs(path: &Utf8Path) -> bool {
    let existing = path.ancestors().find(|path| path.exists());
    existing
        .and_then(|path| statfs(path.as_std_path()).ok())
        .is_some_and(|stat| stat.filesystem_type() == nix::sys::statfs::BTRFS_SUPER_MAGIC)
}

fn postgresql() -> Finding {
    match postgres::Binaries::find() {
        Some(found) => Finding::ok("postgresql", format!("{} in {}", found.version, found.dir)),
        None => Finding::failed(
            "postgresql",
            format!("no initdb of version {} or newer", postgres::OLDEST),
            "install it: `apt-get install postgresql` (its own service is not used and may be disabled)",
        ),
    }
}

fn memory() -> Finding {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    let available = ByteSize::bytes(kib.map_or(0, |kib: u64| kib.saturating_mul(1024)));
    let detail = format!("{available} available");
    if available >= MEMORY_NEEDED {
        Finding::ok("memory", detail)
    } else {
        Finding::warning("memory", detail, format!("{MEMORY_NEEDED} and more let a few sandboxes run"))
    }
}

fn disk(data: &Utf8Path) -> Finding {
    let existing = data.ancestors().find(|path| path.exists()).unwrap_or(Utf8Path::new("/"));
    let Ok(stat) = statvfs(existing.as_std_path()) else {
        return Finding::warning("disk", format!("{existing} tells nothing"), "see that the path is right");
    };
    let free = ByteSize::bytes(stat.blocks_available().saturating_mul(stat.fragment_size()));
    let detail = format!("{free} free at {existing}");
    if free >= DISK_NEEDED {
        Finding::ok("disk", detail)
    } else {
        Finding::warning("disk", detail, format!("{DISK_NEEDED} and more leave room for templates and disks"))
    }
}

fn files(assets: &Assets) -> Finding {
    let missing = assets.missing();
    if missing.is_empty() {
        return Finding::ok("assets", assets.dir().as_str());
    }
    let names: Vec<_> = missing.iter().filter_map(|path| path.file_name()).collect();
    Finding::failed(
        "assets",
        format!("missing in {}: {}", assets.dir(), names.join(", ")),
        "build them with `make run`, or name their directory with --assets",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_on_our_user_ids_is_found() {
        let ours = [VM_UIDS, WORKER_UIDS];
        let usual = "# people\nann:100000:65536\nben:165536:65536\n\nodd\neve:x:1\n";
        assert_eq!(claim(usual, &ours), None);
        let line = format!("mallory:{}:1", WORKER_UIDS.first + 7);
        assert_eq!(claim(&format!("{usual}{line}\n"), &ours), Some(line.as_str()));
    }

    #[test]
    fn kernel_versions_compare_as_numbers() {
        assert_eq!(version("6.1.0-31-cloud-amd64"), Some((6, 1)));
        assert!(version("5.4.0") < Some((5, 10)) && version("odd").is_none());
    }
}
