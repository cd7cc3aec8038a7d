//! Every frame survives encoding and decoding, and the bytes of some are pinned: an agent in an old snapshot
//! can't be asked to change its mind.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::{Bytes, BytesMut};
use space_guest_proto::{
    EncodeError, GuestFrame, HostFrame, Output, OutputHead, Stream, limits,
    message::{
        AttachCommandReply, AttachCommandRequest, Command, CommandSpec, CommandState, End, EndReason, Event,
        EventKind, Exit, Hello, Notice, NoticeKind, PersonaliseRequest, Refusal, RefusalCode,
        ResizeTerminalReply, ResizeTerminalRequest, TerminalSize, WriteStdinRequest,
    },
};

fn spec() -> CommandSpec {
    CommandSpec {
        argv: vec!["python3".into(), "-c".into(), "print(1)".into()],
        env: [("A".to_owned(), "1".to_owned())].into(),
        cwd: "/srv".into(),
        user: "1000".into(),
        timeout_ms: 1500,
        stdin: true,
        terminal: None,
    }
}

fn sized() -> CommandSpec {
    CommandSpec { terminal: Some(TerminalSize { rows: 24, columns: 300 }), ..spec() }
}

#[test]
fn host_frames_survive_the_round_trip() {
    let attach = AttachCommandRequest {
        command_id: "cmd_1".into(),
        after_sequence: 3,
        credit: 65536,
        create: Some(sized()),
    };
    let resize =
        ResizeTerminalRequest { command_id: "c".into(), size: Some(TerminalSize { rows: 1, columns: 4096 }) };
    let personalise = PersonaliseRequest {
        wall_clock_ns: 1_700_000_000_000_000_000,
        entropy: Bytes::from_static(&[7; 64]),
        hostname: "box".into(),
        env: [("TOKEN".to_owned(), "x".to_owned())].into(),
        generation: 2,
    };
    let stdin =
        WriteStdinRequest { command_id: "c".into(), offset: 9, data: Bytes::from_static(b"in"), eof: true };
    let frames = [
        HostFrame::Hello(Hello { protocol_max: 1, ..Hello::default() }),
        HostFrame::request(1, attach),
        HostFrame::request(2, personalise),
        HostFrame::request(u32::MAX, stdin),
        HostFrame::request(3, resize),
        HostFrame::UnknownRequest { id: 4, kind: 0x3f },
        HostFrame::Credit { id: 1, bytes: 4096 },
        HostFrame::Detach { id: 1 },
        HostFrame::NoticeTaken,
    ];
    let mut buffer = BytesMut::new();
    for frame in &frames {
        frame.encode(&mut buffer).unwrap();
    }
    for frame in frames {
        assert_eq!(HostFrame::decode(&mut buffer).unwrap(), Some(frame));
    }
    assert!(buffer.is_empty());
}

#[test]
fn guest_frames_survive_the_round_trip() {
    let command = Command {
        command_id: "cmd_1".into(),
        spec: Some(spec()),
        state: CommandState::Exited.into(),
        exit: Some(Exit { signal: 9, timed_out: true, ..Exit::default() }),
        ..Command::default()
    };
    let head = OutputHead { sequence: 2, generation: 3, at_ms: 4, stream: Stream::Stderr, offset: 5 };
    let frames = [
        GuestFrame::Hello(Hello { root_error: "no /dev/vda".into(), ..Hello::default() }),
        GuestFrame::reply(1, AttachCommandReply { command: Some(command) }),
        GuestFrame::reply(3, ResizeTerminalReply {}),
        GuestFrame::Refusal {
            id: 2,
            refusal: Refusal { code: RefusalCode::StdinHole.into(), message: "no".into() },
        },
        GuestFrame::Event {
            id: 1,
            event: Event { sequence: 9, kind: Some(EventKind::Exit(Exit::default())), ..Event::default() },
        },
        GuestFrame::Output { id: 1, output: Output { head, data: Bytes::from_static(b"text") } },
        GuestFrame::End { id: 1, end: End { reason: EndReason::Exited.into() } },
        GuestFrame::Notice(Notice { kind: NoticeKind::PowerOff.into() }),
    ];
    let mut buffer = BytesMut::new();
    for frame in &frames {
        frame.encode(&mut buffer).unwrap();
    }
    for frame in frames {
        assert_eq!(GuestFrame::decode(&mut buffer).unwrap(), Some(frame));
    }
    assert!(buffer.is_empty());
}

#[test]
fn the_bytes_of_version_1_do_not_change() {
    let mut buffer = BytesMut::new();
    let hello =
        Hello { protocol_min: 1, protocol_max: 1, role: 1, version: "0.1.0".into(), ..Hello::default() };
    HostFrame::Hello(hello).encode(&mut buffer).unwrap();
    let attach =
        AttachCommandRequest { command_id: "c".into(), credit: 256, create: Some(spec()), after_sequence: 0 };
    HostFrame::request(7, attach).encode(&mut buffer).unwrap();
    let head = OutputHead { sequence: 2, generation: 3, at_ms: 4, stream: Stream::Stdout, offset: 5 };
    head.encode(7, [b"he", b"y"], &mut buffer).unwrap();
    let expected = concat!(
        "0d00000001000000000000000801100118012205302e312e30",
        "38000000210000000700000",
        "00a016318800222300a07707974686f6e330a022d630a087072696e74283129",
        "12060a0141120131",
        "1a042f737276220431303030",
        "28dc0b3001",
        "2b000000430000000700000002000000000000000300000000000000040000000000000005000000000000000100000000000000686579",
    );
    let shown: Vec<String> = buffer.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(shown.concat(), expected);
}

#[test]
fn the_bytes_of_a_terminal_do_not_change() {
    let mut buffer = BytesMut::new();
    let size = Some(TerminalSize { rows: 24, columns: 300 });
    let spec = CommandSpec { argv: vec!["sh".into()], terminal: size, ..CommandSpec::default() };
    let attach = AttachCommandRequest { command_id: "c".into(), create: Some(spec), ..Default::default() };
    HostFrame::request(7, attach).encode(&mut buffer).unwrap();
    HostFrame::request(8, ResizeTerminalRequest { command_id: "c".into(), size })
        .encode(&mut buffer)
        .unwrap();
    let expected = concat!(
        "10000000210000000700000",
        "00a0163220b0a0273683a050818",
        "10ac02",
        "0a00000026000000080000000a0163",
        "1205081810ac02",
    );
    let shown: Vec<String> = buffer.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(shown.concat(), expected);
}

#[test]
fn what_does_not_fit_a_frame_is_not_sent() {
    let mut buffer = BytesMut::new();
    let huge = CommandSpec { argv: vec!["x".repeat(limits::FRAME_BYTES)], ..CommandSpec::default() };
    let attach = AttachCommandRequest { create: Some(huge), ..AttachCommandRequest::default() };
    assert!(matches!(HostFrame::request(1, attach).encode(&mut buffer), Err(EncodeError::TooLarge(_))));
    assert!(buffer.is_empty());
}
