//! Boots one guest, unjailed and without disk or network, and waits until its agent listens.
//!
//! The agent needs no root drive to listen: a guest that has wrecked its disk must still be able to say so.
//! That its vsock port accepts a connection means that kernel, initramfs and a user-space program ran.

use std::{process::Stdio, time::Duration};

use anyhow::{Context, bail};
use camino::{Utf8Path, Utf8PathBuf};
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

use super::Finding;
use crate::{assets::Assets, sys};

/// The port that the agent listens on (`space_guest_proto::AGENT_PORT`).
const AGENT_PORT: u32 = 1024;
/// Between two attempts to connect: neither Firecracker nor the guest announces that it listens.
const PAUSE: Duration = Duration::from_millis(50);
const CHECK: &str = "probe guest";
/// As the node has it; a test compares.
const COMMAND_LINE: &str = "console=ttyS0 quiet reboot=k panic=1 pci=off ipv6.disable=1 8250.nr_uarts=1 \
                            i8042.noaux i8042.nokbd random.trust_cpu=on";

pub(super) async fn boot(assets: &Assets, deadline: Duration) -> Finding {
    let begin = Instant::now();
    match try_boot(assets, deadline).await {
        Ok(()) => {
            let seconds = begin.elapsed().as_secs_f32();
            Finding::ok(CHECK, format!("its agent answered after {seconds:.1} s"))
        }
        Err(error) => Finding::failed(
            CHECK,
            format!("{error:#}"),
            "this /dev/kvm can't run an ordinary guest: use a machine with hardware or nested virtualisation, \
             or `make run`, which brings an emulated host",
        ),
    }
}

async fn try_boot(assets: &Assets, deadline: Duration) -> anyhow::Result<()> {
    let dir = tempfile::Builder::new().prefix("space-probe-").tempdir().context("cannot make a directory")?;
    let dir = Utf8Path::from_path(dir.path()).context("the temporary directory is not UTF-8")?;
    let socket = dir.join("vsock");
    let console = dir.join("console");
    let mut vmm = start(assets, dir, &socket, &console)?;
    let outcome = tokio::select! {
        answered = timeout(deadline, agent_listens(&socket)) => match answered {
            Ok(()) => Ok(()),
            Err(_) => Err(format!("no answer within {} s", deadline.as_secs())),
        },
        ended = vmm.wait() => Err(ended.map_or_else(|e| e.to_string(), |status| format!("Firecracker ended: {status}"))),
    };
    // It may have ended by itself.
    drop(vmm.start_kill());
    let ended = timeout(Duration::from_secs(5), vmm.wait()).await;
    ended.context("Firecracker can't be killed")??;
    match outcome {
        Ok(()) => Ok(()),
        Err(what) => bail!("{what}{}", last_words(&console)),
    }
}

fn start(assets: &Assets, dir: &Utf8Path, socket: &Utf8Path, console: &Utf8Path) -> anyhow::Result<Child> {
    let config = dir.join("config.json");
    std::fs::write(&config, configuration(assets, socket).to_string())?;
    let out = std::fs::File::create(console)?;
    let mut command = std::process::Command::new(assets.firecracker());
    command.args(["--no-api", "--id", "probe", "--config-file", config.as_str()]);
    command.stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out);
    sys::end_with_parent(&mut command, Signal::SIGKILL);
    Command::from(command).kill_on_drop(true).spawn().context("cannot start Firecracker")
}

fn configuration(assets: &Assets, socket: &Utf8Path) -> serde_json::Value {
    json!({
        "boot-source": {
            "kernel_image_path": assets.kernel(),
            "initrd_path": assets.initramfs(),
            "boot_args": COMMAND_LINE,
        },
        "drives": [],
        "machine-config": { "vcpu_count": 1, "mem_size_mib": 128, "smt": false },
        "vsock": { "guest_cid": 3, "uds_path": socket },
        "entropy": {},
        "balloon": { "amount_mib": 0, "deflate_on_oom": true, "stats_polling_interval_s": 0 },
    })
}

/// Ends when a connection to the agent's port is accepted.
async fn agent_listens(socket: &Utf8PathBuf) {
    while connect(socket).await.is_err() {
        sleep(PAUSE).await;
    }
}

/// Firecracker's handshake: `CONNECT <port>`, answered `OK <port>` once the guest has accepted.
async fn connect(socket: &Utf8Path) -> anyhow::Result<()> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(format!("CONNECT {AGENT_PORT}\n").as_bytes()).await?;
    let mut answer = String::new();
    let answered = timeout(Duration::from_secs(2), BufReader::new(stream).read_line(&mut answer)).await;
    answered??;
    if answer.starts_with("OK ") { Ok(()) } else { bail!("refused") }
}

/// The end of the guest's console, for whoever has to find out why. Firecracker logs to the same place.
fn last_words(console: &Utf8Path) -> String {
    let text = std::fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let is_guests = |line: &&str| !line.is_empty() && !line.contains("[probe:");
    let lines: Vec<_> = text.lines().map(str::trim).filter(is_guests).collect();
    match &lines[lines.len().saturating_sub(2)..] {
        [] => "; the guest's kernel printed nothing".to_owned(),
        last => format!("; the guest's last words: {}", last.join(" / ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// The node's golden file: every call that configures a VM.
    const DEVICES: &str = include_str!(
        "../../../node/src/fc/snapshots/space_node__fc__device__tests__the_device_set_is_frozen.snap"
    );

    /// What of a VM's devices needs something on the host that the probe does without.
    fn is_left_out(path: &str) -> bool {
        path.starts_with("/drives/") || path.starts_with("/network-interfaces/") || path == "/actions"
    }

    #[test]
    fn the_probe_has_the_command_line_and_devices_of_every_vm() {
        let assets = Assets::locate(Some("/assets".into())).unwrap();
        let probe = configuration(&assets, Utf8Path::new("/socket"));
        let calls = DEVICES.lines().filter_map(|line| line.strip_prefix("PUT ")?.split_once(' '));
        let mut compared = Vec::new();
        for (path, body) in calls.filter(|(path, _)| !is_left_out(path)) {
            let mut wanted: Value = serde_json::from_str(body).unwrap();
            let mut found = probe[path.trim_start_matches('/')].clone();
            // Where its files lie and how large it is are its own.
            for own in ["kernel_image_path", "initrd_path", "uds_path", "vcpu_count", "mem_size_mib"] {
                for object in [&mut wanted, &mut found].map(Value::as_object_mut).into_iter().flatten() {
                    object.remove(own);
                }
            }
            assert_eq!(found, wanted, "{path}");
            compared.push(path);
        }
        assert_eq!(compared, ["/boot-source", "/vsock", "/entropy", "/balloon", "/machine-config"]);
    }

    #[test]
    fn the_guests_last_words_are_told_apart_from_firecrackers() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let console = Utf8Path::from_path(file.path()).unwrap();
        assert_eq!(last_words(console), "; the guest's kernel printed nothing");
        std::fs::write(console, "2026 [probe:main] Running\r\n[ 0.1] one\r\n\r\n[ 0.2] two\n[ 0.3] three\n")
            .unwrap();
        assert_eq!(last_words(console), "; the guest's last words: [ 0.2] two / [ 0.3] three");
    }
}
