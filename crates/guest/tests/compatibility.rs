//! Agents of old snapshots: the host's side of today against the binaries of `fixtures/`, one for each version
//! of the protocol. A fixture is added when a version is made, and never rebuilt: its being old is the point.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking"
)]

mod kit;

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use kit::{Agent, Client, sh, with_stdin};
use space_guest_proto::{
    HostFrame, Reply, feature,
    message::{
        HealthRequest, ListCommandsRequest, NoticeKind, RefusalCode, ResizeTerminalRequest, ShutdownRequest,
    },
};

/// Copies the fixture, so that it is executable whatever the checkout made of it.
fn start(name: &str, directory: &Path) -> Agent {
    let program = directory.join(name);
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    fs::copy(fixture, &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    Agent::start_program(&program)
}

fn exercise(client: &mut Client) {
    let id = client.run("one", with_stdin(sh("read line; echo got $line; exit 3")));
    assert_eq!(client.write("one", 0, b"it\n", true), Ok(3));
    let seen = client.watch(id);
    assert_eq!((seen.text().as_str(), seen.exit.unwrap().code), ("got it\n", 3));
    assert_eq!(client.attach("one", 0, 0, Some(sh("other"))), Err(RefusalCode::AlreadyExists));
    let id = client.run("two", sh("echo up; sleep 600"));
    client.watch_until(id, |seen| seen.text() == "up\n");
    client.signal("two", 9).unwrap();
    assert_eq!(client.watch(id).exit.unwrap().signal, 9);
    let Reply::Health(health) = client.call(HealthRequest {}).unwrap() else { panic!() };
    assert_eq!((health.generation, health.commands_total), (1, 2));
    let Reply::ListCommands(list) = client.call(ListCommandsRequest::default()).unwrap() else { panic!() };
    assert_eq!(list.commands().unwrap().len(), 2);
    assert!(client.call(ShutdownRequest {}).is_ok());
    assert_eq!(client.notice(), NoticeKind::PowerOff);
    client.send(HostFrame::NoticeTaken);
}

#[test]
fn the_first_agent_is_understood() {
    let directory = tempfile::tempdir().unwrap();
    let mut agent = start("space-guestd-protocol-1-x86_64", directory.path());
    let mut client = agent.personalised();
    assert_eq!(client.features & feature::TERMINAL, 0, "a host sees that it has no terminals");
    assert_eq!(client.call(ResizeTerminalRequest::default()), Err(RefusalCode::Unsupported));
    exercise(&mut client);
    assert!(agent.child.wait().unwrap().success());
}
