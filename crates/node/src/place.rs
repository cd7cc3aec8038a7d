//! Where everything of one VM lies. Each outside resource has a name that follows from the VM's id and slot
//! alone, so one row in the journal, written first, is enough to find and remove all of them.

use std::{fmt, str::FromStr};

use camino::{Utf8Path, Utf8PathBuf};
use uuid::Uuid;

use crate::config::NodeConfig;

/// Name of a VM on this node: 32 hex digits. Not the sandbox's, since a pre-spawned VM has none yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct VmId(Uuid);

impl VmId {
    pub(crate) fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl fmt::Display for VmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.simple())
    }
}

impl fmt::Debug for VmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for VmId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        Uuid::try_parse(text).map(Self)
    }
}

/// Number of a slot: it gives a VM its namespace and its user, and is held until the VM's last trace is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Slot(pub(crate) u32);

/// The directories and bases that places are computed from.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    data: Utf8PathBuf,
    run: Utf8PathBuf,
    first_uid: u32,
}

/// One VM's id and slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) vm: VmId,
    pub(crate) slot: Slot,
}

/// Names inside a jail.
pub(crate) mod jail_names {
    pub(crate) const API_SOCKET: &str = "api.sock";
    pub(crate) const VSOCK_SOCKET: &str = "vsock.sock";
    pub(crate) const KERNEL: &str = "vmlinux";
    pub(crate) const INITRAMFS: &str = "initramfs.img";
    pub(crate) const PLACEHOLDER: &str = "empty.img";
    pub(crate) const DISK: &str = "disk.img";
}

impl Layout {
    pub(crate) fn new(config: &NodeConfig) -> Self {
        Self { data: config.data_dir.clone(), run: config.run_dir.clone(), first_uid: config.vm_uids.first }
    }

    pub(crate) fn data(&self) -> &Utf8Path {
        &self.data
    }
    pub(crate) fn journal(&self) -> Utf8PathBuf {
        self.data.join("node.db")
    }
    pub(crate) fn images(&self) -> Utf8PathBuf {
        self.data.join("images")
    }
    pub(crate) fn identity(&self) -> Utf8PathBuf {
        self.data.join("identity")
    }
    /// What the jailer is given as its base.
    pub(crate) fn jail_base(&self) -> Utf8PathBuf {
        self.data.join("jails")
    }
    /// The jailer puts jails under the name of the executable.
    pub(crate) fn jails(&self) -> Utf8PathBuf {
        self.jail_base().join("firecracker")
    }
    pub(crate) fn namespaces(&self) -> Utf8PathBuf {
        self.run.join("netns")
    }
    pub(crate) fn consoles(&self) -> Utf8PathBuf {
        self.run.join("console")
    }
    /// Output of commands, a directory for each VM, which its tenant's worker owns.
    pub(crate) fn spools(&self) -> Utf8PathBuf {
        self.data.join("spools")
    }
    pub(crate) fn spool(&self, vm: VmId) -> Utf8PathBuf {
        self.spools().join(vm.to_string())
    }
    pub(crate) fn jail(&self, vm: VmId) -> Utf8PathBuf {
        self.jails().join(vm.to_string())
    }
    pub(crate) fn jail_root(&self, vm: VmId) -> Utf8PathBuf {
        self.jail(vm).join("root")
    }
    pub(crate) fn namespace(&self, slot: Slot) -> Utf8PathBuf {
        self.namespaces().join(slot.0.to_string())
    }
    pub(crate) fn console(&self, vm: VmId) -> Utf8PathBuf {
        self.consoles().join(vm.to_string())
    }
    pub(crate) fn uid(&self, slot: Slot) -> u32 {
        self.first_uid + slot.0
    }
}
