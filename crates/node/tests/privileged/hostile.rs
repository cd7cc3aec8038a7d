//! A hostile program in Firecracker's place: it owns its jail and turns what the daemon will touch into
//! symlinks, FIFOs and hard links to a file of the host's. The daemon must refuse, must not hang, and must
//! leave that file as it was.
//!
//! The program is this test binary under another name of a test, started by a script in the jailer's place,
//! so that it can also do what no jailed program could.

use std::{
    env, fs,
    io::{Read, Write},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use camino::Utf8Path;
use space_node_proto::common::Phase;
use space_types::SandboxId;
use tokio::time::timeout;

use crate::kit::{Kit, required};

/// What is planted where.
const MODES: [(&str, &str); 8] = [
    ("disk.img", "symlink"),
    ("disk.img", "hardlink"),
    ("disk.img", "fifo"),
    ("disk.img", "directory"),
    ("vsock.sock", "symlink"),
    ("vsock.sock", "hardlink"),
    ("vsock.sock", "fifo"),
    ("api.sock", "fifo"),
];

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_hostile_vmm_plants_is_refused_and_removed() {
    for (name, kind) in MODES {
        eprintln!("{name} as a {kind}");
        meet(name, kind).await;
    }
}

async fn meet(name: &str, kind: &str) {
    let mut kit = Kit::new().await;
    let honeytoken = kit.path("honeytoken");
    fs::write(&honeytoken, "a secret of the host").unwrap();
    fs::set_permissions(&honeytoken, fs::Permissions::from_mode(0o600)).unwrap();
    let before = looks(&honeytoken);
    kit.settings.jailer = script(&kit, name, kind, &honeytoken);
    kit.settings.boot_ms = 3_000;
    kit.restart().await;
    let sandbox = SandboxId::new();
    let ensured = timeout(Duration::from_mins(1), kit.ensure(sandbox)).await.expect("the daemon hangs");
    let seen = ensured.unwrap();
    assert_eq!(seen.phase(), Phase::Failed, "{name} {kind}: {seen:?}");
    let removed = timeout(Duration::from_mins(1), kit.remove(sandbox, 1)).await.expect("the daemon hangs");
    removed.unwrap();
    assert_eq!(looks(&honeytoken), before, "{name} {kind}");
    kit.stop();
    kit.nothing_is_left();
}

/// Content, owner, mode and size: everything but how many names it has.
fn looks(path: &Utf8Path) -> (String, u32, u32, u64) {
    let metadata = fs::metadata(path).unwrap();
    (fs::read_to_string(path).unwrap(), metadata.uid(), metadata.mode(), metadata.len())
}

fn script(kit: &Kit, name: &str, kind: &str, honeytoken: &Utf8Path) -> camino::Utf8PathBuf {
    let path = kit.path("jailer");
    let own = env::current_exe().unwrap();
    let text = format!(
        "#!/bin/sh\nexport HOSTILE_NAME={name} HOSTILE_KIND={kind} HOSTILE_TARGET={honeytoken} \
         HOSTILE_ARGUMENTS=\"$*\"\nexec {} --exact hostile::hostile_vmm --ignored --nocapture\n",
        own.display()
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    drop(required("SPACE_BIN"));
    path
}

#[test]
#[ignore = "the hostile program itself, started by the test above"]
fn hostile_vmm() {
    let arguments = env::var("HOSTILE_ARGUMENTS").expect("started by the test above");
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let value = |flag: &str| {
        let at = arguments.iter().position(|argument| *argument == flag).unwrap();
        arguments[at + 1].to_owned()
    };
    let uid: u32 = value("--uid").parse().unwrap();
    let root = PathBuf::from(value("--chroot-base-dir")).join("firecracker").join(value("--id")).join("root");
    chown(&root, Some(uid), Some(uid)).unwrap();
    clutter(&root);
    let (name, kind) = (env::var("HOSTILE_NAME").unwrap(), env::var("HOSTILE_KIND").unwrap());
    let target = PathBuf::from(env::var("HOSTILE_TARGET").unwrap());
    plant(&root.join(&name), &kind, &target, uid);
    if name == "api.sock" {
        std::thread::sleep(Duration::from_mins(10));
        return;
    }
    let socket = root.join("api.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    chown(&socket, Some(uid), Some(uid)).unwrap();
    for connection in listener.incoming() {
        std::thread::spawn(move || agree_to_everything(connection.unwrap()));
    }
}

/// Deep and strange things for the removal to meet.
fn clutter(root: &Path) {
    let mut deep = root.to_owned();
    for _ in 0..200 {
        deep.push("deep");
    }
    fs::create_dir_all(&deep).unwrap();
    symlink("/", root.join("deep/root")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    fs::create_dir(root.join("closed")).unwrap();
    fs::set_permissions(root.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
}

fn plant(path: &Path, kind: &str, target: &Path, uid: u32) {
    match kind {
        "symlink" => symlink(target, path).unwrap(),
        "hardlink" => fs::hard_link(target, path).unwrap(),
        "directory" => fs::create_dir(path).unwrap(),
        "fifo" => {
            rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
                .unwrap();
            chown(path, Some(uid), Some(uid)).unwrap();
        }
        other => panic!("{other}"),
    }
}

/// Every request is answered with success.
fn agree_to_everything(mut connection: std::os::unix::net::UnixStream) {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = connection.read(&mut buffer) {
        text.extend_from_slice(&buffer[..length]);
        while let Some(end) = whole_request(&text) {
            text.drain(..end);
            connection.write_all(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    }
}

/// The length of the first request in `text`, if all of it is there.
fn whole_request(text: &[u8]) -> Option<usize> {
    let head = text.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let lines = String::from_utf8_lossy(&text[..head]).to_ascii_lowercase();
    let length =
        lines.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let end = head + length.unwrap_or(0);
    (text.len() >= end).then_some(end)
}
