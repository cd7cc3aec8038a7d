//! Connections of jobs: limits, users, and hosts that behave badly.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking"
)]

mod kit;

use std::{fs, io::Write, os::unix::fs::PermissionsExt, path::Path};

use bytes::{Bytes, BytesMut};
use kit::{Agent, jobs};
use space_guest_proto::{
    Reply,
    job::{FailureKind, GuestJobFrame, HostJobFrame, Job, OpenJob, StatFile},
    limits,
    message::HealthRequest,
};

/// The children of the agent, zombies among them.
fn children(agent: &Agent) -> usize {
    let pid = agent.child.id();
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace().count()
}

/// Waits for the agent to have no children any more: nothing of the kernel's tells when.
fn wait_for_no_children(agent: &Agent) {
    let end = std::time::Instant::now() + kit::PATIENCE;
    while children(agent) > 0 {
        assert!(std::time::Instant::now() < end, "{} jobs are left", children(agent));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn open(path: &'static str) -> OpenJob {
    let path = Bytes::from_static(path.as_bytes());
    OpenJob { protocol: 1, user: String::new(), job: Some(Job::Stat(StatFile { path, follow: false })) }
}

fn failure(agent: &Agent, open: OpenJob) -> Option<FailureKind> {
    let mut client = agent.job_connection();
    client.send(&HostJobFrame::Open(Box::new(open)));
    client.result().err()
}

#[test]
fn nothing_is_done_before_the_guest_is_personalised() {
    let agent = Agent::start();
    let _client = agent.client();
    assert_eq!(agent.ask(jobs::stat("/")), Err(FailureKind::NotPersonalised));
    let _client = agent.personalised();
    assert!(agent.ask(jobs::stat("/")).is_ok());
}

#[test]
fn jobs_that_can_not_be_understood_are_refused_with_the_reason() {
    let agent = Agent::start();
    let _client = agent.personalised();
    assert_eq!(failure(&agent, open("/")), None);
    assert_eq!(failure(&agent, OpenJob { protocol: 0, ..open("/") }), Some(FailureKind::Unsupported));
    assert_eq!(failure(&agent, OpenJob { protocol: 99, ..open("/") }), Some(FailureKind::Unsupported));
    assert_eq!(failure(&agent, OpenJob { job: None, ..open("/") }), Some(FailureKind::Unsupported));
    assert_eq!(failure(&agent, open("")), Some(FailureKind::Invalid));
    assert_eq!(failure(&agent, open("a\0b")), Some(FailureKind::Invalid));
    let user = "nobody-here".to_owned();
    assert_eq!(failure(&agent, OpenJob { user, ..open("/") }), Some(FailureKind::NoUser));
}

#[test]
fn the_kernel_decides_what_the_user_may_do() {
    let agent = Agent::start();
    let _client = agent.personalised();
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let secret = directory.path().join("secret");
    fs::write(&secret, "s").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let locked = directory.path().join("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o700)).unwrap();
    let denied = |job: Job| agent.job_as("nobody", job).result().err();
    let permission = Some(FailureKind::Permission);
    assert_eq!(denied(jobs::stat(&secret)), None);
    assert_eq!(denied(Job::Read(jobs::read(&secret))), permission);
    assert_eq!(denied(Job::Write(jobs::write(&secret))), permission);
    assert_eq!(denied(Job::Write(jobs::write(directory.path().join("new")))), permission);
    assert_eq!(denied(jobs::list(&locked, 1, b"", 10)), permission);
    assert_eq!(denied(jobs::stat(locked.join("x"))), permission);
    assert_eq!(denied(jobs::make_directory(directory.path().join("d"), false)), permission);
    assert_eq!(denied(jobs::move_file(&secret, directory.path().join("moved"), false)), permission);
    assert_eq!(denied(jobs::remove(&secret, false)), permission);
    assert_eq!(denied(jobs::remove(directory.path(), true)), permission);
    assert_eq!(denied(jobs::watch(&locked)), permission);
    assert_eq!(denied(jobs::read_archive(directory.path())), permission);
    assert_eq!(denied(jobs::write_archive(directory.path().join("a"))), permission);
    assert_eq!(fs::read(&secret).unwrap(), b"s");
}

#[test]
fn files_belong_to_the_user_and_relative_paths_begin_at_home() {
    let agent = Agent::start();
    let _client = agent.personalised();
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let file = directory.path().join("f");
    let mut client = agent.job_as("nobody", Job::Write(jobs::write(&file)));
    client.data(b"mine");
    client.finish();
    let info = client.result().unwrap().info.unwrap();
    assert_eq!((info.owner.as_str(), info.mode, info.size), ("nobody", 0o644, 4));
    // The home of nobody does not exist: / is taken.
    let info = agent.job_as("nobody", jobs::stat("etc")).result().unwrap().info.unwrap();
    assert_eq!(&info.path[..], b"/etc");
}

#[test]
fn jobs_are_limited_and_the_one_too_many_is_told() {
    let agent = Agent::start();
    let mut control = agent.personalised();
    let directory = tempfile::tempdir().unwrap();
    let write = |number| agent.job(Job::Write(jobs::write(directory.path().join(format!("{number}")))));
    let mut writes: Vec<_> = (0..limits::JOBS).map(write).collect();
    for client in &mut writes {
        client.opened();
    }
    assert_eq!(agent.job_connection().result(), Err(FailureKind::Exhausted));
    assert!(control.call(HealthRequest {}).is_ok());
    drop(writes);
    wait_for_no_children(&agent);
    assert!(agent.ask(jobs::stat("/")).is_ok());
}

#[test]
fn what_is_no_job_harms_nobody() {
    let agent = Agent::start();
    let mut control = agent.personalised();
    let mut bytes = BytesMut::new();
    HostJobFrame::Open(Box::new(open("/"))).encode(&mut bytes).unwrap();
    let mut data_first = BytesMut::new();
    HostJobFrame::Data(Bytes::from_static(b"x")).encode(&mut data_first).unwrap();
    for noise in [&[0xff; 100][..], &data_first] {
        let mut client = agent.job_connection();
        client.stream.write_all(noise).unwrap();
        assert_eq!(client.result(), Err(FailureKind::Invalid));
    }
    // Half a frame, and nothing at all: ended by the host.
    let mut half = agent.job_connection();
    half.stream.write_all(&bytes[..bytes.len() / 2]).unwrap();
    let nothing = agent.job_connection();
    drop((half, nothing));
    wait_for_no_children(&agent);
    assert!(matches!(control.call(HealthRequest {}), Ok(Reply::Health(_))));
}

#[test]
fn a_frame_cut_short_waits_for_its_rest() {
    let agent = Agent::start();
    let _client = agent.personalised();
    let mut bytes = BytesMut::new();
    HostJobFrame::Open(Box::new(open("/"))).encode(&mut bytes).unwrap();
    let mut client = agent.job_connection();
    for byte in bytes {
        client.stream.write_all(&[byte]).unwrap();
    }
    assert!(client.result().is_ok());
}

#[test]
fn a_host_that_leaves_in_the_middle_of_a_transfer_ends_the_job() {
    let agent = Agent::start();
    let _client = agent.personalised();
    let directory = tempfile::tempdir().unwrap();
    let large = directory.path().join("large");
    fs::File::create(&large).unwrap().set_len(10 << 30).unwrap();
    let mut reading = agent.job(Job::Read(jobs::read(&large)));
    reading.opened();
    assert!(matches!(reading.receive(), GuestJobFrame::Data(_)));
    let mut writing = agent.job(Job::Write(jobs::write(directory.path().join("new"))));
    writing.opened();
    writing.data(&vec![1; 100_000]);
    drop((reading, writing));
    wait_for_no_children(&agent);
    let names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["large"]);
}

#[test]
fn a_job_that_hangs_is_killed_when_its_host_has_left() {
    let agent = Agent::start();
    let _client = agent.personalised();
    let directory = tempfile::tempdir().unwrap();
    let mut hanging = agent.job(jobs::watch(directory.path()));
    hanging.opened();
    // A stopped process is as deaf to its connection as one that waits for a filesystem.
    let parent = agent.child.id();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    let stopped = std::process::Command::new("kill").args(["-STOP", children.trim()]).status().unwrap();
    assert!(stopped.success());
    drop(hanging);
    wait_for_no_children(&agent);
    assert!(agent.ask(jobs::stat("/")).is_ok());
}

#[test]
fn a_job_that_waits_ends_with_the_agent() {
    let mut agent = Agent::start();
    let mut control = agent.personalised();
    let directory = tempfile::tempdir().unwrap();
    let mut watch = agent.job(jobs::watch(directory.path()));
    watch.opened();
    assert!(control.call(space_guest_proto::message::ShutdownRequest {}).is_ok());
    control.send(space_guest_proto::HostFrame::NoticeTaken);
    assert!(agent.child.wait().unwrap().success());
    assert!(watch.next().is_none());
}

#[test]
fn the_agent_holds_no_descriptors_of_finished_jobs() {
    let agent = Agent::start();
    let mut control = agent.personalised();
    let descriptors = || {
        let path = format!("/proc/{}/fd", agent.child.id());
        fs::read_dir(Path::new(&path)).unwrap().count()
    };
    assert!(control.call(HealthRequest {}).is_ok());
    let before = descriptors();
    for _ in 0..100 {
        assert!(agent.ask(jobs::stat("/")).is_ok());
    }
    wait_for_no_children(&agent);
    assert!(control.call(HealthRequest {}).is_ok());
    assert_eq!(descriptors(), before);
}
