//! The whole worker, over its real channels: noded's socket, gRPC with certificates, and the real agent.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can't go on fails")]

mod support;

use std::{collections::HashMap, io::Write as _, sync::Arc};

use space_node_proto::{
    attach::{FollowRequest, attach_client::AttachClient},
    commands::{
        AttachCommandRequest, CommandEvent, CommandSpec, CommandState, CreateCommandRequest,
        GetCommandRequest, ListCommandsRequest, ResizeTerminalRequest, SignalCommandRequest, TerminalSize,
        WriteStdinRequest, command_event::Kind, commands_client::CommandsClient, output,
    },
    worker::{HintKind, from_worker},
};
use space_sandbox::spool::SpoolLimits;
use support::{CONTROL, EDGE, Guest, Sockets, TestNode, soon};
use tonic::{Code, Streaming, transport::Channel};

const SANDBOX: &str = "sbx_one";
/// Spools that a second of `head -c` fills.
const SMALL: SpoolLimits = SpoolLimits {
    segment: 64 * 1024,
    command: 512 * 1024,
    sandbox: 4 * 1024 * 1024,
    memory: 128 * 1024,
    window: 128 * 1024,
    free_percent: 0,
};

struct Stage {
    node: TestNode,
    guest: Guest,
    client: CommandsClient<Channel>,
}

impl Stage {
    /// A worker with one sandbox whose agent is ready.
    async fn set() -> Self {
        Self::set_with(support::roomy()).await
    }

    async fn set_with(limits: SpoolLimits) -> Self {
        let sockets = Sockets::default();
        let guest = Guest::start();
        sockets.insert(SANDBOX, guest.socket.clone());
        let spools = Arc::new(tempfile::tempdir().unwrap());
        let mut node = TestNode::start_with_spools(sockets.dial(), spools, limits).await;
        node.assign(SANDBOX, 1, None);
        let from_worker::Kind::Ready(ready) = node.told().await else { panic!("not ready") };
        assert_eq!((ready.sandbox_id.as_str(), ready.generation), (SANDBOX, 1));
        let client = node.connect(&[CONTROL]).await.unwrap();
        Self { node, guest, client }
    }

    /// Another worker in the place of the first, with the same guest and the same spools.
    async fn restart(self, limits: SpoolLimits) -> Self {
        let Self { node, guest, client } = self;
        drop(client);
        node.shut_down();
        let spools = Arc::clone(&node.spools);
        soon(node.worker).await.unwrap().unwrap();
        let sockets = Sockets::default();
        sockets.insert(SANDBOX, guest.socket.clone());
        let mut node = TestNode::start_with_spools(sockets.dial(), spools, limits).await;
        node.assign_again(SANDBOX, 1);
        assert!(matches!(node.told().await, from_worker::Kind::Ready(_)));
        let client = node.connect(&[CONTROL]).await.unwrap();
        Self { node, guest, client }
    }

    async fn run(&mut self, id: &str, script: &str) -> Heard {
        let stream = self.attach(id, script, false).await;
        soon(hear(stream)).await.unwrap()
    }

    async fn attach(&mut self, id: &str, script: &str, stdin: bool) -> Streaming<CommandEvent> {
        let request = AttachCommandRequest { create: Some(shell(script, stdin)), ..attach(id) };
        soon(self.client.attach_command(request)).await.unwrap().into_inner()
    }
}

#[derive(Debug, Default)]
struct Heard {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    code: Option<i32>,
    signal: Option<i32>,
    gaps: usize,
    lost: usize,
}

async fn hear(stream: Streaming<CommandEvent>) -> Result<Heard, tonic::Status> {
    hear_behind(stream, 0, 0).await
}

/// What follows event `last`, which ended at `offset` of stdout.
async fn hear_behind(
    mut stream: Streaming<CommandEvent>,
    last: u64,
    offset: u64,
) -> Result<Heard, tonic::Status> {
    let mut heard = Heard::default();
    let mut last = Some(last).filter(|last| *last > 0);
    let first = offset;
    while let Some(event) = stream.message().await? {
        let gap = matches!(event.kind, Some(Kind::Gap(_)));
        assert!(
            gap || last.is_none_or(|last| event.sequence == last + 1),
            "{} behind {last:?}",
            event.sequence
        );
        match event.kind.unwrap() {
            Kind::Started(_) => assert_eq!(event.sequence, 1),
            Kind::Output(piece) => {
                let piece_is_stdout = piece.stream() == output::Stream::Stdout;
                let bytes = match piece.stream() {
                    output::Stream::Stdout => &mut heard.stdout,
                    output::Stream::Stderr => &mut heard.stderr,
                    output::Stream::Unspecified => panic!("no stream"),
                };
                let first = if piece_is_stdout { first } else { 0 };
                assert!(heard.gaps > 0 || piece.offset == first + bytes.len() as u64);
                bytes.extend(piece.data);
            }
            Kind::Gap(gap) => {
                heard.gaps += 1;
                heard.lost += usize::try_from(gap.stdout_bytes).unwrap();
            }
            Kind::Exit(exit) => {
                heard.code = Some(exit.code);
                heard.signal = Some(exit.signal);
            }
        }
        last = Some(event.sequence);
    }
    Ok(heard)
}

fn shell(script: &str, stdin: bool) -> CommandSpec {
    CommandSpec {
        argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        env: HashMap::from([("NAME".to_owned(), "space".to_owned())]),
        cwd: "/".to_owned(),
        user: "root".to_owned(),
        stdin,
        ..CommandSpec::default()
    }
}

fn attach(id: &str) -> AttachCommandRequest {
    AttachCommandRequest {
        sandbox_id: SANDBOX.to_owned(),
        generation: 1,
        command_id: id.to_owned(),
        ..AttachCommandRequest::default()
    }
}

#[tokio::test]
async fn a_command_runs_and_its_output_and_exit_code_arrive() {
    let mut stage = Stage::set().await;
    let heard = stage.run("cmd_1", "echo $GREETING $NAME; echo oops >&2; exit 7").await;
    assert_eq!(heard.stdout, b"hello space\n");
    assert_eq!(heard.stderr, b"oops\n");
    assert_eq!((heard.code, heard.signal), (Some(7), Some(0)));
}

#[tokio::test]
async fn a_command_can_be_made_first_and_read_by_several_and_again() {
    let mut stage = Stage::set().await;
    let create = CreateCommandRequest {
        sandbox_id: SANDBOX.to_owned(),
        generation: 1,
        command_id: "cmd_1".to_owned(),
        spec: Some(shell("echo once", false)),
    };
    let made = soon(stage.client.create_command(create.clone())).await.unwrap().into_inner();
    assert_eq!(made.state(), CommandState::Created);
    assert_eq!(made.spec, create.spec);
    soon(stage.client.create_command(create.clone())).await.unwrap();
    let other = CreateCommandRequest { spec: Some(shell("echo twice", false)), ..create };
    let error = soon(stage.client.create_command(other)).await.unwrap_err();
    assert_eq!(error.code(), Code::AlreadyExists);

    let first = soon(stage.client.attach_command(attach("cmd_1"))).await.unwrap().into_inner();
    let second = soon(stage.client.attach_command(attach("cmd_1"))).await.unwrap().into_inner();
    let (first, second) = soon(async { tokio::join!(hear(first), hear(second)) }).await;
    assert_eq!((first.unwrap().stdout, second.unwrap().stdout), (b"once\n".to_vec(), b"once\n".to_vec()));
    let later = AttachCommandRequest { after_sequence: 2, ..attach("cmd_1") };
    let later = soon(stage.client.attach_command(later)).await.unwrap().into_inner();
    let later = soon(hear(later)).await.unwrap();
    assert_eq!((later.stdout, later.code), (Vec::new(), Some(0)));
}

#[tokio::test]
async fn stdin_is_taken_by_offset_and_a_signal_ends_a_command() {
    let mut stage = Stage::set().await;
    let stream = stage.attach("cmd_1", "cat", true).await;
    let write = |offset, data: &[u8], eof| WriteStdinRequest {
        sandbox_id: SANDBOX.to_owned(),
        generation: 1,
        command_id: "cmd_1".to_owned(),
        offset,
        data: data.to_vec(),
        eof,
    };
    let next =
        soon(stage.client.write_stdin(write(0, b"one ", false))).await.unwrap().into_inner().next_offset;
    assert_eq!(next, 4);
    soon(stage.client.write_stdin(write(2, b"e two", true))).await.unwrap();
    assert_eq!(soon(hear(stream)).await.unwrap().stdout, b"one two");
    let error = soon(stage.client.write_stdin(write(7, b"more", false))).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.metadata().contains_key("space-refusal"), "{error:?}");

    let stream = stage.attach("cmd_2", "sleep 1000", false).await;
    let signal = SignalCommandRequest {
        sandbox_id: SANDBOX.to_owned(),
        generation: 1,
        command_id: "cmd_2".to_owned(),
        signal: 15,
    };
    soon(stage.client.signal_command(signal)).await.unwrap();
    assert_eq!(soon(hear(stream)).await.unwrap().signal, Some(15));
}

#[tokio::test]
async fn commands_are_listed_over_all_pages_and_told_by_id() {
    let mut stage = Stage::set().await;
    for index in 0..70 {
        let create = CreateCommandRequest {
            sandbox_id: SANDBOX.to_owned(),
            generation: 1,
            command_id: format!("cmd_{index}"),
            spec: Some(shell(&format!("exit {index}"), false)),
        };
        soon(stage.client.create_command(create)).await.unwrap();
    }
    let list = ListCommandsRequest { sandbox_id: SANDBOX.to_owned(), generation: 1 };
    let listed = soon(stage.client.list_commands(list)).await.unwrap().into_inner().commands;
    let ids: Vec<_> = listed.iter().map(|command| command.command_id.clone()).collect();
    assert_eq!(ids, (0..70).map(|index| format!("cmd_{index}")).collect::<Vec<_>>());
    stage.run("cmd_9", "exit 9").await;
    let get =
        GetCommandRequest { sandbox_id: SANDBOX.to_owned(), generation: 1, command_id: "cmd_9".to_owned() };
    let got = soon(stage.client.get_command(get)).await.unwrap().into_inner();
    assert_eq!((got.state(), got.exit.unwrap().code), (CommandState::Exited, 9));
}

#[tokio::test]
async fn wrong_names_and_fields_get_their_codes() {
    let mut stage = Stage::set().await;
    let get = |sandbox: &str, generation, command: &str| GetCommandRequest {
        sandbox_id: sandbox.to_owned(),
        generation,
        command_id: command.to_owned(),
    };
    let cases = [
        (get("sbx_two", 1, "cmd_1"), Code::NotFound),
        (get(SANDBOX, 2, "cmd_1"), Code::FailedPrecondition),
        (get(SANDBOX, 1, "cmd_1"), Code::NotFound),
        (get(SANDBOX, 1, "a/b"), Code::InvalidArgument),
    ];
    for (request, code) in cases {
        let error = soon(stage.client.get_command(request.clone())).await.unwrap_err();
        assert_eq!(error.code(), code, "{request:?}");
    }
    let nothing = AttachCommandRequest { create: Some(CommandSpec::default()), ..attach("cmd_1") };
    let error = soon(stage.client.attach_command(nothing)).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("argv"), "{error:?}");
}

#[tokio::test]
async fn a_stream_survives_broken_connections_to_the_real_agent() {
    let mut stage = Stage::set().await;
    let script = "i=0; while [ $i -lt 30 ]; do seq $((i * 1000 + 1)) $((i * 1000 + 1000)); read -r _line; i=$((i + 1)); done";
    let mut stream = stage.attach("cmd_1", script, true).await;
    let mut stdout = Vec::new();
    let mut offset = 0;
    let mut rounds = 0;
    let expected: Vec<u8> = (1..=30_000).flat_map(|number| format!("{number}\n").into_bytes()).collect();
    let mut writes = tokio::task::JoinSet::new();
    while let Some(event) = soon(stream.message()).await.unwrap() {
        if let Some(Kind::Output(piece)) = event.kind {
            assert_eq!(piece.offset, stdout.len() as u64);
            stdout.extend(piece.data);
            if stdout.ends_with(format!("{}\n", (rounds + 1) * 1000).as_bytes()) {
                rounds += 1;
                // The answer to this write and what follows meet the break somewhere on their way.
                let mut client = stage.client.clone();
                writes.spawn(async move {
                    let write = WriteStdinRequest {
                        sandbox_id: SANDBOX.to_owned(),
                        generation: 1,
                        command_id: "cmd_1".to_owned(),
                        offset,
                        data: b"\n".to_vec(),
                        eof: false,
                    };
                    client.write_stdin(write).await.unwrap();
                });
                offset += 1;
                if rounds % 3 == 0 {
                    stage.guest.break_connections();
                }
            }
        }
    }
    soon(writes.join_all()).await;
    assert!(stdout == expected, "{} of {} bytes", stdout.len(), expected.len());
}

/// Lines of a round in a script that waits for a line of stdin behind each: less than the ring holds, so that no
/// output is lost in the guest however slow this machine is.
const ROUND: usize = 50_000;
const LINE: usize = "1000000\n".len();

fn rounds(count: usize) -> String {
    format!(
        "i=0; while [ $i -lt {count} ]; do \
         seq $((1000000 + i * {ROUND})) $((999999 + (i + 1) * {ROUND})); read -r _; i=$((i + 1)); done"
    )
}

fn lines(count: usize) -> Vec<u8> {
    (0..count * ROUND).flat_map(|line| format!("{}\n", 1_000_000 + line).into_bytes()).collect()
}

/// Reads until `count` rounds are there and lets the next begin after each. Answers the last event's number.
async fn read_rounds(stage: &mut Stage, from: usize, count: usize, stdout: &mut Vec<u8>, after: u64) -> u64 {
    let resumed = AttachCommandRequest { after_sequence: after, ..attach("cmd_1") };
    let mut stream = soon(stage.client.attach_command(resumed)).await.unwrap().into_inner();
    let mut last = after;
    for round in from..count {
        while stdout.len() < (round + 1) * ROUND * LINE {
            let event = soon(stream.message()).await.unwrap().unwrap();
            assert_eq!(event.sequence, last + 1);
            last = event.sequence;
            if let Some(Kind::Output(piece)) = event.kind {
                assert_eq!(piece.offset, stdout.len() as u64);
                stdout.extend(piece.data);
            }
        }
        let go = WriteStdinRequest {
            sandbox_id: SANDBOX.to_owned(),
            generation: 1,
            command_id: "cmd_1".to_owned(),
            offset: round as u64,
            data: b"\n".to_vec(),
            eof: false,
        };
        soon(stage.client.write_stdin(go)).await.unwrap();
    }
    last
}

#[tokio::test]
async fn a_slow_reader_loses_nothing_that_fits_the_spool() {
    let mut stage = Stage::set().await;
    let slow = stage.attach("cmd_1", &rounds(8), true).await;
    let mut fast = Vec::new();
    read_rounds(&mut stage, 0, 8, &mut fast, 0).await;
    let slow = soon(hear(slow)).await.unwrap();
    assert_eq!((slow.code, slow.gaps), (Some(0), 0));
    assert!(slow.stdout == lines(8) && fast == slow.stdout, "{} bytes", slow.stdout.len());
}

#[tokio::test]
async fn what_neither_spool_nor_ring_could_hold_is_counted_in_gaps_and_the_end_arrives() {
    let mut stage = Stage::set_with(SMALL).await;
    let mut slow = stage.attach("cmd_1", "read -r go; head -c 8000000 /dev/zero; exit 3", true).await;
    soon(slow.message()).await.unwrap();
    let fast = soon(stage.client.attach_command(attach("cmd_1"))).await.unwrap().into_inner();
    let go = WriteStdinRequest {
        sandbox_id: SANDBOX.to_owned(),
        generation: 1,
        command_id: "cmd_1".to_owned(),
        offset: 0,
        data: b"\n".to_vec(),
        eof: true,
    };
    soon(stage.client.write_stdin(go)).await.unwrap();
    let fast = soon(hear(fast)).await.unwrap();
    assert_eq!((fast.code, fast.stdout.len() + fast.lost), (Some(3), 8_000_000));
    let slow = soon(hear_behind(slow, 1, 0)).await.unwrap();
    assert_eq!((slow.code, slow.stdout.len() + slow.lost), (Some(3), 8_000_000));
    assert!(slow.gaps > 0 && slow.lost > 0, "{} gaps", slow.gaps);
}

#[tokio::test]
async fn a_stream_goes_on_where_it_was_when_the_worker_is_replaced() {
    let mut stage = Stage::set().await;
    let mut slow = stage.attach("cmd_1", &rounds(8), true).await;
    let (mut had, mut heard) = (0, Vec::new());
    let mut fast = Vec::new();
    let last = read_rounds(&mut stage, 0, 5, &mut fast, 0).await;
    while heard.len() < ROUND * LINE / 2 {
        let event = soon(slow.message()).await.unwrap().unwrap();
        had = event.sequence;
        if let Some(Kind::Output(piece)) = event.kind {
            heard.extend(piece.data);
        }
    }
    drop(slow);
    let mut stage = stage.restart(support::roomy()).await;
    read_rounds(&mut stage, 5, 8, &mut fast, last).await;
    // What this one still needs is more than the ring holds.
    let resumed = AttachCommandRequest { after_sequence: had, ..attach("cmd_1") };
    let stream = soon(stage.client.attach_command(resumed)).await.unwrap().into_inner();
    let rest = soon(hear_behind(stream, had, heard.len() as u64)).await.unwrap();
    heard.extend(rest.stdout);
    assert_eq!((rest.code, rest.gaps), (Some(0), 0));
    assert!(heard == lines(8) && fast == heard, "{} bytes", heard.len());
}

#[tokio::test]
async fn an_edge_follows_what_control_made_and_makes_nothing() {
    let mut stage = Stage::set().await;
    let create = CreateCommandRequest {
        sandbox_id: SANDBOX.to_owned(),
        generation: 1,
        command_id: "cmd_1".to_owned(),
        spec: Some(shell("echo followed", false)),
    };
    soon(stage.client.create_command(create)).await.unwrap();
    let mut edge = AttachClient::new(stage.node.channel_of(EDGE).await);
    let follow = |command: &str, after_sequence| FollowRequest {
        sandbox_id: SANDBOX.to_owned(),
        generation: 1,
        command_id: command.to_owned(),
        after_sequence,
    };
    let stream = soon(edge.follow(follow("cmd_1", 0))).await.unwrap().into_inner();
    let heard = soon(hear(stream)).await.unwrap();
    assert_eq!((heard.stdout.as_slice(), heard.code), (&b"followed\n"[..], Some(0)));
    let mut rest = soon(edge.follow(follow("cmd_1", 2))).await.unwrap().into_inner();
    assert_eq!(soon(rest.message()).await.unwrap().unwrap().sequence, 3);
    assert_eq!(soon(edge.follow(follow("cmd_2", 0))).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn only_control_and_the_edge_may_call() {
    let stage = Stage::set().await;
    let list = ListCommandsRequest { sandbox_id: SANDBOX.to_owned(), generation: 1 };
    let mut client = stage.node.connect(&[CONTROL]).await.unwrap();
    soon(client.list_commands(list.clone())).await.unwrap();
    // It is let in, and may do less; tests/ports.rs has the rest.
    let mut client = stage.node.connect(&[EDGE]).await.unwrap();
    assert_eq!(soon(client.list_commands(list)).await.unwrap_err().code(), Code::PermissionDenied);
    let strangers: [&[&str]; 5] = [
        &["spiffe://space/node/n"],
        &["spiffe://space/node/n/tenant/t"],
        &["spiffe://space/control/x"],
        &[CONTROL, "spiffe://space/node/n"],
        &[],
    ];
    for stranger in strangers {
        assert!(refuses(stage.node.connect(stranger).await).await, "{stranger:?}");
    }
    assert!(refuses(stage.node.connect_with(None).await).await, "no certificate");
    let (certificate, key) = support::Authority::new().sign(&[CONTROL], None);
    let foreign = tonic::transport::Identity::from_pem(certificate, key);
    assert!(refuses(stage.node.connect_with(Some(foreign)).await).await, "another authority");
}

/// With TLS 1.3 a client may learn of a refused certificate only when it asks for something.
async fn refuses(connected: Result<CommandsClient<Channel>, tonic::transport::Error>) -> bool {
    let Ok(mut client) = connected else { return true };
    let list = ListCommandsRequest { sandbox_id: SANDBOX.to_owned(), generation: 1 };
    soon(client.list_commands(list)).await.is_err()
}

#[tokio::test]
async fn a_released_sandbox_ends_its_streams_and_is_not_found() {
    let mut stage = Stage::set().await;
    let mut stream = stage.attach("cmd_1", "echo up; sleep 1000", false).await;
    soon(stream.message()).await.unwrap();
    stage.node.release(SANDBOX);
    let error = soon(hear(stream)).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    let list = ListCommandsRequest { sandbox_id: SANDBOX.to_owned(), generation: 1 };
    assert_eq!(soon(stage.client.list_commands(list)).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_panic_on_the_console_reaches_noded() {
    let mut stage = Stage::set().await;
    let (reader, mut writer) = std::io::pipe().unwrap();
    stage.node.assign("sbx_two", 5, Some(&reader.into()));
    writer.write_all(b"Kernel panic - not ").unwrap();
    writer.write_all(b"syncing: Attempted to kill init!\n").unwrap();
    let from_worker::Kind::Hint(hint) = stage.node.told().await else { panic!("no hint") };
    assert_eq!((hint.sandbox_id.as_str(), hint.generation, hint.kind()), ("sbx_two", 5, HintKind::Panic));
}

#[tokio::test]
async fn a_worker_leaves_when_noded_says_so_or_is_gone() {
    let stage = Stage::set().await;
    stage.node.shut_down();
    soon(stage.node.worker).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_new_certificate_is_taken_without_a_restart() {
    let mut stage = Stage::set().await;
    stage.node.configure(None);
    stage.run("cmd_1", "true").await;
    let mut client = stage.node.connect(&[CONTROL]).await.unwrap();
    let list = ListCommandsRequest { sandbox_id: SANDBOX.to_owned(), generation: 1 };
    soon(client.list_commands(list)).await.unwrap();
}

#[tokio::test]
async fn a_terminal_has_the_size_that_it_is_given() {
    let mut stage = Stage::set().await;
    let size = |rows, columns| Some(TerminalSize { rows, columns });
    let spec = CommandSpec { terminal: size(30, 100), ..shell("stty size; read _; stty size", false) };
    let request = AttachCommandRequest { create: Some(spec), ..attach("tty") };
    let stream = soon(stage.client.attach_command(request)).await.unwrap().into_inner();
    let resize = |id: &str, size| ResizeTerminalRequest {
        sandbox_id: SANDBOX.to_owned(),
        generation: 1,
        command_id: id.to_owned(),
        size,
    };
    // The terminal is there from the start on, whatever the command has read of it.
    soon(stage.client.resize_terminal(resize("tty", size(40, 120)))).await.unwrap();
    let write = WriteStdinRequest {
        sandbox_id: SANDBOX.to_owned(),
        generation: 1,
        command_id: "tty".to_owned(),
        data: b"\n".to_vec(),
        ..WriteStdinRequest::default()
    };
    soon(stage.client.write_stdin(write)).await.unwrap();
    let heard = soon(hear(stream)).await.unwrap();
    let text = String::from_utf8(heard.stdout).unwrap();
    assert!(text.ends_with("40 120\r\n") && heard.code == Some(0), "{text}");
    let bad = soon(stage.client.resize_terminal(resize("tty", size(0, 1)))).await.unwrap_err();
    assert_eq!(bad.code(), Code::InvalidArgument);
    stage.run("pipe", "true").await;
    let none = soon(stage.client.resize_terminal(resize("pipe", size(1, 1)))).await.unwrap_err();
    assert_eq!(none.code(), Code::FailedPrecondition);
    assert_eq!(none.metadata().get("space-refusal").unwrap(), "no_terminal");
}
