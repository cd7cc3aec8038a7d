//! Making one slot: journal first, then each resource, then Firecracker.
//!
//! Whatever fails or dies on the way, [`super::Releaser`] takes away all of it by the journal's row alone.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    process::{Command, Stdio},
    sync::Arc,
};

use camino::Utf8Path;
use rustix::fs::{CWD, Mode, OFlags, mkfifoat, open};
use tokio::time::Instant;

use super::{ReleaseError, Releaser};
use crate::{
    cgroup::{Cgroup, CgroupLimits, CgroupParent},
    config::NodeConfig,
    disk::{JailDir, JailError},
    fail_point,
    fc::{FirecrackerClient, FirecrackerError, TAP_NAME, pool_calls},
    image::BootFiles,
    journal::{Journal, JournalError, VmStage},
    place::{Layout, Place, jail_names},
    sys::{ChildSetup, Pidfd, Spawner, bring_up, make_namespace, make_tap},
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("cannot make the slot's {what}")]
    Make {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Jail(#[from] JailError),
    #[error("cannot start the jailer")]
    Spawn(#[source] io::Error),
    #[error("Firecracker ended before it answered; it said: {0}")]
    Died(String),
    #[error(transparent)]
    Firecracker(#[from] FirecrackerError),
    #[error("a slot that could not be made could not be taken away either")]
    Release(#[from] ReleaseError),
    #[error("the pool was stopped")]
    Stopped,
}

/// A VM whose guest has not started.
#[derive(Debug)]
pub(crate) struct PreparedVm {
    pub(crate) place: Place,
    pub(crate) process: Pidfd,
    pub(crate) jail: JailDir,
    pub(crate) cgroup: Cgroup,
    pub(crate) api: FirecrackerClient,
}

/// Knows how to make slots.
#[derive(Debug)]
pub(crate) struct SlotMaker {
    pub(crate) config: Arc<NodeConfig>,
    pub(crate) layout: Layout,
    pub(crate) journal: Journal,
    pub(crate) spawner: Spawner,
    pub(crate) boot_files: BootFiles,
    pub(crate) cgroups: CgroupParent,
    pub(crate) releaser: Releaser,
}

/// Of a VM that waits: enough for Firecracker, not for a guest.
const WAITING_TASKS: u32 = 64;

impl SlotMaker {
    /// Makes a slot whose Firecracker answers. On failure nothing of it is left.
    pub(crate) async fn prepare(&self) -> Result<PreparedVm, PrepareError> {
        let place = self.journal.begin_vm(self.config.vm_uids.count).await?;
        fail_point::SLOT_JOURNALED.pass();
        match self.furnish(place).await {
            Ok(prepared) => Ok(prepared),
            Err(error) => {
                self.releaser.remove(place).await?;
                Err(error)
            }
        }
    }

    async fn furnish(&self, place: Place) -> Result<PreparedVm, PrepareError> {
        self.make_namespace(place).await?;
        fail_point::SLOT_NAMESPACE_MADE.pass();
        let cgroup = self.cgroups.leaf(&place.vm.to_string());
        let jail = self.make_jail(place, cgroup.clone()).await?;
        fail_point::SLOT_JAIL_MADE.pass();
        let process = self.spawn_jailer(place, &cgroup).await?;
        fail_point::SLOT_SPAWNED.pass();
        self.journal.set_vm_process(place.vm, process.identity()).await?;
        let api = self.connect_api(place, &jail, &process).await?;
        self.journal.set_vm_stage(place.vm, VmStage::Pooled).await?;
        fail_point::SLOT_READY.pass();
        Ok(PreparedVm { place, process, jail, cgroup, api })
    }

    async fn make_namespace(&self, place: Place) -> Result<(), PrepareError> {
        let path = self.layout.namespace(place.slot);
        let uid = self.layout.uid(place.slot);
        blocking("namespace", move || {
            make_namespace(&path, || {
                // `/proc/sys/net` shows the namespace of the thread that looks.
                for scope in ["all", "default"] {
                    write_if_there(&format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1")?;
                }
                make_tap(TAP_NAME, uid)?;
                bring_up("lo")?;
                bring_up(TAP_NAME)
            })
        })
        .await
    }

    async fn make_jail(&self, place: Place, cgroup: Cgroup) -> Result<JailDir, PrepareError> {
        let root = self.layout.jail_root(place.vm);
        let console = self.layout.console(place.vm);
        let limits =
            CgroupLimits { memory: self.config.capacity.overhead(), cpu_percent: 100, tasks: WAITING_TASKS };
        let made_root = root.clone();
        let spool = self.layout.spool(place.vm);
        blocking("jail", move || {
            cgroup.create()?;
            cgroup.limit(limits)?;
            mkfifoat(CWD, console.as_str(), Mode::RUSR | Mode::WUSR)?;
            // Root's until a worker is handed it.
            fs::DirBuilder::new().mode(0o700).create(&spool)?;
            fs::create_dir_all(&made_root)?;
            fs::set_permissions(&made_root, Permissions::from_mode(0o700))
        })
        .await?;
        let jail = JailDir::open(&root, self.layout.uid(place.slot))?;
        jail.link(&self.boot_files.kernel, jail_names::KERNEL)?;
        jail.link(&self.boot_files.initramfs, jail_names::INITRAMFS)?;
        jail.link(&self.boot_files.placeholder, jail_names::PLACEHOLDER)?;
        Ok(jail)
    }

    async fn spawn_jailer(&self, place: Place, cgroup: &Cgroup) -> Result<Pidfd, PrepareError> {
        let console = open_console(&self.layout.console(place.vm)).map_err(PrepareError::Spawn)?;
        let second = console.try_clone().map_err(PrepareError::Spawn)?;
        let mut command = self.jailer_command(place, cgroup);
        command.stdin(Stdio::null()).stdout(console).stderr(second).env_clear().current_dir("/");
        let setup = ChildSetup {
            cgroup: cgroup.entrance().map_err(PrepareError::Spawn)?,
            user: None,
            channel: None,
            die_with_parent: false,
        };
        let pid = self.spawner.spawn(command, setup).await.map_err(PrepareError::Spawn)?;
        Pidfd::of_child(pid).map_err(PrepareError::Spawn)
    }

    /// Neither `--daemonize` nor `--new-pid-ns`: the jailer becomes Firecracker under the pid that was forked.
    /// The cgroup is the one that it is in already; naming it keeps the jailer from looking for another.
    fn jailer_command(&self, place: Place, cgroup: &Cgroup) -> Command {
        let uid = self.layout.uid(place.slot).to_string();
        let largest = self.config.capacity.max_disk().as_bytes();
        let mut command = Command::new(&self.config.firecracker.jailer);
        command
            .args(["--id", &place.vm.to_string()])
            .args(["--exec-file", self.boot_files.firecracker.as_str()])
            .args(["--uid", &uid, "--gid", &uid])
            .args(["--chroot-base-dir", self.layout.jail_base().as_str()])
            .args(["--netns", self.layout.namespace(place.slot).as_str()])
            .args(["--cgroup-version", "2", "--parent-cgroup", cgroup.name()])
            .args(["--resource-limit", &format!("fsize={largest}")])
            .args(["--resource-limit", "no-file=1024"])
            .args(["--", "--api-sock", &format!("/{}", jail_names::API_SOCKET), "--level", "Warn"]);
        command
    }

    async fn connect_api(
        &self,
        place: Place,
        jail: &JailDir,
        process: &Pidfd,
    ) -> Result<FirecrackerClient, PrepareError> {
        let deadline = self.config.deadlines.firecracker();
        let connected = tokio::select! {
            connected = jail.connect(jail_names::API_SOCKET, Instant::now() + deadline) => connected,
            status = process.ended() => {
                let said = first_words(&self.layout.console(place.vm));
                return Err(PrepareError::Died(format!("{said} ({status:?})")));
            }
        };
        let mut api = FirecrackerClient::new(connected?, deadline).await?;
        api.put_all(pool_calls()).await?;
        Ok(api)
    }
}

/// For writing by Firecracker: opened for both directions, so that it neither waits for a reader nor gets a
/// signal when one leaves, and non-blocking, so that a console that nobody reads loses text and stops nothing.
fn open_console(path: &Utf8Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(open(path.as_str(), flags, Mode::empty())?.into())
}

/// What a VMM whose guest never started said, for the log.
fn first_words(path: &Utf8Path) -> String {
    let mut buffer = [0; 2048];
    let length = open_console(path).and_then(|file| Ok(rustix::io::read(&file, &mut buffer)?)).unwrap_or(0);
    let text = String::from_utf8_lossy(&buffer[..length]);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn write_if_there(path: &str, value: &str) -> io::Result<()> {
    match fs::write(path, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, PrepareError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(|_stopped| PrepareError::Stopped)?;
    done.map_err(|source| PrepareError::Make { what, source })
}
