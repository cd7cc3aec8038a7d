//! The client as a process of its own, against a server that plays a script.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod kit;

use std::process::Output;

use kit::{COMMAND, Mock, SANDBOX, Script, Step, created, event, problem, space};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

fn stdout(id: &str, offset: u64, base64: &str) -> Step {
    event(id, "stdout", &json!({ "offset": offset, "data": base64 }))
}

fn exit(id: &str, exit: &serde_json::Value) -> Step {
    event(id, "exit", exit)
}

fn script(exec: Vec<Step>) -> Script {
    Script { exec, stdin_room: usize::MAX, ..Script::default() }
}

fn text(output: &Output) -> (Option<i32>, String, String) {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), lossy(&output.stdout), lossy(&output.stderr))
}

#[tokio::test]
async fn output_and_exit_code_are_the_commands() {
    let steps = vec![
        created(),
        event("1.1", "started", &json!({ "pid": 7 })),
        stdout("1.2", 0, "b3V0Cg=="),
        event("1.3", "stderr", &json!({ "offset": 0, "data": "ZXJyCg==" })),
        exit("1.4", &json!({ "code": 7 })),
    ];
    let mock = Mock::start(script(steps)).await;
    let output = mock.output(&["exec", SANDBOX, "--", "ls", "-l"]).await;
    assert_eq!(text(&output), (Some(7), "out\n".into(), "err\n".into()));
    assert_eq!(mock.seen()[0].body, json!({ "argv": ["ls", "-l"], "stdin": true }));
}

#[tokio::test]
async fn a_command_that_was_killed_exits_as_in_a_shell() {
    let mock =
        Mock::start(script(vec![created(), exit("1.1", &json!({ "signal": 9, "timed_out": true }))])).await;
    let output = mock.output(&["exec", "--no-stdin", SANDBOX, "x"]).await;
    assert_eq!(text(&output), (Some(137), String::new(), "space: the command's time was up\n".into()));
}

#[tokio::test]
async fn a_lost_connection_is_continued_without_loss_or_repetition() {
    let exec = vec![created(), stdout("1.1", 0, "YQ=="), stdout("1.2", 1, "Yg=="), Step::Break];
    // The server is allowed to repeat; the client is not.
    let attach = vec![stdout("1.2", 1, "Yg=="), stdout("1.3", 2, "Yw=="), exit("1.4", &json!({ "code": 0 }))];
    let mock = Mock::start(Script { attach, ..script(exec) }).await;
    let output = mock.output(&["exec", "-n", SANDBOX, "x"]).await;
    assert_eq!(text(&output), (Some(0), "abc".into(), String::new()));
    let resumed = &mock.seen()[1];
    assert_eq!(resumed.last_event_id.as_deref(), Some("1.2"));
    assert_eq!(resumed.authorization.as_deref(), Some("Bearer attach-token"));
}

#[tokio::test]
async fn an_exec_that_was_cut_off_before_its_name_is_repeated_with_the_same_key() {
    let refuse = problem("unavailable", 503, "the database is away");
    let exec = format!("POST /v1/sandboxes/{SANDBOX}/exec");
    let mock =
        Mock::start(Script { refuse: vec![(exec.clone().leak(), 503, refuse)], ..Script::default() }).await;
    assert_eq!(mock.output(&["exec", "-n", SANDBOX, "x"]).await.status.code(), Some(125));
    assert!(mock.requests().len() > 2, "{:?}", mock.requests());
    let keys: Vec<_> = mock.seen().into_iter().map(|seen| seen.idempotency_key.unwrap()).collect();
    assert!(keys.iter().all(|key| *key == keys[0]) && mock.requests().iter().all(|request| *request == exec));
}

#[tokio::test]
async fn lost_output_is_told() {
    let gap = json!({ "first_lost": 1, "last_lost": 4, "stdout_bytes": 9, "stderr_bytes": 2 });
    let mock =
        Mock::start(script(vec![created(), event("1.4", "gap", &gap), exit("1.5", &json!({ "code": 0 }))]))
            .await;
    let (_, _, stderr) = text(&mock.output(&["exec", "-n", SANDBOX, "x"]).await);
    assert!(stderr.contains("lost 9 bytes of stdout and 2 of stderr"), "{stderr}");
}

#[tokio::test]
async fn piped_input_arrives_whole_even_where_room_is_scarce() {
    let steps = vec![created(), Step::UntilEof, exit("1.1", &json!({ "code": 0 }))];
    let mock = Mock::start(Script { stdin_room: 10_000, ..script(steps) }).await;
    let input: Vec<u8> = (0..100_000u32).map(|n| n.to_le_bytes()[0]).collect();
    let mut child =
        mock.space(&["exec", SANDBOX, "cat"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&input).await.unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
    assert!(mock.stdin() == input);
}

/// Starts a command that prints `ready`, and waits for that.
async fn started(mock: &Mock, arguments: &[&str]) -> (tokio::process::Child, Pid) {
    let mut child = mock.space(arguments).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).await.unwrap();
    assert_eq!(line, "ready\n");
    let pid = Pid::from_raw(child.id().unwrap().try_into().unwrap());
    (child, pid)
}

#[tokio::test]
async fn the_first_interrupt_is_the_commands() {
    let steps = vec![
        created(),
        stdout("1.1", 0, "cmVhZHkK"),
        Step::UntilSignal(1),
        exit("1.2", &json!({ "signal": 2 })),
    ];
    let mock = Mock::start(script(steps)).await;
    let (mut child, pid) = started(&mock, &["exec", "-n", SANDBOX, "x"]).await;
    kill(pid, Signal::SIGINT).unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(130));
    let sent = mock.seen().pop().unwrap();
    assert_eq!(sent.request, format!("POST /v1/sandboxes/{SANDBOX}/commands/{COMMAND}/signal"));
    assert_eq!(sent.body, json!({ "signal": "INT" }));
}

#[tokio::test]
async fn the_second_interrupt_ends_the_client() {
    let steps = vec![
        created(),
        stdout("1.1", 0, "cmVhZHkK"),
        Step::UntilSignal(1),
        stdout("1.2", 6, "cmVhZHkK"),
        Step::UntilSignal(9),
    ];
    let mock = Mock::start(script(steps)).await;
    let (mut child, pid) = started(&mock, &["exec", "-n", SANDBOX, "x"]).await;
    kill(pid, Signal::SIGINT).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).await.unwrap();
    kill(pid, Signal::SIGINT).unwrap();
    assert_eq!((line.as_str(), child.wait().await.unwrap().code()), ("ready\n", Some(130)));
}

#[tokio::test]
async fn run_makes_uses_and_deletes() {
    let mock =
        Mock::start(script(vec![created(), stdout("1.1", 0, "NDIK"), exit("1.2", &json!({ "code": 3 }))]))
            .await;
    let output = mock.output(&["run", "-n", "--label", "a=b", "--", "python3"]).await;
    assert_eq!(text(&output), (Some(3), "42\n".into(), String::new()));
    let expected = [
        "POST /v1/sandboxes".to_owned(),
        format!("GET /v1/operations/{}", kit::OPERATION),
        format!("GET /v1/sandboxes/{SANDBOX}"),
        format!("POST /v1/sandboxes/{SANDBOX}/exec"),
        format!("DELETE /v1/sandboxes/{SANDBOX}"),
    ];
    assert_eq!(mock.requests(), expected);
}

#[tokio::test]
async fn run_deletes_also_after_a_failure_and_keeps_when_told() {
    let exec = format!("POST /v1/sandboxes/{SANDBOX}/exec").leak();
    let refused = vec![(&*exec, 409, problem("sandbox_not_running", 409, "it has stopped"))];
    let mock = Mock::start(Script { refuse: refused, ..Script::default() }).await;
    assert_eq!(mock.output(&["run", "-n", "x"]).await.status.code(), Some(125));
    assert!(mock.requests().pop().unwrap().starts_with("DELETE"));
    let kept = mock.output(&["run", "-n", "--keep", "x"]).await;
    assert!(text(&kept).2.contains(&format!("kept {SANDBOX}")));
    assert!(!mock.requests().pop().unwrap().starts_with("DELETE"));
}

#[tokio::test]
async fn a_refusal_is_one_line_and_a_hint() {
    let path = format!("GET /v1/sandboxes/{SANDBOX}").leak();
    let refuse = vec![(&*path, 404, problem("not_found", 404, "there is no such sandbox"))];
    let mock = Mock::start(Script { refuse, ..Script::default() }).await;
    insta::assert_snapshot!(text(&mock.output(&["get", SANDBOX]).await).2, @r"
    space: there is no such sandbox (not_found)
      hint: `space ls` lists the sandboxes that your key can see
    ");
    let (code, _, json) = text(&mock.output(&["get", SANDBOX, "--json"]).await);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, json["error"]["code"].as_str()), (Some(1), Some("not_found")));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_as_such() {
    let output = space("http://127.0.0.1:1").args(["exec", "-n", SANDBOX, "x"]).output();
    let (code, _, stderr) = text(&output.await.unwrap());
    assert_eq!(code, Some(125));
    assert!(stderr.starts_with("space: no answer from http://127.0.0.1:1/: Connection refused"), "{stderr}");
    assert!(stderr.contains("hint: is it running?"), "{stderr}");
}

#[tokio::test]
async fn a_wrong_call_of_exec_is_not_taken_for_the_commands_code() {
    let mock = Mock::start(Script::default()).await;
    assert_eq!(mock.output(&["exec", "sbx_1", "x"]).await.status.code(), Some(125));
    assert_eq!(mock.output(&["exec", SANDBOX, "--cwd", "relative", "x"]).await.status.code(), Some(125));
    assert_eq!(mock.output(&["get", "sbx_1"]).await.status.code(), Some(2));
    assert_eq!(mock.requests().len(), 0);
}

#[tokio::test]
async fn lists_and_details_are_as_they_were() {
    let mock = Mock::start(Script::default()).await;
    let (_, list, _) = text(&mock.output(&["ls"]).await);
    let (_, detail, _) = text(&mock.output(&["get", SANDBOX]).await);
    insta::assert_snapshot!(format!("{list}\n{detail}"));
}

#[tokio::test]
async fn the_key_is_sent_and_posts_can_be_repeated() {
    let mock = Mock::start(Script::default()).await;
    let output = mock.output(&["create", "--memory", "1024", "--sandbox-env", "A=b"]).await;
    assert_eq!(text(&output), (Some(0), format!("{SANDBOX}\n"), String::new()));
    let create = &mock.seen()[0];
    assert_eq!(create.authorization.as_deref(), Some("Bearer test-key"));
    assert!(create.idempotency_key.as_ref().is_some_and(|key| key.len() == 32));
    assert_eq!(create.body["memory_mib"], 1024);
    assert_eq!(create.body["env"], json!({ "A": "b" }));
}

#[tokio::test]
async fn a_command_is_started_and_left() {
    let steps = || vec![created(), event("1.1", "started", &json!({ "pid": 7 })), Step::UntilSignal(1)];
    let running = kit::command(COMMAND, "running", 1);
    let mock = Mock::start(Script { commands: vec![running], ..script(steps()) }).await;
    let output = mock.output(&["exec", "--detach", SANDBOX, "--", "sleep", "60"]).await;
    assert_eq!(text(&output), (Some(0), format!("{COMMAND}\n"), String::new()));
    let body = &mock.seen()[0].body;
    assert_eq!(body, &json!({ "argv": ["sleep", "60"], "stdin": false }), "nobody is there to give it input");
    assert_eq!(mock.requests().len(), 1, "and nothing ends it");
    let (code, json, _) = text(&mock.output(&["exec", "--detach", "--json", SANDBOX, "x"]).await);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (code, json["id"].as_str(), json["state"].as_str()),
        (Some(0), Some(COMMAND), Some("running"))
    );
}

#[tokio::test]
async fn run_leaves_a_command_in_its_sandbox() {
    let steps = vec![created(), event("1.1", "started", &json!({ "pid": 7 })), Step::UntilSignal(1)];
    let mock = Mock::start(script(steps)).await;
    let output = mock.output(&["run", "-d", "--", "sleep", "60"]).await;
    let kept = format!("space: kept {SANDBOX}\n");
    assert_eq!(text(&output), (Some(0), format!("{SANDBOX} {COMMAND}\n"), kept));
    assert!(mock.requests().iter().all(|request| !request.starts_with("DELETE")), "{:?}", mock.requests());
}

#[tokio::test]
async fn what_can_not_be_started_is_not_left() {
    let failed = json!({ "code": 127, "error": "no such file" });
    let mock = Mock::start(script(vec![created(), exit("1.1", &failed)])).await;
    let told = "space: cannot start the command: no such file\n";
    let output = mock.output(&["exec", "-d", SANDBOX, "x"]).await;
    assert_eq!(text(&output), (Some(127), String::new(), told.into()));
    let output = mock.output(&["run", "-d", "x"]).await;
    assert_eq!(text(&output), (Some(127), String::new(), told.into()));
    assert!(mock.requests().pop().unwrap().starts_with("DELETE"), "its sandbox goes");
}
