//! Commands, through the agent's real event loop on a Unix socket.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "a test fails by panicking"
)]

mod kit;

use kit::{Agent, Seen, sh, variables, with_stdin};
use space_guest_proto::{
    HostFrame, Reply, Stream, limits,
    message::{
        CommandSpec, CommandState, CreateCommandRequest, EndReason, Exit, GetCommandRequest, HealthRequest,
        ListCommandsRequest, RefusalCode,
    },
};

fn code(code: i32) -> Option<Exit> {
    Some(Exit { code, ..Exit::default() })
}

fn killed(signal: i32, timed_out: bool) -> Option<Exit> {
    Some(Exit { signal, timed_out, ..Exit::default() })
}

#[test]
fn a_command_starts_puts_out_and_exits_with_its_code() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let id = client.run("one", sh("echo out; exit 7"));
    let seen = client.watch(id);
    assert!(seen.started);
    assert_eq!((seen.text().as_str(), seen.exit), ("out\n", code(7)));
    assert_eq!(seen.last_sequence, 3);
}

#[test]
fn both_streams_arrive_in_the_order_they_were_written() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let spec = with_stdin(sh("for i in 1 2 3 4; do read _; echo $i; read _; echo -$i >&2; done"));
    let id = client.run("order", spec);
    let mut offset = 0;
    let mut all = Seen::default();
    for _ in 0..8 {
        offset = client.write("order", offset, b"\n", false).unwrap();
        let seen = client.watch_until(id, |seen| !seen.output.is_empty());
        all.output.extend(seen.output);
    }
    assert_eq!(all.text(), "1\n-1\n2\n-2\n3\n-3\n4\n-4\n");
    assert_eq!(all.of(Stream::Stderr), b"-1\n-2\n-3\n-4\n");
}

#[test]
fn stdin_is_taken_once_and_ends() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let id = client.run("cat", with_stdin(sh("cat")));
    assert_eq!(client.write("cat", 0, b"hello ", false), Ok(6));
    assert_eq!(client.write("cat", 0, b"hello ", false), Ok(6));
    assert_eq!(client.write("cat", 7, b"?", false), Err(RefusalCode::StdinHole));
    assert_eq!(client.write("cat", 6, b"there", true), Ok(11));
    assert_eq!(client.watch(id).text(), "hello there");
    assert_eq!(client.write("cat", 11, b"", true), Err(RefusalCode::NotRunning));
}

#[test]
fn a_command_that_does_not_read_holds_its_writer_back_and_nothing_else() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let id = client.run("slow", with_stdin(sh("exec sleep 600")));
    let block = vec![b'x'; limits::DATA_BYTES];
    assert_eq!(client.write("slow", 0, &block, false), Ok(32768));
    assert_eq!(client.write("slow", 32768, &block, false), Ok(65536));
    let request = space_guest_proto::message::WriteStdinRequest {
        command_id: "slow".into(),
        offset: 65536,
        data: block.clone().into(),
        eof: false,
    };
    // The pipe holds 64 KiB.
    let held = client.ask(request);
    assert!(matches!(client.call(HealthRequest {}), Ok(Reply::Health(_))));
    let other = client.run("other", sh("echo quick"));
    assert_eq!(client.watch(other).text(), "quick\n");
    assert_eq!(client.write("slow", 65536, b"x", false), Err(RefusalCode::Busy));
    client.signal("slow", 9).unwrap();
    // The pipe's other end closes before the command is reaped; the agent may notice either first.
    assert!(matches!(client.answer(held), Err(RefusalCode::NotRunning | RefusalCode::StdinClosed)));
    assert_eq!(client.watch(id).exit, killed(9, false));
}

#[test]
fn without_stdin_a_command_reads_nothing() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let id = client.run("none", sh("cat; echo end; sleep 60"));
    client.watch_until(id, |seen| !seen.output.is_empty());
    assert_eq!(client.write("none", 0, b"x", false), Err(RefusalCode::StdinClosed));
}

#[test]
fn a_signal_reaches_the_whole_group() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let id = client.run("group", sh("sleep 600 & sleep 600 & echo up; wait"));
    client.watch_until(id, |seen| seen.text() == "up\n");
    client.signal("group", 15).unwrap();
    assert_eq!(client.watch(id).exit, killed(15, false));
    assert_eq!(client.signal("group", 15), Err(RefusalCode::NotRunning));
    assert_eq!(client.signal("nobody", 15), Err(RefusalCode::NotFound));
    assert_eq!(client.signal("group", 32), Err(RefusalCode::Invalid));
}

#[test]
fn a_command_whose_time_is_up_is_terminated() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let id = client.run("late", CommandSpec { timeout_ms: 50, ..sh("sleep 600") });
    assert_eq!(client.watch(id).exit, killed(15, true));
}

#[test]
fn a_command_that_ignores_its_termination_is_killed_five_seconds_later() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let spec = CommandSpec { timeout_ms: 300, ..sh("trap '' TERM; echo armed; while :; do sleep 1; done") };
    let id = client.run("stubborn", spec);
    let begin = std::time::Instant::now();
    assert_eq!(client.watch(id).exit, killed(9, true));
    assert!(begin.elapsed().as_secs() >= 4, "{:?}", begin.elapsed());
}

#[test]
fn what_can_not_be_started_exits_as_in_a_shell() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let spec = |argv: &str| CommandSpec { argv: vec![argv.to_owned()], ..CommandSpec::default() };
    let cases = [
        ("missing", spec("no-such-program"), 127, "no-such-program: not found"),
        ("path", spec("/no/such/program"), 127, "/no/such/program: not found"),
        ("directory", spec("/etc"), 126, "/etc: "),
        ("data", spec("/etc/passwd"), 126, "/etc/passwd: "),
        ("cwd", CommandSpec { cwd: "/no/such".into(), ..sh("true") }, 126, "cannot enter /no/such: "),
        ("user", CommandSpec { user: "no-such-user".into(), ..sh("true") }, 126, "no user no-such-user"),
    ];
    for (name, spec, code, error) in cases {
        let id = client.run(name, spec);
        let seen = client.watch(id);
        let exit = seen.exit.unwrap();
        assert_eq!(exit.code, code, "{name}: {}", exit.error);
        assert!(exit.error.starts_with(error), "{name}: {}", exit.error);
        assert!(!seen.started, "{name}");
        assert_eq!(seen.last_sequence, 1, "{name}");
    }
}

#[test]
fn the_environment_is_defaults_then_sandbox_then_command() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let mut spec = sh("env; pwd; ulimit -c; kill -l >/dev/null; readlink /proc/self/fd/0");
    spec.env.insert("LANG".into(), "C".into());
    spec.cwd = "/usr".into();
    let id = client.run("env", spec);
    let text = client.watch(id).text();
    let found = variables(&text);
    assert_eq!(found["SANDBOX"], "yes");
    assert_eq!(found["LANG"], "C");
    assert!(found["PATH"].contains("/usr/bin"));
    assert!(found.contains_key("HOME") && found.contains_key("USER") && found.contains_key("SHELL"));
    assert!(!found.contains_key("CARGO_MANIFEST_DIR"), "nothing of the agent's own");
    assert!(text.contains("\n/usr\n0\n/dev/null\n"), "{text}");
}

#[test]
fn a_command_holds_nothing_of_the_agents() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let keep = client.run("keep", sh("sleep 600"));
    let id = client.run("fds", sh("ls /proc/$$/fd | tr '\\n' ' '"));
    // Its three, and the pipe to `tr` that the shell may hold meanwhile.
    let text = client.watch(id).text();
    let descriptors: Vec<u32> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
    assert!(descriptors.starts_with(&[0, 1, 2]) && descriptors.len() <= 4, "{text}");
    client.send(HostFrame::Detach { id: keep });
}

#[test]
fn a_background_process_does_not_hold_the_exit_back() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let id = client.run("leaves", sh("(sleep 600; echo late) & echo now"));
    let seen = client.watch(id);
    assert_eq!((seen.text().as_str(), seen.exit), ("now\n", code(0)));
}

#[test]
fn creating_is_idempotent_and_attaching_starts() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let create = |spec| CreateCommandRequest { command_id: "c".into(), spec: Some(spec) };
    for _ in 0..2 {
        let Reply::CreateCommand(reply) = client.call(create(sh("echo ran"))).unwrap() else { panic!() };
        assert_eq!(reply.command.unwrap().state(), CommandState::Created);
    }
    assert_eq!(client.call(create(sh("echo other"))), Err(RefusalCode::AlreadyExists));
    assert_eq!(client.attach("c", 0, 0, Some(sh("echo other"))), Err(RefusalCode::AlreadyExists));
    assert_eq!(client.attach("d", 0, 0, None), Err(RefusalCode::NotFound));
    for _ in 0..3 {
        let id = client.attach("c", 0, 1 << 20, Some(sh("echo ran"))).unwrap();
        assert_eq!(client.watch(id).text(), "ran\n");
    }
    assert_eq!(client.attach("c", 4, 0, None), Err(RefusalCode::Invalid));
    let id = client.attach("c", 2, 0, None).unwrap();
    assert_eq!(client.watch(id).exit, code(0));
}

#[test]
fn a_reader_that_grants_nothing_blocks_nobody_and_later_sees_a_gap() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let id = client.attach("flood", 0, 0, Some(sh("head -c 5000000 /dev/zero; echo done >&2"))).unwrap();
    // Another connection sees the end while the first has read nothing.
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
    let gap = &seen.gaps[0];
    let received = seen.of(Stream::Stdout).len() as u64;
    assert_eq!(gap.stdout_bytes + received, 5_000_000, "{gap:?}");
    assert!(received > 900_000 && received <= 1 << 20, "{received}");
    assert_eq!(seen.of(Stream::Stderr), b"done\n");
    assert_eq!(seen.exit, code(0));
}

#[test]
fn a_slow_reader_with_credit_gets_every_byte() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    // The command waits for the reader by way of stdin, so nothing is ever overwritten.
    let script = "i=0; while [ $i -lt 40 ]; do head -c 100000 /dev/zero; read _; i=$((i+1)); done";
    let id = client.attach("big", 0, 32768, Some(with_stdin(sh(script)))).unwrap();
    let (mut received, mut acknowledged) = (0, 0);
    loop {
        let frame = client.receive_for(id);
        let mut seen = Seen::default();
        seen.add(&frame);
        assert!(seen.gaps.is_empty());
        let length = seen.of(Stream::Stdout).len();
        received += length;
        if length > 0 {
            client.send(HostFrame::Credit { id, bytes: length as u64 });
        }
        if received / 100_000 > acknowledged && received % 100_000 == 0 {
            client.write("big", acknowledged as u64, b"\n", false).unwrap();
            acknowledged += 1;
        }
        if seen.ended {
            break;
        }
    }
    assert_eq!(received, 4_000_000);
}

#[test]
fn many_readers_see_the_same() {
    let agent = Agent::start();
    let mut first = agent.personalised();
    let own = first.run("shared", with_stdin(sh("read _; seq 1 20000")));
    let mut readers: Vec<_> = (0..8)
        .map(|_| {
            let mut client = agent.client();
            let ids: Vec<u32> = (0..10).map(|_| client.attach("shared", 0, 1 << 20, None).unwrap()).collect();
            (client, ids)
        })
        .collect();
    first.write("shared", 0, b"\n", true).unwrap();
    let expected = first.watch(own).text();
    assert_eq!(expected.lines().count(), 20000);
    for (client, ids) in &mut readers {
        for id in ids {
            assert_eq!(client.watch(*id).text(), expected);
        }
    }
}

#[test]
fn detaching_ends_the_subscription_and_not_the_command() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let id = client.run("stays", with_stdin(sh("echo one; read _; echo two")));
    client.watch_until(id, |seen| seen.text() == "one\n");
    client.send(HostFrame::Detach { id });
    let space_guest_proto::GuestFrame::End { end, .. } = client.receive_for(id) else { panic!() };
    assert_eq!(end.reason(), EndReason::Detached);
    client.write("stays", 0, b"\n", false).unwrap();
    let id = client.attach("stays", 2, 1 << 20, None).unwrap();
    assert_eq!(client.watch(id).text(), "two\n");
}

#[test]
fn listing_goes_page_by_page_in_the_order_of_creation() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
    for name in &names {
        let mut spec = sh("true");
        spec.env.insert("BIG".into(), "x".repeat(2000));
        client.call(CreateCommandRequest { command_id: name.clone(), spec: Some(spec) }).unwrap();
    }
    let (mut found, mut pages) = (Vec::<String>::new(), 0);
    loop {
        let after_command_id = found.last().cloned().unwrap_or_default();
        let Reply::ListCommands(page) = client.call(ListCommandsRequest { after_command_id }).unwrap() else {
            panic!()
        };
        found.extend(page.commands().unwrap().into_iter().map(|command| command.command_id));
        pages += 1;
        if !page.more {
            break;
        }
    }
    assert_eq!(found, names);
    assert!(pages > 2);
}

#[test]
fn commands_are_limited_and_forgotten_ones_never_run_again() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let first = client.run("first", sh("true"));
    client.watch(first);
    for number in 0..limits::COMMANDS {
        let command_id = format!("n{number}");
        client.call(CreateCommandRequest { command_id, spec: Some(sh("true")) }).unwrap();
    }
    assert_eq!(client.attach("first", 0, 0, Some(sh("true"))), Err(RefusalCode::Forgotten));
    let more = CreateCommandRequest { command_id: "more".into(), spec: Some(sh("true")) };
    assert_eq!(client.call(more), Err(RefusalCode::Exhausted));
}

#[test]
fn orphans_are_reaped() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let id = client.run("orphans", sh("for i in 1 2 3 4 5; do (setsid sleep 0.1 &); done"));
    client.watch(id);
    let children = format!("/proc/{0}/task/{0}/children", agent.child.id());
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    // Nothing tells a third process that another was reaped.
    while !std::fs::read_to_string(&children).unwrap().trim().is_empty() {
        assert!(std::time::Instant::now() < end, "children are left");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn the_agent_stays_small_beside_endless_output() {
    let agent = Agent::start();
    let mut client = agent.personalised();
    let id = client.attach("yes", 0, 0, Some(sh("yes | head -c 200000000"))).unwrap();
    loop {
        let request = GetCommandRequest { command_id: "yes".into() };
        let Reply::GetCommand(reply) = client.call(request).unwrap() else { panic!() };
        if reply.command.unwrap().state() == CommandState::Exited {
            break;
        }
    }
    let Reply::Health(health) = client.call(HealthRequest {}).unwrap() else { panic!() };
    assert!(health.agent_memory_bytes < 8 << 20, "{}", health.agent_memory_bytes);
    client.send(HostFrame::Detach { id });
}
