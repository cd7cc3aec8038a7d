//! Connections: versions, rules, and what becomes of those who break them.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking"
)]

mod kit;

use std::io::Write;

use bytes::BytesMut;
use kit::{Agent, sh};
use space_guest_proto::{
    GuestFrame, HostFrame, Reply, Stream, limits,
    message::{
        AddEntropyRequest, AttachCommandRequest, CommandSpec, CreateCommandRequest, HealthRequest, Hello,
        ListCommandsRequest, NoticeKind, PersonaliseRequest, RefusalCode, SetClockRequest, ShutdownRequest,
    },
};

fn hello(min: u32, max: u32) -> HostFrame {
    HostFrame::Hello(Hello { protocol_min: min, protocol_max: max, ..Hello::default() })
}

fn bytes_of(frames: &[HostFrame]) -> BytesMut {
    let mut bytes = BytesMut::new();
    for frame in frames {
        frame.encode(&mut bytes).unwrap();
    }
    bytes
}

/// The code of the refusal that ended the connection.
fn last_refusal(frames: &[GuestFrame]) -> Option<RefusalCode> {
    match frames.last() {
        Some(GuestFrame::Refusal { id: 0, refusal }) => Some(refusal.code()),
        _ => None,
    }
}

#[test]
fn a_host_from_another_age_is_refused_by_version() {
    let agent = Agent::start();
    let mut client = agent.connect();
    client.send(hello(7, 9));
    assert_eq!(last_refusal(&client.read_to_end()), Some(RefusalCode::Version));
}

#[test]
fn requests_may_follow_the_hello_at_once() {
    let agent = Agent::start();
    let mut client = agent.connect();
    client.send(hello(1, 5));
    let personalise = client.ask(PersonaliseRequest { generation: 3, ..PersonaliseRequest::default() });
    let attach = client.ask(AttachCommandRequest {
        command_id: "c".into(),
        credit: 1 << 20,
        create: Some(sh("echo quick")),
        ..AttachCommandRequest::default()
    });
    let GuestFrame::Hello(theirs) = client.receive() else { panic!("no hello first") };
    assert_eq!(theirs.generation, 0);
    assert!(client.answer(personalise).is_ok());
    assert!(client.answer(attach).is_ok());
    assert_eq!(client.watch(attach).text(), "quick\n");
}

#[test]
fn what_breaks_the_protocol_closes_that_connection_and_no_other() {
    let agent = Agent::start();
    let mut good = agent.personalised();
    let id = good.run("c", sh("sleep 600"));
    good.watch_until(id, |seen| seen.started);
    let health = || HostFrame::request(1, HealthRequest {});
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("noise", vec![0xff; 100]),
        ("no hello", bytes_of(&[health()]).to_vec()),
        ("two hellos", bytes_of(&[hello(1, 1), hello(1, 1)]).to_vec()),
        ("id 0", bytes_of(&[hello(1, 1), HostFrame::request(0, HealthRequest {})]).to_vec()),
        (
            "an unknown kind",
            [&bytes_of(&[hello(1, 1)])[..], &[0, 0, 0, 0, 0x7f, 0, 0, 0, 1, 0, 0, 0]].concat(),
        ),
        (
            "a frame of a gigabyte",
            [&bytes_of(&[hello(1, 1)])[..], &[0, 0, 0, 0x40, 1, 0, 0, 0, 0, 0, 0, 0]].concat(),
        ),
        (
            "endless credit",
            bytes_of(&[
                hello(1, 1),
                HostFrame::request(
                    1,
                    AttachCommandRequest {
                        command_id: "c".into(),
                        credit: u64::MAX,
                        ..AttachCommandRequest::default()
                    },
                ),
            ])
            .to_vec(),
        ),
    ];
    for (name, bytes) in cases {
        let mut bad = agent.connect();
        // It may be closed before all was written.
        bad.stream.write_all(&bytes).ok();
        let frames = bad.read_to_end();
        assert_eq!(last_refusal(&frames), Some(RefusalCode::Protocol), "{name}: {frames:?}");
    }
    assert!(matches!(good.call(HealthRequest {}), Ok(Reply::Health(health)) if health.commands_running == 1));
}

#[test]
fn a_frame_cut_short_waits_for_its_rest() {
    let agent = Agent::start();
    let mut client = agent.client();
    let id = client.rules.free_id();
    let frame = HostFrame::request(id, HealthRequest {});
    client.rules.send(&frame).unwrap();
    for byte in bytes_of(&[frame]) {
        client.stream.write_all(&[byte]).unwrap();
    }
    assert!(client.answer(id).is_ok());
}

#[test]
fn unknown_requests_are_refused_and_the_connection_goes_on() {
    let agent = Agent::start();
    let mut client = agent.client();
    let id = client.rules.free_id();
    client.send(HostFrame::UnknownRequest { id, kind: 0x3e });
    assert_eq!(client.answer(id), Err(RefusalCode::Unsupported));
    assert!(client.call(HealthRequest {}).is_ok());
}

#[test]
fn nothing_runs_before_the_guest_is_personalised() {
    let agent = Agent::start();
    let mut client = agent.client();
    assert_eq!(client.attach("c", 0, 0, Some(sh("true"))), Err(RefusalCode::NotPersonalised));
    let personalise = |generation| PersonaliseRequest { generation, ..PersonaliseRequest::default() };
    assert_eq!(client.call(personalise(0)), Err(RefusalCode::Invalid));
    assert!(client.call(personalise(5)).is_ok());
    assert_eq!(client.call(personalise(4)), Err(RefusalCode::StaleGeneration));
    assert!(client.call(personalise(5)).is_ok());
    assert!(client.attach("c", 0, 0, Some(sh("true"))).is_ok());
}

#[test]
fn fields_out_of_range_are_refused_and_change_nothing() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let bad_specs = [
        CommandSpec::default(),
        CommandSpec { argv: vec![String::new()], ..CommandSpec::default() },
        CommandSpec { argv: vec!["a\0b".into()], ..CommandSpec::default() },
        CommandSpec { timeout_ms: u64::MAX, ..sh("true") },
        CommandSpec { cwd: "x".repeat(limits::PATH_BYTES), ..sh("true") },
        CommandSpec { argv: vec!["x".into(); limits::ARGUMENTS + 1], ..CommandSpec::default() },
    ];
    for spec in bad_specs {
        assert_eq!(client.attach("c", 0, 0, Some(spec)), Err(RefusalCode::Invalid));
    }
    assert_eq!(client.attach("a/b", 0, 0, Some(sh("true"))), Err(RefusalCode::Invalid));
    assert_eq!(client.attach("c", 0, 0, None), Err(RefusalCode::NotFound));
    assert_eq!(client.call(AddEntropyRequest::default()), Err(RefusalCode::Invalid));
    assert_eq!(client.call(SetClockRequest::default()), Err(RefusalCode::Invalid));
}

#[test]
fn a_host_that_does_not_read_is_not_read_either_and_harms_nobody() {
    let agent = Agent::start();
    let mut good = agent.personalised();
    let mut deaf = agent.client();
    deaf.stream.set_nonblocking(true).unwrap();
    let unknown = |id| bytes_of(&[HostFrame::UnknownRequest { id, kind: 0x3e }]);
    let stopped = (1..4_000_000).any(|id| !matches!(deaf.stream.write(&unknown(id)), Ok(12)));
    assert!(stopped, "requests are taken without an end");
    let Ok(Reply::Health(health)) = good.call(HealthRequest {}) else { panic!() };
    assert!(health.agent_memory_bytes < 8 << 20, "{}", health.agent_memory_bytes);
}

#[test]
fn connections_are_limited() {
    let agent = Agent::start();
    let clients: Vec<_> = (0..limits::CONNECTIONS).map(|_| agent.client()).collect();
    let mut more = agent.connect();
    assert!(more.read_to_end().is_empty());
    drop(clients);
}

#[test]
fn a_shutdown_is_announced_taken_and_done() {
    let mut agent = Agent::start();
    let mut client = agent.personalised();
    let mut other = agent.client();
    let id = client.run("c", sh("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done"));
    client.watch_until(id, |seen| seen.text() == "up\n");
    assert!(client.call(ShutdownRequest {}).is_ok());
    assert_eq!(client.notice(), NoticeKind::PowerOff);
    assert_eq!(other.notice(), NoticeKind::PowerOff);
    assert_eq!(client.attach("d", 0, 0, Some(sh("true"))), Err(RefusalCode::ShuttingDown));
    client.send(HostFrame::NoticeTaken);
    let seen = client.watch(id);
    assert_eq!((seen.of(Stream::Stdout), seen.exit.unwrap().code), (b"bye\n".to_vec(), 3));
    assert!(agent.child.wait().unwrap().success());
}

#[test]
fn sigterm_is_a_reboot_that_hosts_hear_of() {
    let mut agent = Agent::start();
    let mut client = agent.personalised();
    let pid = agent.child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(client.notice(), NoticeKind::Reboot);
    client.send(HostFrame::NoticeTaken);
    assert!(agent.child.wait().unwrap().success());
}

#[test]
fn credit_for_nothing_is_ignored() {
    let agent = Agent::start();
    let mut client = agent.client();
    client.send(HostFrame::Credit { id: 99, bytes: 1 });
    client.send(HostFrame::Detach { id: 99 });
    assert!(client.call(HealthRequest {}).is_ok());
}

#[test]
fn requests_beyond_what_can_be_answered_wait_and_are_answered() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let mut spec = sh("true");
    spec.env.insert("BIG".into(), "x".repeat(20_000));
    for number in 0..3 {
        let command_id = format!("c{number}");
        client.call(CreateCommandRequest { command_id, spec: Some(spec.clone()) }).unwrap();
    }
    // Each answer is 60 KiB, so all of them are far more than may wait.
    let ids: Vec<u32> = (0..200).map(|_| client.ask(ListCommandsRequest::default())).collect();
    for id in ids {
        assert!(client.answer(id).is_ok());
    }
}
