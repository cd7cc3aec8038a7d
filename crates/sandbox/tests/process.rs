//! The program itself: what it gives up at its start, and how it ends.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can't go on fails")]

use std::{
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use prost::Message;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use space_node_proto::worker::{Shutdown, ToWorker, to_worker};

const BINARY: &str = env!("CARGO_BIN_EXE_space-sandboxd");

/// The shell makes the socket descriptor 3, as noded does.
fn start() -> (OwnedFd, Child) {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap();
    let child = Command::new("/bin/sh")
        .args(["-c", "exec \"$0\" 3<&0 </dev/null", BINARY])
        .stdin(Stdio::from(theirs))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    (ours, child)
}

fn status(child: &Child, field: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

#[test]
fn it_runs_with_a_filter_and_without_new_privileges_and_leaves_when_told() {
    let (socket, mut child) = start();
    // The shell becomes the program and the program installs its filter; neither makes an event.
    let deadline = Instant::now() + Duration::from_secs(20);
    while status(&child, "Seccomp").as_deref() != Some("2") {
        assert!(Instant::now() < deadline, "no filter: {:?}", status(&child, "Seccomp"));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(status(&child, "NoNewPrivs").as_deref(), Some("1"));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().filter(|word| *word == "0").count(), 2, "{core}");

    let leave = ToWorker { kind: Some(to_worker::Kind::Shutdown(Shutdown {})) }.encode_to_vec();
    rustix::net::send(&socket, &leave, SendFlags::empty()).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn it_leaves_in_order_when_noded_has_gone() {
    let (socket, mut child) = start();
    drop(socket);
    assert!(child.wait().unwrap().success());
}

#[test]
fn started_by_hand_it_says_who_starts_it() {
    let output = Command::new("/bin/sh").args(["-c", "exec \"$0\" 3<&-", BINARY]).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("started by space-noded"), "{said}");
}
