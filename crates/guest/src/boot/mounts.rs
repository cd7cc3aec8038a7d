//! Mounts: the few of the initramfs, the root drive, and those that programs expect of a running system.

#![expect(clippy::disallowed_methods, reason = "the agent mounts the file systems of its guest")]

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, symlink},
    path::Path,
};

use rustix::{
    mount::{MountFlags, mount, mount_move, mount_remount},
    process::{chdir, chroot},
};

use super::Warnings;

pub(super) const ROOT_DEVICE: &str = "/dev/vda";
/// Where terminals are.
pub(super) const TERMINALS: &str = "/dev/pts";
const NEW_ROOT: &str = "/newroot";

/// Why the guest has no root filesystem.
#[derive(Debug, thiserror::Error)]
pub(super) enum EnterRootError {
    #[error("cannot mount {ROOT_DEVICE} as ext4: {0}")]
    Mount(io::Error),
    #[error("cannot make {ROOT_DEVICE} the root: {0}")]
    Switch(io::Error),
}

struct Mount {
    what: &'static str,
    kind: &'static str,
    at: &'static str,
    mode: u32,
    flags: MountFlags,
    options: &'static str,
}

const QUIET: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

const fn tree(kind: &'static str, at: &'static str, flags: MountFlags, options: &'static str) -> Mount {
    Mount { what: kind, kind, at, mode: 0o755, flags, options }
}

/// In both phases, in this order.
const BASIC: [Mount; 3] = [
    tree("devtmpfs", "/dev", MountFlags::NOSUID, "mode=0755"),
    tree("proc", "/proc", QUIET, ""),
    tree("sysfs", "/sys", QUIET, ""),
];

const SYSTEM: [Mount; 5] = [
    tree("devpts", TERMINALS, MountFlags::NOSUID.union(MountFlags::NOEXEC), "gid=5,mode=0620,ptmxmode=0666"),
    tree("tmpfs", "/dev/shm", MountFlags::NOSUID.union(MountFlags::NODEV), "mode=1777"),
    tree("mqueue", "/dev/mqueue", QUIET, ""),
    tree("tmpfs", "/run", MountFlags::NOSUID.union(MountFlags::NODEV), "mode=0755,size=20%"),
    tree("cgroup2", "/sys/fs/cgroup", QUIET, "nsdelegate"),
];

/// What the initramfs needs. A kernel that mounted `/dev` itself is fine.
pub(super) fn mount_early(warnings: &mut Warnings) {
    for entry in &BASIC {
        mount_one(entry, warnings);
    }
}

/// Mounts the root drive and moves there for good. What this leaves behind, the initramfs, can't be seen
/// from there.
pub(super) fn enter_root() -> Result<(), EnterRootError> {
    make_directory(NEW_ROOT, 0o755).map_err(EnterRootError::Mount)?;
    let flags = MountFlags::RELATIME;
    mount(ROOT_DEVICE, NEW_ROOT, "ext4", flags, None).map_err(|error| EnterRootError::Mount(error.into()))?;
    switch().map_err(|error| EnterRootError::Switch(error.into()))
}

fn switch() -> rustix::io::Result<()> {
    chdir(NEW_ROOT)?;
    mount_move(".", "/")?;
    chroot(".")?;
    chdir("/")
}

/// What programs expect of a running system. On the new root the basic ones are mounted anew: the early ones
/// stayed behind.
pub(super) fn mount_system(warnings: &mut Warnings) {
    for entry in BASIC.iter().chain(&SYSTEM) {
        mount_one(entry, warnings);
    }
    for (directory, mode) in [("/tmp", 0o1777), ("/var/tmp", 0o1777), ("/run/lock", 0o1777)] {
        if !Path::new(directory).exists() {
            warnings.check(directory, make_directory(directory, mode));
        }
    }
    // Open to everybody, as udev has them: each checks its caller by itself.
    for device in ["/dev/fuse", "/dev/net/tun"] {
        if Path::new(device).exists() {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
            warnings.check(device, fs::set_permissions(device, mode));
        }
    }
    let links = [
        ("/proc/self/fd", "/dev/fd"),
        ("/proc/self/fd/0", "/dev/stdin"),
        ("/proc/self/fd/1", "/dev/stdout"),
        ("/proc/self/fd/2", "/dev/stderr"),
    ];
    for (target, link) in links {
        warnings.check(link, ignore_existing(symlink(target, link)));
    }
}

fn mount_one(entry: &Mount, warnings: &mut Warnings) {
    let Mount { what, kind, at, mode, flags, options } = entry;
    if !warnings.check(at, make_directory(at, *mode)) {
        return;
    }
    let options = std::ffi::CString::new(*options).unwrap_or_default();
    match mount(*what, *at, *kind, *flags, Some(options.as_c_str())) {
        // Mounted already, by the kernel or by the first phase where there is no other root.
        Ok(()) | Err(rustix::io::Errno::BUSY) => {}
        Err(error) => {
            warnings.check(&format!("mount {at}"), Err(error));
        }
    }
}

/// The root, so that its journal is empty when the VM ends. It may be busy or wrecked: never mind.
pub(super) fn make_read_only() {
    mount_remount("/", MountFlags::RDONLY, c"").ok();
}

fn make_directory(path: &str, mode: u32) -> io::Result<()> {
    fs::DirBuilder::new().mode(mode).recursive(true).create(path)?;
    if mode & 0o1000 == 0 {
        return Ok(());
    }
    // The umask took what a shared directory is about.
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
}

fn ignore_existing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}
