//! One emulated host: its QEMU process and the files that describe it.
//!
//! A running host is known by `target/space/hosts/<name>/`: `host.json` with the process, the ports and
//! the start time, `console.log`, `heartbeat.log`, the data disk and the transfer disk. QEMU outlives the
//! xtask that started it.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use rustix::process::{Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::image::HostImage;
use super::probe::{self, Accel};
use super::watch::{Health, Watch};
use crate::process::Process;
use crate::{cache, exec, paths};

/// How large the sparse disks may become.
const DATA_DISK: u64 = 48 << 30;
const TRANSFER_DISK: u64 = 16 << 30;

/// From power-on to an answering sshd. It takes 5 s on an idle machine.
const BOOT_DEADLINE: Duration = Duration::from_mins(3);

/// What `host start` may be asked for.
#[derive(Debug, Clone, Serialize, Deserialize, clap::Args)]
pub(crate) struct HostSpec {
    /// Memory of the host in MiB.
    #[arg(short, long, default_value_t = 6144)]
    pub(crate) memory: u32,
    /// Emulated processors. More than one meets races in QEMU's emulation of SVM.
    #[arg(long, default_value_t = 1)]
    pub(crate) smp: u32,
    /// Lead a loopback port of this machine to one inside: `PORT` or `OUTER:INNER`.
    #[arg(long = "forward", value_name = "PORT")]
    pub(crate) forwards: Vec<Forward>,
    /// Keep the data disk (`/var/lib/space`) of the last host of this name.
    #[arg(long)]
    pub(crate) keep_data: bool,
    /// An ext4 image to mount, read-only, at `/opt/space/assets`.
    #[arg(long)]
    pub(crate) payload: Option<Utf8PathBuf>,
}

/// One forwarded port.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Forward {
    pub(crate) outer: u16,
    pub(crate) inner: u16,
}

impl std::str::FromStr for Forward {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (outer, inner) = text.split_once(':').unwrap_or((text, text));
        Ok(Self { outer: outer.parse()?, inner: inner.parse()? })
    }
}

/// A host that was started, as `host.json` tells.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) name: String,
    /// QEMU.
    #[serde(flatten)]
    pub(crate) process: Process,
    pub(crate) ssh_port: u16,
    pub(crate) accel: Accel,
    pub(crate) spec: HostSpec,
    pub(crate) key: Utf8PathBuf,
}

/// The directory of the host called `name`.
pub(crate) fn dir(name: &str) -> Utf8PathBuf {
    paths::space().join("hosts").join(name)
}

impl Machine {
    /// The running host called `name`.
    pub(crate) fn find(name: &str) -> Result<Option<Self>> {
        let path = dir(name).join("host.json");
        let Ok(text) = fs::read(&path) else {
            return Ok(None);
        };
        let machine: Self = serde_json::from_slice(&text).with_context(|| format!("cannot read {path}"))?;
        Ok(machine.lives().then_some(machine))
    }

    /// Boots a host and waits until it can be spoken to.
    pub(crate) fn start(name: &str, spec: &HostSpec, image: &HostImage) -> Result<Self> {
        if Self::find(name)?.is_some() {
            bail!("host {name} is already running; `cargo xtask host stop --name {name}` ends it");
        }
        let dir = dir(name);
        prepare(&dir, spec)?;
        let ssh_port = free_port()?;
        let accel = probe::accel(image)?;
        let mut qemu = qemu(name, &dir, spec, image, ssh_port, accel)?;
        let child =
            qemu.spawn().context("cannot start qemu-system-x86_64; `cargo xtask setup` installs it")?;
        let machine = Self {
            name: name.to_owned(),
            process: Process::of(child.id()).context("QEMU")?,
            ssh_port,
            accel,
            spec: spec.clone(),
            key: image.key.clone(),
        };
        let known = format!("[127.0.0.1]:{ssh_port} {}\n", image.host_public);
        cache::write_atomic(&dir.join("known_hosts"), known.as_bytes())?;
        cache::write_atomic(&dir.join("host.json"), &serde_json::to_vec_pretty(&machine)?)?;
        machine.wait_until_ready()?;
        machine.open_channel()?;
        Ok(machine)
    }

    pub(crate) fn dir(&self) -> Utf8PathBuf {
        dir(&self.name)
    }

    pub(crate) fn console(&self) -> Utf8PathBuf {
        self.dir().join("console.log")
    }

    /// Whether the QEMU process is still there, and is the one that was started.
    pub(crate) fn lives(&self) -> bool {
        self.process.lives()
    }

    /// Waits up to `limit` for the QEMU process to end.
    pub(crate) fn wait_for_end(&self, limit: Duration) -> Result<bool> {
        self.process.wait_for_end(limit)
    }

    /// Pulls the plug.
    pub(crate) fn kill(&self) -> Result<()> {
        if let Some(pid) = self.process.living() {
            kill_process(pid, Signal::KILL).context("cannot kill QEMU")?;
        }
        self.wait_for_end(Duration::from_secs(10))?;
        Ok(())
    }

    fn wait_until_ready(&self) -> Result<()> {
        let bar = exec::spinner("emulated host: booting");
        let watch = Watch::new(self);
        let started = std::time::Instant::now();
        loop {
            let console = fs::read_to_string(self.console()).unwrap_or_default();
            if console.contains("space-host: ready") {
                break;
            }
            if let Health::Lost(reason) = watch.look() {
                let said = exec::tail(&self.dir().join("qemu.log"), 10) + &exec::tail(&self.console(), 30);
                bail!("the host did not boot: {reason}\n{said}");
            }
            if started.elapsed() > BOOT_DEADLINE {
                self.kill()?;
                bail!("the host did not boot in time\n{}", exec::tail(&self.console(), 30));
            }
            // The console is a file that QEMU appends to; this wait ends early when QEMU does.
            self.wait_for_end(Duration::from_millis(50))?;
        }
        bar.finish_and_clear();
        eprintln!(
            "emulated host {}: up in {} ({}, {} MiB, {} processor{})",
            self.name,
            exec::seconds(started.elapsed()),
            self.accel.describe(),
            self.spec.memory,
            self.spec.smp,
            if self.spec.smp == 1 { "" } else { "s" },
        );
        Ok(())
    }
}

fn prepare(dir: &Utf8Path, spec: &HostSpec) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {dir}"))?;
    for file in ["console.log", "heartbeat.log", "host.json", "transfer.img"] {
        remove_file(&dir.join(file))?;
    }
    if !spec.keep_data {
        remove_file(&dir.join("data.img"))?;
    }
    sparse(&dir.join("data.img"), DATA_DISK)?;
    sparse(&dir.join("transfer.img"), TRANSFER_DISK)
}

fn remove_file(path: &Utf8Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {path}"))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn sparse(path: &Utf8Path, size: u64) -> Result<()> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("cannot make {path}"))?;
    file.set_len(size).with_context(|| format!("cannot size {path}"))
}

/// A loopback port that nobody listens on. Another process may take it before QEMU does; then QEMU says so.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
    Ok(listener.local_addr()?.port())
}

fn qemu(
    name: &str,
    dir: &Utf8Path,
    spec: &HostSpec,
    image: &HostImage,
    ssh_port: u16,
    accel: Accel,
) -> Result<Command> {
    let log = File::create(dir.join("qemu.log"))?;
    let ports: Vec<String> = spec.forwards.iter().map(|f| f.inner.to_string()).collect();
    let forwards = spec.forwards.iter().map(|f| (f.outer, f.inner));
    let netdev = std::iter::once((ssh_port, 22))
        .chain(forwards)
        .map(|(outer, inner)| format!(",hostfwd=tcp:127.0.0.1:{outer}-:{inner}"))
        .fold("user,id=net,restrict=on".to_owned(), |all, one| all + &one);
    let mut command = probe::base_command(accel, spec.memory, spec.smp);
    command
        .args(["-name", &format!("space-host-{name}")])
        .args(["-serial", &format!("file:{dir}/console.log")])
        .args(["-serial", &format!("file:{dir}/heartbeat.log")])
        .arg("-kernel")
        .arg(&image.kernel)
        .arg("-append")
        .arg(format!("{} space.forward={}", probe::COMMAND_LINE, ports.join(",")))
        .args(root_disk(&image.disk))
        .args(disk("space-data", &dir.join("data.img"), "discard=unmap,cache=unsafe"))
        .args(disk(
            "space-transfer",
            &dir.join("transfer.img"),
            "discard=unmap,cache=writeback,file.locking=off",
        ))
        .args(spec.payload.iter().flat_map(|path| disk("space-payload", path, "readonly=on")))
        .args(["-netdev", &netdev, "-device", "virtio-net-pci,netdev=net,romfile="])
        .args(["-device", "virtio-rng-pci"])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0);
    Ok(command)
}

/// The root disk is NVMe because that driver alone is built into the kernel: no initramfs is needed.
/// What is written to it is forgotten at power-off.
pub(super) fn root_disk(path: &Utf8Path) -> [String; 4] {
    [
        "-drive".to_owned(),
        format!("if=none,id=root,file={path},format=raw,snapshot=on"),
        "-device".to_owned(),
        "nvme,drive=root,serial=space-root".to_owned(),
    ]
}

fn disk(serial: &str, path: &Utf8Path, options: &str) -> [String; 4] {
    [
        "-drive".to_owned(),
        format!("if=none,id={serial},file={path},format=raw,{options}"),
        "-device".to_owned(),
        format!("virtio-blk-pci,drive={serial},serial={serial}"),
    ]
}
