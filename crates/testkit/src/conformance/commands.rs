//! `Commands`: sessions by id, events without holes, input by offset.

use space_node_proto::commands::{
    AttachCommandRequest, Command, CommandEvent, CommandSpec, CommandState, CreateCommandRequest,
    GetCommandRequest, ListCommandsRequest, ResizeTerminalRequest, SignalCommandRequest, TerminalSize,
    WriteStdinRequest, command_event::Kind,
};
use tonic::{Code, Status, Streaming};

use super::{Running, cases, fails, refuses, within};

const REFUSAL: &str = "space-refusal";

pub(super) async fn run(running: &Running) {
    cases!(
        running;
        a_command_is_made_once,
        events_come_in_order_and_can_be_taken_up_anywhere,
        a_program_that_is_not_there_exits_with_127,
        input_goes_by_its_offset,
        a_signal_ends_a_command,
        what_is_not_there_is_not_found,
        what_makes_no_sense_is_refused,
    );
}

async fn a_command_is_made_once(running: &Running) {
    let spec = spec(&["echo", "once"]);
    let made = create(running, "once", &spec).await.unwrap_or_else(fails);
    assert_eq!((made.command_id.as_str(), made.state()), ("once", CommandState::Created), "{made:?}");
    assert_eq!(made.spec, Some(spec.clone()));
    assert_eq!(made.last_sequence, 0, "nothing has happened");
    assert_eq!(create(running, "once", &spec).await.unwrap_or_else(fails).state(), CommandState::Created);
    let other = self::spec(&["echo", "twice"]);
    refuses(create(running, "once", &other).await, Code::AlreadyExists, None);
    refuses(attach(running, "once", 0, Some(&other)).await, Code::AlreadyExists, None);
    assert_eq!(get(running, "once").await.unwrap_or_else(fails).state(), CommandState::Created);
    let request = ListCommandsRequest { sandbox_id: running.id.clone(), generation: running.generation };
    let list = within(running.commands().list_commands(request)).await.unwrap_or_else(fails).into_inner();
    assert_eq!(list.commands.iter().filter(|command| command.command_id == "once").count(), 1);
    // Two that attach start it once, and both hear all of it.
    let (one, two) = tokio::join!(attach(running, "once", 0, Some(&spec)), attach(running, "once", 0, None));
    for events in [one, two] {
        assert_eq!(output(&rest(events.unwrap_or_else(fails)).await.unwrap_or_else(fails)), "once\n");
    }
}

async fn events_come_in_order_and_can_be_taken_up_anywhere(running: &Running) {
    let spec = spec(&["echo", "a", "b"]);
    let events = attach(running, "ordered", 0, Some(&spec)).await.unwrap_or_else(fails);
    let events = rest(events).await.unwrap_or_else(fails);
    assert!(matches!(events[0].kind, Some(Kind::Started(_))), "{events:?}");
    let numbers: Vec<u64> = events.iter().map(|event| event.sequence).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    assert!(events.iter().all(|event| event.generation == running.generation), "{events:?}");
    assert_eq!(output(&events), "a b\n");
    assert_eq!(exit_of(&events), (0, 0));
    let command = get(running, "ordered").await.unwrap_or_else(fails);
    assert_eq!((command.state(), command.last_sequence), (CommandState::Exited, events.len() as u64));
    assert_eq!(command.exit.map(|exit| (exit.code, exit.signal)), Some((0, 0)));
    for after in 0..=events.len() {
        let again = attach(running, "ordered", after as u64, None).await.unwrap_or_else(fails);
        assert_eq!(rest(again).await.unwrap_or_else(fails), events[after..], "after {after}");
    }
}

async fn a_program_that_is_not_there_exits_with_127(running: &Running) {
    let events = attach(running, "missing", 0, Some(&spec(&["no-such-program"]))).await.unwrap_or_else(fails);
    let events = rest(events).await.unwrap_or_else(fails);
    assert_eq!(exit_of(&events), (127, 0));
    let Some(Kind::Exit(exit)) = &events[events.len() - 1].kind else { panic!("{events:?}") };
    assert!(!exit.error.is_empty(), "it says why: {exit:?}");
}

async fn input_goes_by_its_offset(running: &Running) {
    let spec = CommandSpec { stdin: true, ..spec(&["cat"]) };
    let events = attach(running, "input", 0, Some(&spec)).await.unwrap_or_else(fails);
    let write = async |offset, data: &str, eof| {
        let request = WriteStdinRequest {
            sandbox_id: running.id.clone(),
            generation: running.generation,
            command_id: "input".to_owned(),
            offset,
            data: data.as_bytes().to_vec(),
            eof,
        };
        Ok(within(running.commands().write_stdin(request)).await?.into_inner().next_offset)
    };
    let taken = async |offset, data, eof| write(offset, data, eof).await.unwrap_or_else(fails::<u64>);
    assert_eq!(taken(0, "ab", false).await, 2);
    assert_eq!(taken(0, "ab", false).await, 2, "sent again, taken once");
    assert_eq!(taken(1, "bcd", false).await, 4, "what is known is skipped");
    refuses(write(5, "x", false).await, Code::InvalidArgument, Some((REFUSAL, "stdin_hole")));
    assert_eq!(taken(4, "", true).await, 4);
    let events = rest(events).await.unwrap_or_else(fails);
    assert_eq!((output(&events).as_str(), exit_of(&events)), ("abcd", (0, 0)));
    refuses(write(4, "e", false).await, Code::FailedPrecondition, None);
}

async fn a_signal_ends_a_command(running: &Running) {
    let mut events =
        attach(running, "signal", 0, Some(&spec(&["sleep", "1000"]))).await.unwrap_or_else(fails);
    within(events.message()).await.unwrap_or_else(fails);
    let size = TerminalSize { rows: 24, columns: 80 };
    refuses(resize(running, "signal", size).await, Code::FailedPrecondition, Some((REFUSAL, "no_terminal")));
    for number in [0, 32, -1] {
        refuses(signal(running, "signal", number).await, Code::InvalidArgument, None);
    }
    signal(running, "signal", 15).await.unwrap_or_else(fails);
    assert_eq!(exit_of(&rest(events).await.unwrap_or_else(fails)), (0, 15));
    let late = signal(running, "signal", 15).await;
    refuses(late, Code::FailedPrecondition, Some((REFUSAL, "not_running")));
}

async fn what_is_not_there_is_not_found(running: &Running) {
    refuses(get(running, "nobody").await, Code::NotFound, None);
    refuses(attach(running, "nobody", 0, None).await, Code::NotFound, None);
    refuses(signal(running, "nobody", 9).await, Code::NotFound, None);
    let elsewhere = |generation, sandbox: &str| Running {
        id: sandbox.to_owned(),
        generation,
        fence: running.fence,
        worker: running.worker.clone(),
    };
    let unknown = elsewhere(1, &space_types::SandboxId::new().to_string());
    refuses(get(&unknown, "once").await, Code::NotFound, None);
    refuses(attach(&unknown, "new", 0, Some(&spec(&["true"]))).await, Code::NotFound, None);
    for generation in [running.generation - 1, running.generation + 1] {
        let other = elsewhere(generation, &running.id);
        refuses(get(&other, "once").await, Code::FailedPrecondition, None);
        refuses(create(&other, "new", &spec(&["true"])).await, Code::FailedPrecondition, None);
    }
    refuses(get(running, "new").await, Code::NotFound, None);
}

async fn what_makes_no_sense_is_refused(running: &Running) {
    for id in ["", "a/b", "x".repeat(65).as_str()] {
        refuses(create(running, id, &spec(&["true"])).await, Code::InvalidArgument, None);
    }
    refuses(create(running, "empty", &spec(&[])).await, Code::InvalidArgument, None);
    refuses(create(running, "nul", &spec(&["a\0b"])).await, Code::InvalidArgument, None);
    let flat = CommandSpec { terminal: Some(TerminalSize { rows: 0, columns: 80 }), ..spec(&["true"]) };
    refuses(create(running, "flat", &flat).await, Code::InvalidArgument, None);
    refuses(get(running, "flat").await, Code::NotFound, None);
}

fn spec(argv: &[&str]) -> CommandSpec {
    CommandSpec { argv: argv.iter().map(|word| (*word).to_owned()).collect(), ..CommandSpec::default() }
}

async fn create(running: &Running, command: &str, spec: &CommandSpec) -> Result<Command, Status> {
    let request = CreateCommandRequest {
        sandbox_id: running.id.clone(),
        generation: running.generation,
        command_id: command.to_owned(),
        spec: Some(spec.clone()),
    };
    Ok(within(running.commands().create_command(request)).await?.into_inner())
}

async fn get(running: &Running, command: &str) -> Result<Command, Status> {
    let request = GetCommandRequest {
        sandbox_id: running.id.clone(),
        generation: running.generation,
        command_id: command.to_owned(),
    };
    Ok(within(running.commands().get_command(request)).await?.into_inner())
}

async fn attach(
    running: &Running,
    command: &str,
    after_sequence: u64,
    create: Option<&CommandSpec>,
) -> Result<Streaming<CommandEvent>, Status> {
    let request = AttachCommandRequest {
        sandbox_id: running.id.clone(),
        generation: running.generation,
        command_id: command.to_owned(),
        after_sequence,
        create: create.cloned(),
    };
    Ok(within(running.commands().attach_command(request)).await?.into_inner())
}

async fn signal(running: &Running, command: &str, signal: i32) -> Result<(), Status> {
    let request = SignalCommandRequest {
        sandbox_id: running.id.clone(),
        generation: running.generation,
        command_id: command.to_owned(),
        signal,
    };
    within(running.commands().signal_command(request)).await.map(drop)
}

async fn resize(running: &Running, command: &str, size: TerminalSize) -> Result<(), Status> {
    let request = ResizeTerminalRequest {
        sandbox_id: running.id.clone(),
        generation: running.generation,
        command_id: command.to_owned(),
        size: Some(size),
    };
    within(running.commands().resize_terminal(request)).await.map(drop)
}

/// Everything that is still to come.
async fn rest(mut events: Streaming<CommandEvent>) -> Result<Vec<CommandEvent>, Status> {
    let mut all = Vec::new();
    while let Some(event) = within(events.message()).await? {
        all.push(event);
    }
    Ok(all)
}

/// What was put out, each piece where the one before ended.
fn output(events: &[CommandEvent]) -> String {
    let mut data = Vec::new();
    for event in events {
        if let Some(Kind::Output(output)) = &event.kind {
            assert_eq!(output.offset, data.len() as u64, "{events:?}");
            data.extend_from_slice(&output.data);
        }
    }
    String::from_utf8_lossy(&data).into_owned()
}

/// Code and signal of the last event.
fn exit_of(events: &[CommandEvent]) -> (i32, i32) {
    match events.last().and_then(|event| event.kind.as_ref()) {
        Some(Kind::Exit(exit)) => (exit.code, exit.signal),
        _ => panic!("no exit at the end of {events:?}"),
    }
}
