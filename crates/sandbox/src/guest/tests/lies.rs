//! Every way a guest may break the protocol once it is trusted with a reader and a question: its sandbox ends, its
//! reader hears it, and the sandbox beside it notices nothing.

use bytes::{BufMut, Bytes};
use futures::StreamExt;
use prost::Message;
use space_guest_proto::{
    Output, OutputHead, Stream,
    message::{
        AttachCommandRequest, End, EndReason, Event, EventKind, Exit, Gap, ListCommandsReply,
        ListCommandsRequest, Notice, NoticeKind, Refusal, RefusalCode, SignalCommandReply, Started,
        WriteStdinReply,
    },
};

use super::*;
use crate::{
    guest::{CallError, Fate},
    limits,
    spool::CommandStream,
};

/// `a` is the id of an open subscription, `g` that of a question about command `c` without an answer yet.
type Lie = fn(a: u32, g: u32) -> Vec<u8>;

const LIES: &[(&str, Lie)] = &[
    ("a payload of more than a frame", |a, _g| header(u32::MAX, 0x43, a)),
    ("reserved bytes that are set", |a, _g| with(header(0, 0x43, a), 6, 1)),
    ("flags that nobody knows", |a, _g| with(header(0, 0x43, a), 5, 0x80)),
    ("a frame of an unknown kind", |_a, _g| header(0, 0x7e, 0)),
    ("a malformed reply", |_a, g| raw(0xa4, g, &[0x0a, 0xff, 0xff])),
    ("text that is not UTF-8", |_a, g| raw(0xa4, g, &[0x0a, 0x03, 0x0a, 0x01, 0xff])),
    ("a host's frame", |_a, g| raw(0x24, g, &[])),
    ("a second hello", |_a, _g| encoded(&GuestFrame::Hello(hello()))),
    ("a reply to nothing", |_a, _g| encoded(&reply(4711, running("c")))),
    ("a reply twice", |_a, g| [encoded(&reply(g, running("c"))), encoded(&reply(g, running("c")))].concat()),
    ("a reply of another kind", |_a, g| encoded(&GuestFrame::reply(g, SignalCommandReply {}))),
    ("a refusal of nothing", |_a, _g| {
        encoded(&GuestFrame::Refusal { id: 4711, refusal: Refusal::default() })
    }),
    ("a refusal of what was accepted", |a, _g| {
        encoded(&GuestFrame::Refusal { id: a, refusal: Refusal::default() })
    }),
    ("the refusal that blames this side", |_a, _g| {
        let refusal = Refusal { code: RefusalCode::Protocol.into(), message: String::new() };
        encoded(&GuestFrame::Refusal { id: 0, refusal })
    }),
    ("a reply without a command", |_a, g| encoded(&GuestFrame::reply(g, GetCommandReply { command: None }))),
    ("another command", |_a, g| encoded(&reply(g, running("d")))),
    ("a state that is none", |_a, g| encoded(&reply(g, Command { state: 9, ..running("c") }))),
    ("an exit of what still runs", |_a, g| {
        encoded(&reply(g, Command { exit: Some(Exit::default()), ..running("c") }))
    }),
    ("an exit code that no process has", |_a, g| {
        let exit = Some(Exit { code: 256, ..Exit::default() });
        encoded(&reply(g, Command { state: CommandState::Exited.into(), exit, ..running("c") }))
    }),
    ("a specification that nobody gave", |_a, g| {
        encoded(&reply(
            g,
            Command { spec: Some(space_guest_proto::message::CommandSpec::default()), ..running("c") },
        ))
    }),
    ("an event for nobody", |_a, _g| encoded(&output(4711, 1, 0, 10))),
    ("an event for a question", |_a, g| encoded(&output(g, 1, 0, 10))),
    ("a sequence with a hole", |a, _g| encoded(&output(a, 2, 0, 10))),
    ("a sequence that goes back", |a, _g| {
        [output(a, 1, 0, 1), output(a, 2, 1, 1), output(a, 1, 2, 1)].map(|frame| encoded(&frame)).concat()
    }),
    ("an event twice", |a, _g| {
        [output(a, 1, 0, 1), output(a, 1, 0, 1)].map(|frame| encoded(&frame)).concat()
    }),
    ("an offset with a hole", |a, _g| encoded(&output(a, 1, 1, 10))),
    ("an offset at the end of all numbers", |a, _g| {
        [event(a, 1, gap(1, 1)), output(a, 2, u64::MAX, 10)].map(|frame| encoded(&frame)).concat()
    }),
    ("output without data", |a, _g| raw(0x43, a, &[0; 40])),
    ("output of an unknown stream", |a, _g| {
        let mut payload = vec![0; 41];
        payload[0] = 1;
        payload[32] = 3;
        raw(0x43, a, &payload)
    }),
    ("more output than credit", |a, _g| {
        let piece = 32 * 1024;
        // Nobody reads, so there is credit for what the spool takes.
        let pieces = SMALL.command / piece + 2;
        (0..pieces).flat_map(|index| encoded(&output(a, index + 1, index * piece, 32 * 1024))).collect()
    }),
    ("an event without a kind", |a, _g| {
        encoded(&GuestFrame::Event {
            id: a,
            event: Event { sequence: 1, generation: 1, at_ms: 1, kind: None },
        })
    }),
    ("a gap in front of nothing", |a, _g| encoded(&event(a, 5, gap(5, 5)))),
    ("a gap that ends before it begins", |a, _g| encoded(&event(a, 0, gap(1, 0)))),
    ("a gap of more bytes than there are numbers", |a, _g| {
        let lost = |first| {
            let gap = Gap { first_lost: first, last_lost: first, stdout_bytes: u64::MAX, stderr_bytes: 0 };
            encoded(&event(a, first, EventKind::Gap(gap)))
        };
        [lost(1), lost(2)].concat()
    }),
    ("an event behind the exit", |a, _g| {
        [event(a, 1, EventKind::Exit(Exit::default())), output(a, 2, 0, 1)]
            .map(|frame| encoded(&frame))
            .concat()
    }),
    ("an exit by a signal that is none", |a, _g| {
        encoded(&event(a, 1, EventKind::Exit(Exit { signal: 65, ..Exit::default() })))
    }),
    ("an end without an exit", |a, _g| encoded(&end(a, EndReason::Exited))),
    ("an end that nobody asked for", |a, _g| encoded(&end(a, EndReason::Detached))),
    ("an end without a reason", |a, _g| encoded(&end(a, EndReason::Unspecified))),
    ("a generation that is yet to come", |a, _g| {
        let event = Event { sequence: 1, generation: GENERATION + 1, at_ms: 1, kind: Some(started()) };
        encoded(&GuestFrame::Event { id: a, event })
    }),
    ("no generation", |a, _g| {
        let event = Event { sequence: 1, generation: 0, at_ms: 1, kind: Some(started()) };
        encoded(&GuestFrame::Event { id: a, event })
    }),
    ("a notice of nothing", |_a, _g| encoded(&GuestFrame::Notice(Notice { kind: 77 }))),
    ("notices without end", |_a, _g| {
        let notice = encoded(&GuestFrame::Notice(Notice { kind: NoticeKind::PowerOff.into() }));
        notice.repeat(limits::NOTICES as usize + 1)
    }),
    ("ignorable frames without end", |_a, _g| {
        let frame = with(raw(0x7e, 0, &vec![0; 60_000]), 5, 1);
        frame.repeat(limits::IGNORED / 60_000 + 2)
    }),
];

#[tokio::test]
async fn every_lie_ends_its_own_sandbox_and_no_other() {
    let (other, mut honest) = Bench::booted().await;
    for (name, lie) in LIES {
        let (mut bench, mut guest) = Bench::booted().await;
        let (mut stream, a) = attached(&bench, &mut guest).await;
        let client = bench.client.clone();
        let question =
            tokio::spawn(async move { client.call(GetCommandRequest { command_id: "c".to_owned() }).await });
        let (g, _request) = guest.request().await;

        guest.write(&lie(a, g)).await;

        let unready = timeout(PATIENCE, bench.unready()).await;
        assert_eq!(unready, Ok(UnreadyReason::Protocol), "{name}");
        assert_eq!(bench.metrics.guest_protocol_violations.get(), 1, "{name}");
        let last = last_of(&mut stream).await;
        let ended_by_exit = *name == "an event behind the exit";
        assert!(
            ended_by_exit || matches!(last, Some(Err(CallError::Ended(Fate::Protocol)))),
            "{name}: {last:?}"
        );
        // Answered before the lie, or not at all.
        if let Err(error) = soon(question).await.unwrap() {
            assert!(matches!(error, CallError::Ended(Fate::Protocol)), "{name}: {error}");
        }
        let later = bench.client.call(GetCommandRequest { command_id: "c".to_owned() }).await;
        assert!(matches!(later, Err(CallError::Ended(Fate::Protocol))), "{name}: {later:?}");
        assert!(other.answers(&mut honest).await, "{name}: the other sandbox does not answer");
    }
}

#[tokio::test]
async fn a_list_that_is_longer_than_a_page_or_holds_what_is_no_command_is_a_lie() {
    let command = |index: usize| Bytes::from(running(&format!("c{index}")).encode_to_vec());
    let nameless = Bytes::from(Command { command_id: "a/b".to_owned(), ..running("c") }.encode_to_vec());
    let malformed = Bytes::from_static(&[0xff]);
    let pages: [Vec<Bytes>; 3] = [(0..65).map(command).collect(), vec![nameless], vec![malformed]];
    for encoded_commands in pages {
        let (mut bench, mut guest) = Bench::booted().await;
        let ask = bench.client.call(ListCommandsRequest::default());
        let lie = async {
            let (id, _request) = guest.request().await;
            guest.send(&GuestFrame::reply(id, ListCommandsReply { encoded_commands, more: false })).await;
        };
        let (reply, ()) = tokio::join!(ask, lie);
        assert!(matches!(reply, Err(CallError::Ended(Fate::Protocol))), "{reply:?}");
        assert_eq!(bench.unready().await, UnreadyReason::Protocol);
    }
}

#[tokio::test]
async fn stdin_that_was_never_sent_can_not_have_been_taken_back() {
    let (mut bench, mut guest) = Bench::booted().await;
    let ask = bench.client.call(space_guest_proto::message::WriteStdinRequest {
        command_id: "c".to_owned(),
        offset: 10,
        data: Bytes::from_static(b"x"),
        eof: false,
    });
    let lie = async {
        let (id, _request) = guest.request().await;
        guest.send(&GuestFrame::reply(id, WriteStdinReply { next_offset: 9 })).await;
    };
    let (reply, ()) = tokio::join!(ask, lie);
    assert!(reply.is_err());
    assert_eq!(bench.unready().await, UnreadyReason::Protocol);
}

#[tokio::test]
async fn a_frame_that_never_ends_holds_one_frame_of_memory_and_nobody_up() {
    let (bench, mut guest) = Bench::booted().await;
    let (other, mut honest) = Bench::booted().await;
    guest.write(&header(60_000, 0x43, 1)).await;
    guest.write(&[0; 1000]).await;
    assert!(other.answers(&mut honest).await);
    drop(bench);
}

async fn attached(bench: &Bench, guest: &mut FakeGuest) -> (CommandStream, u32) {
    let attach =
        bench.client.attach(AttachCommandRequest { command_id: "c".to_owned(), ..Default::default() });
    let (stream, id) = soon(async { tokio::join!(attach, guest.accept_attach()) }).await;
    (stream.unwrap(), id)
}

async fn last_of(
    stream: &mut CommandStream,
) -> Option<Result<space_node_proto::commands::CommandEvent, CallError>> {
    let mut last = None;
    while let Some(item) = soon(stream.next()).await {
        last = Some(item);
    }
    last
}

fn header(length: u32, kind: u8, id: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u32_le(length);
    bytes.put_slice(&[kind, 0, 0, 0]);
    bytes.put_u32_le(id);
    bytes
}

fn raw(kind: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    [header(payload.len().try_into().unwrap(), kind, id), payload.to_vec()].concat()
}

fn with(mut bytes: Vec<u8>, index: usize, value: u8) -> Vec<u8> {
    bytes[index] = value;
    bytes
}

fn reply(id: u32, command: Command) -> GuestFrame {
    GuestFrame::reply(id, GetCommandReply { command: Some(command) })
}

fn output(id: u32, sequence: u64, offset: u64, length: usize) -> GuestFrame {
    let head = OutputHead { sequence, generation: GENERATION, at_ms: 1, stream: Stream::Stdout, offset };
    GuestFrame::Output { id, output: Output { head, data: vec![b'x'; length].into() } }
}

fn event(id: u32, sequence: u64, kind: EventKind) -> GuestFrame {
    GuestFrame::Event { id, event: Event { sequence, generation: GENERATION, at_ms: 1, kind: Some(kind) } }
}

fn gap(first_lost: u64, last_lost: u64) -> EventKind {
    EventKind::Gap(Gap { first_lost, last_lost, stdout_bytes: 0, stderr_bytes: 0 })
}

fn started() -> EventKind {
    EventKind::Started(Started { pid: 7 })
}

fn end(id: u32, reason: EndReason) -> GuestFrame {
    GuestFrame::End { id, end: End { reason: reason.into() } }
}
