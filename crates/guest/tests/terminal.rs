//! Commands on a terminal, through the agent's real event loop and the kernel's real terminals.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking"
)]

mod kit;

use std::os::unix::fs::MetadataExt;

use kit::{Agent, Client, Seen, on_terminal, sh};
use space_guest_proto::{
    HostFrame, Reply, Stream, feature, limits,
    message::{
        CommandSpec, CommandState, CreateCommandRequest, GetCommandRequest, HealthRequest, RefusalCode,
        ResizeTerminalRequest, TerminalSize, WriteStdinRequest,
    },
};

fn program(argv: &[&str]) -> CommandSpec {
    on_terminal(CommandSpec {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        ..CommandSpec::default()
    })
}

fn resize(client: &mut Client, command: &str, rows: u32, columns: u32) -> Result<Reply, RefusalCode> {
    let size = Some(TerminalSize { rows, columns });
    client.call(ResizeTerminalRequest { command_id: command.to_owned(), size })
}

/// Follows until all that was put out so far ends with `text`.
fn until(client: &mut Client, id: u32, seen: &mut Seen, text: &str) {
    while !seen.of(Stream::Stdout).ends_with(text.as_bytes()) {
        assert!(!seen.ended, "no {text:?} in {seen:?}");
        let frame = client.receive_for(id);
        seen.add(&frame);
    }
}

#[test]
fn a_command_sees_a_terminal_of_its_size() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    assert_eq!(client.features & feature::TERMINAL, feature::TERMINAL);
    let id = client
        .run("tty", on_terminal(sh("tty >/dev/tty; stty size; echo $TERM; test -t 2 && echo both; exit 7")));
    let seen = client.watch(id);
    let text = seen.text();
    let lines: Vec<&str> = text.split("\r\n").collect();
    assert!(lines[0].starts_with("/dev/pts/"), "{text}");
    assert_eq!(lines[1..], ["24 80", "xterm-256color", "both", ""]);
    assert_eq!(seen.exit.unwrap().code, 7);
    assert!(seen.output.iter().all(|(stream, _)| *stream == Stream::Stdout));
}

#[test]
fn a_user_owns_the_terminal_of_its_command() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return;
    }
    let agent = Agent::start();
    let mut client = agent.personalised();
    let spec = CommandSpec { user: "65534".into(), ..sh("echo hello > $(tty); stat -Lc %u $(tty)") };
    let id = client.run("own", on_terminal(spec));
    assert_eq!(client.watch(id).text(), "hello\r\n65534\r\n");
}

#[test]
fn the_kind_of_terminal_can_be_given() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let mut spec = on_terminal(sh("echo $TERM"));
    spec.env.insert("TERM".into(), "vt100".into());
    let id = client.run("term", spec);
    assert_eq!(client.watch(id).text(), "vt100\r\n");
}

#[test]
fn a_new_size_is_told_to_the_command() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let script = "trap 'stty size; exit 0' WINCH; echo up; sleep 600 & wait";
    let id = client.run("size", on_terminal(sh(script)));
    until(&mut client, id, &mut Seen::default(), "up\r\n");
    resize(&mut client, "size", 50, 132).unwrap();
    assert_eq!(client.watch(id).text(), "50 132\r\n");
    assert_eq!(resize(&mut client, "size", 50, 132), Err(RefusalCode::NotRunning));
}

#[test]
fn only_what_is_a_terminal_of_a_possible_size_is_resized() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let pipe = client.run("pipe", sh("echo up; exec sleep 600"));
    until(&mut client, pipe, &mut Seen::default(), "up\n");
    assert_eq!(resize(&mut client, "pipe", 1, 1), Err(RefusalCode::NoTerminal));
    assert_eq!(resize(&mut client, "nobody", 1, 1), Err(RefusalCode::NotFound));
    assert_eq!(resize(&mut client, "pipe", 0, 1), Err(RefusalCode::Invalid));
    let terminal = Some(TerminalSize { rows: 1, columns: 4097 });
    let spec = Some(CommandSpec { terminal, ..sh("true") });
    let create = CreateCommandRequest { command_id: "wide".into(), spec };
    assert_eq!(client.call(create), Err(RefusalCode::Invalid));
    let create = CreateCommandRequest { command_id: "new".into(), spec: Some(on_terminal(sh("true"))) };
    client.call(create).unwrap();
    assert_eq!(resize(&mut client, "new", 1, 1), Err(RefusalCode::NotRunning));
}

#[test]
fn ctrl_c_interrupts_what_is_in_the_foreground() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let id = client.run("int", on_terminal(sh("trap 'echo caught; exit 3' INT; echo up; sleep 600 & wait")));
    until(&mut client, id, &mut Seen::default(), "up\r\n");
    client.write("int", 0, b"\x03", false).unwrap();
    let seen = client.watch(id);
    assert_eq!((seen.text().as_str(), seen.exit.unwrap().code), ("^Ccaught\r\n", 3));
}

#[test]
fn ctrl_d_ends_what_reads_lines() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let id = client.run("cat", program(&["cat"]));
    client.write("cat", 0, b"hi\n\x04", false).unwrap();
    let seen = client.watch(id);
    assert_eq!((seen.text().as_str(), seen.exit.unwrap().code), ("hi\r\nhi\r\n", 0));
}

#[test]
fn the_end_of_input_ends_what_reads_lines_even_behind_half_a_line() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    // Reading the whole line first would hide what a second end-of-file character is for.
    let id = client.run("cat", on_terminal(sh("stty -echo; printf up; exec cat; echo never")));
    let mut seen = Seen::default();
    until(&mut client, id, &mut seen, "up");
    assert_eq!(client.write("cat", 0, b"half", true), Ok(4));
    let rest = client.watch(id);
    assert_eq!((rest.text().as_str(), rest.exit.unwrap().code), ("half", 0));
}

#[test]
fn an_ended_input_takes_no_more_and_is_not_ended_twice() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let id = client.run("two", on_terminal(sh("stty -echo; printf up; cat; echo first; exec sleep 600")));
    let mut seen = Seen::default();
    until(&mut client, id, &mut seen, "up");
    assert_eq!(client.write("two", 0, b"a\n", true), Ok(2));
    assert_eq!(client.write("two", 0, b"a\n", true), Ok(2));
    assert_eq!(client.write("two", 2, b"b\n", false), Err(RefusalCode::StdinClosed));
    until(&mut client, id, &mut seen, "upa\r\nfirst\r\n");
    client.signal("two", 9).unwrap();
}

#[test]
fn a_repeated_write_types_nothing_twice() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let id = client.run("cat", on_terminal(sh("stty -echo; printf up; exec cat")));
    let mut seen = Seen::default();
    until(&mut client, id, &mut seen, "up");
    assert_eq!(client.write("cat", 0, b"one\n", false), Ok(4));
    assert_eq!(client.write("cat", 0, b"one\n", false), Ok(4));
    assert_eq!(client.write("cat", 2, b"e\ntwo\n", false), Ok(8));
    assert_eq!(client.write("cat", 9, b"?", false), Err(RefusalCode::StdinHole));
    client.write("cat", 8, b"\x04", false).unwrap();
    assert_eq!(client.watch(id).text(), "one\r\ntwo\r\n");
}

#[test]
fn a_job_is_stopped_and_the_shell_has_the_terminal_back() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let mut spec = program(&["bash", "--norc", "--noprofile", "--noediting", "-i"]);
    spec.env.insert("PS1".into(), "> ".into());
    let id = client.run("jobs", spec);
    let (mut seen, mut offset) = (Seen::default(), 0);
    let mut play = |awaited: &str, typed: &[u8]| {
        until(&mut client, id, &mut seen, awaited);
        offset = client.write("jobs", offset, typed, false).unwrap();
    };
    play("> ", b"sh -c 'printf re; echo ady; exec sleep 600'\n");
    play("ready\r\n", b"\x1a");
    play("> ", b"exec sh -c 'echo ov''er; exit 5'\n");
    until(&mut client, id, &mut seen, "over\r\n");
    assert!(String::from_utf8_lossy(&seen.of(Stream::Stdout)).contains("Stopped"), "{seen:?}");
    assert_eq!(client.watch(id).exit.unwrap().code, 5);
}

#[test]
fn every_byte_passes_both_ways_in_raw_mode() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let id = client.run("raw", on_terminal(sh("stty raw -echo; printf up; exec head -c 200192")));
    let mut seen = Seen::default();
    until(&mut client, id, &mut seen, "up");
    let all: Vec<u8> = (0..=255).cycle().take(200_192).collect();
    let mut offset = 0;
    // Far more than a terminal holds: the reader keeps up, or the writer waits.
    for piece in all.chunks(limits::DATA_BYTES) {
        offset = client.write("raw", offset, piece, false).unwrap();
    }
    let rest = client.watch(id);
    assert!(rest.of(Stream::Stdout) == all, "something was changed on the way");
    assert_eq!(rest.exit.unwrap().code, 0);
}

#[test]
fn a_program_that_does_not_read_holds_its_writer_back_and_nothing_else() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let id = client.run("deaf", on_terminal(sh("stty raw -echo; printf up; exec sleep 600")));
    until(&mut client, id, &mut Seen::default(), "up");
    let data = vec![b'x'; limits::DATA_BYTES].into();
    let held = client.ask(WriteStdinRequest { command_id: "deaf".into(), offset: 0, data, eof: false });
    assert!(matches!(client.call(HealthRequest {}), Ok(Reply::Health(_))));
    assert_eq!(client.write("deaf", 0, b"x", false), Err(RefusalCode::Busy));
    client.signal("deaf", 9).unwrap();
    assert_eq!(client.answer(held), Err(RefusalCode::NotRunning));
    assert_eq!(client.watch(id).exit.unwrap().signal, 9);
}

#[test]
fn a_flood_that_nobody_reads_blocks_nobody_and_shows_as_a_gap() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let script = "stty -opost; head -c 3000000 /dev/zero; printf done";
    let id = client.attach("flood", 0, 0, Some(on_terminal(sh(script)))).unwrap();
    let mut other = agent.client();
    loop {
        let Reply::GetCommand(reply) = other.call(GetCommandRequest { command_id: "flood".into() }).unwrap()
        else {
            panic!()
        };
        if reply.command.unwrap().state() == CommandState::Exited {
            break;
        }
    }
    client.send(HostFrame::Credit { id, bytes: 4 << 20 });
    let seen = client.watch(id);
    assert_eq!(seen.gaps.len(), 1);
    let received = seen.of(Stream::Stdout);
    assert_eq!(seen.gaps[0].stdout_bytes + received.len() as u64, 3_000_004);
    assert!(received.ends_with(b"\0done"), "what lay in the terminal at the exit is not lost");
}

#[test]
fn readers_see_the_same_and_resume_behind_what_they_have() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let id = client.run("seq", on_terminal(sh("stty -echo; printf up; read _; seq 1 5000; read _")));
    let mut first = Seen::default();
    until(&mut client, id, &mut first, "up");
    let mut other = agent.client();
    let whole = other.attach("seq", 0, 1 << 20, None).unwrap();
    client.write("seq", 0, b"\n", false).unwrap();
    until(&mut client, id, &mut first, "0\r\n");
    client.send(HostFrame::Detach { id });
    while !first.ended {
        let frame = client.receive_for(id);
        first.add(&frame);
    }
    client.write("seq", 1, b"\n", false).unwrap();
    let resumed = client.attach("seq", first.last_sequence, 1 << 20, None).unwrap();
    let rest = client.watch(resumed);
    let whole = other.watch(whole).of(Stream::Stdout);
    assert_eq!([first.of(Stream::Stdout), rest.of(Stream::Stdout)].concat(), whole);
    assert_eq!(whole.len(), 2 + (1..=5000).map(|n: u32| n.to_string().len() + 2).sum::<usize>());
}

#[test]
fn a_background_process_does_not_hold_the_exit_back_and_loses_the_terminal() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let directory = tempfile::tempdir().unwrap();
    let told = directory.path().join("told");
    // It outlives the hang-up, and learns of it from its next write.
    let script = format!(
        "trap '' HUP; (while echo late; do sleep 0.05; done 2>/dev/null; echo gone > {}) & printf now",
        told.display()
    );
    let id = client.run("leaves", on_terminal(sh(&script)));
    let seen = client.watch(id);
    assert!(seen.text().contains("now"), "{seen:?}");
    assert_eq!(seen.exit.unwrap().code, 0);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    // Nothing tells a third process that a file was written.
    while !std::fs::read_to_string(&told).is_ok_and(|text| text == "gone\n") {
        assert!(std::time::Instant::now() < end, "it still has a terminal");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
