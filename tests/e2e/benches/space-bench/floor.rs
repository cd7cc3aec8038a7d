//! The floor of a create: the official jailer and Firecracker with our kernel, initramfs, disk and device set,
//! driven by hand, and the guest's agent spoken to directly. No daemon of ours takes part.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    os::unix::{
        fs::{PermissionsExt, chown},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use space_guest_proto::{
    AGENT_PORT, GuestFrame, HostFrame, PROTOCOL_MAX, PROTOCOL_MIN,
    message::{AttachCommandRequest, CommandSpec, Hello, PersonaliseRequest, Role},
};

const UID: u32 = 300_000;
const BASE: &str = "/var/lib/space/node/bench";
const DEADLINE: Duration = Duration::from_mins(2);
/// As in the node's device set; a difference would make the comparison worthless.
const BOOT_ARGS: &str = "console=ttyS0 quiet reboot=k panic=1 pci=off ipv6.disable=1 8250.nr_uarts=1 \
     i8042.noaux i8042.nokbd random.trust_cpu=on";

struct RawVm {
    process: Child,
    name: String,
    jail: PathBuf,
}

/// From the jailer's start to the first byte that `/bin/echo` printed in the guest.
pub(crate) fn boot_to_first_output(run: usize) -> Result<Duration> {
    let name = format!("bench-{run}");
    let jail = PathBuf::from(format!("{BASE}/firecracker/{name}/root"));
    prepare(&name, &jail)?;
    let began = Instant::now();
    let vm = RawVm { process: spawn(&name)?, name, jail };
    let api = vm.jail.join("api.sock");
    for (path, body) in calls() {
        put(&api, path, &body)?;
    }
    first_output(&vm.jail.join("vsock.sock"))?;
    Ok(began.elapsed())
}

/// All that the product has waiting too: namespace, tap, jail with kernel and initramfs, and the disk's clone.
fn prepare(name: &str, jail: &Path) -> Result<()> {
    fs::create_dir_all(jail)?;
    let assets = assets();
    run("cp", &["--reflink=auto", &asset("vmlinux"), &format!("{}/vmlinux", jail.display())])?;
    run("cp", &["--reflink=auto", &asset("initramfs.cpio"), &format!("{}/initramfs.img", jail.display())])?;
    let image = newest_image()?;
    run("cp", &["--reflink=always", &image, &format!("{}/disk.img", jail.display())])?;
    // The store's file is read-only, and so is a copy of it.
    fs::set_permissions(jail.join("disk.img"), fs::Permissions::from_mode(0o600))?;
    fs::write(jail.join("empty.img"), [0; 512])?;
    for file in ["disk.img", "empty.img", "vmlinux", "initramfs.img"] {
        chown(jail.join(file), Some(UID), Some(UID)).with_context(|| format!("{file} from {assets}"))?;
    }
    run("ip", &["netns", "add", name])?;
    let uid = UID.to_string();
    run("ip", &["-n", name, "tuntap", "add", "tap0", "mode", "tap", "user", &uid])?;
    run("ip", &["-n", name, "link", "set", "tap0", "up"])
}

fn spawn(name: &str) -> Result<Child> {
    let uid = UID.to_string();
    let console = fs::File::create(format!("/tmp/{name}.console"))?;
    let mut jailer = Command::new(asset("jailer"));
    jailer
        .args(["--id", name, "--exec-file", &asset("firecracker"), "--uid", &uid, "--gid", &uid])
        .args(["--chroot-base-dir", BASE, "--netns", &format!("/run/netns/{name}"), "--cgroup-version", "2"])
        .args(["--parent-cgroup", "space-bench.slice"])
        .args(["--", "--api-sock", "/api.sock", "--level", "Warn"])
        .stdin(Stdio::null())
        .stderr(console.try_clone()?)
        .stdout(console);
    jailer.spawn().context("cannot start the jailer")
}

fn calls() -> Vec<(&'static str, Value)> {
    let drive = |id: &str| json!({ "drive_id": id, "path_on_host": "/empty.img", "is_root_device": false, "is_read_only": true, "cache_type": "Unsafe" });
    vec![
        (
            "/boot-source",
            json!({ "kernel_image_path": "/vmlinux", "initrd_path": "/initramfs.img", "boot_args": BOOT_ARGS }),
        ),
        (
            "/network-interfaces/eth0",
            json!({ "iface_id": "eth0", "host_dev_name": "tap0", "guest_mac": "06:00:ac:10:00:02" }),
        ),
        ("/vsock", json!({ "guest_cid": 3, "uds_path": "/vsock.sock" })),
        ("/entropy", json!({})),
        ("/balloon", json!({ "amount_mib": 0, "deflate_on_oom": true, "stats_polling_interval_s": 0 })),
        ("/drives/vdb", drive("vdb")),
        ("/drives/vdc", drive("vdc")),
        ("/drives/vdd", drive("vdd")),
        ("/machine-config", json!({ "vcpu_count": 1, "mem_size_mib": 256, "smt": false })),
        (
            "/drives/vda",
            json!({ "drive_id": "vda", "path_on_host": "/disk.img", "is_root_device": true, "is_read_only": false, "cache_type": "Writeback" }),
        ),
        ("/actions", json!({ "action_type": "InstanceStart" })),
    ]
}

/// One request to Firecracker's API, which has to come up first.
fn put(api: &Path, path: &str, body: &Value) -> Result<()> {
    let body = body.to_string();
    let mut stream = connect(api)?;
    write!(
        stream,
        "PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = [0; 4096];
    let length = stream.read(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer[..length]);
    ensure!(answer.starts_with("HTTP/1.1 2"), "{path}: {answer}");
    Ok(())
}

fn first_output(socket: &Path) -> Result<()> {
    let mut stream = reach_agent(socket)?;
    send(&mut stream, &HostFrame::Hello(hello()))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let personalise = PersonaliseRequest {
        wall_clock_ns: u64::try_from(now)?,
        entropy: Bytes::from_static(&[7; 64]),
        hostname: "bench".to_owned(),
        env: BTreeMap::new(),
        generation: 1,
    };
    send(&mut stream, &HostFrame::request(1, personalise))?;
    let spec = CommandSpec { argv: vec!["/bin/echo".to_owned(), "x".to_owned()], ..CommandSpec::default() };
    let attach = AttachCommandRequest {
        command_id: "cmd_0192f3a1b2c3747ea1d2e3f405162738".to_owned(),
        after_sequence: 0,
        credit: 1 << 16,
        create: Some(spec),
    };
    send(&mut stream, &HostFrame::request(2, attach))?;
    let mut buffer = BytesMut::new();
    loop {
        while let Some(frame) = GuestFrame::decode(&mut buffer)? {
            match frame {
                GuestFrame::Output { .. } => return Ok(()),
                GuestFrame::Refusal { refusal, .. } => bail!("refused: {refusal:?}"),
                GuestFrame::Hello(_)
                | GuestFrame::Reply { .. }
                | GuestFrame::Event { .. }
                | GuestFrame::End { .. }
                | GuestFrame::Notice(_) => {}
            }
        }
        let mut chunk = [0; 4096];
        let length = stream.read(&mut chunk)?;
        ensure!(length > 0, "the agent closed the connection");
        buffer.extend_from_slice(&chunk[..length]);
    }
}

fn hello() -> Hello {
    Hello {
        protocol_min: PROTOCOL_MIN,
        protocol_max: PROTOCOL_MAX,
        role: Role::Host.into(),
        version: "bench".to_owned(),
        ..Hello::default()
    }
}

fn send(stream: &mut UnixStream, frame: &HostFrame) -> Result<()> {
    let mut buffer = BytesMut::new();
    frame.encode(&mut buffer)?;
    Ok(stream.write_all(&buffer)?)
}

/// Connects until the guest listens; nothing announces that.
fn reach_agent(socket: &Path) -> Result<UnixStream> {
    let began = Instant::now();
    loop {
        let mut stream = connect(socket)?;
        match handshake(&mut stream, AGENT_PORT) {
            Ok(()) => return Ok(stream),
            Err(error) if began.elapsed() > DEADLINE => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

pub(crate) fn handshake(stream: &mut UnixStream, port: u32) -> Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(format!("CONNECT {port}\n").as_bytes())?;
    let mut line = Vec::new();
    let mut byte = [0; 1];
    while line.last() != Some(&b'\n') {
        ensure!(stream.read(&mut byte)? == 1 && line.len() < 32, "no answer from the guest");
        line.push(byte[0]);
    }
    ensure!(line.starts_with(b"OK "), "the guest does not listen on {port}");
    Ok(())
}

fn connect(socket: &Path) -> Result<UnixStream> {
    let began = Instant::now();
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(error) if began.elapsed() > DEADLINE => return Err(error).context("nobody listens"),
            Err(_) => std::thread::sleep(Duration::from_micros(500)),
        }
    }
}

/// The vsock socket in a jail that the node made.
pub(crate) fn vsock_socket(jail: &str) -> Result<PathBuf> {
    let socket = Path::new(jail).join("vsock.sock");
    ensure!(socket.exists(), "{} is not there", socket.display());
    Ok(socket)
}

fn assets() -> String {
    std::env::var("SPACE_ASSETS").unwrap_or_else(|_| "/opt/space/assets".to_owned())
}

fn asset(name: &str) -> String {
    format!("{}/{name}", assets())
}

/// The image that sandboxes are cloned from, as the node has it.
fn newest_image() -> Result<String> {
    let mut images: Vec<_> =
        fs::read_dir("/var/lib/space/node/images")?.collect::<std::io::Result<Vec<_>>>()?;
    images.retain(|entry| entry.path().extension().is_some_and(|extension| extension == "img"));
    let largest = images.iter().max_by_key(|entry| entry.metadata().map_or(0, |data| data.len()));
    Ok(largest.context("the node has no image yet")?.path().display().to_string())
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output()?;
    ensure!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

impl Drop for RawVm {
    fn drop(&mut self) {
        let stopped = self.process.kill().and_then(|()| self.process.wait().map(drop));
        let removed = fs::remove_dir_all(self.jail.parent().unwrap_or(&self.jail));
        let unplugged = run("ip", &["netns", "del", &self.name]);
        let problems: [Option<anyhow::Error>; 3] =
            [stopped.err().map(Into::into), removed.err().map(Into::into), unplugged.err()];
        for problem in problems.into_iter().flatten() {
            eprintln!("{}: {problem:#}", self.name);
        }
    }
}
