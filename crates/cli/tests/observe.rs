//! `space` alone, `ps`, `logs` and `top`, against a server that plays a script.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod kit;

use std::process::Output;

use kit::{COMMAND, Mock, PROJECT, SANDBOX, Script, Step, command, event, problem, sandbox, space};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

const OLDER: &str = "cmd_01920000000070008000000000000009";

fn text(output: &Output) -> (Option<i32>, String, String) {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), lossy(&output.stdout), lossy(&output.stderr))
}

fn out(id: &str, base64: &str) -> Step {
    event(id, "stdout", &json!({ "offset": 0, "data": base64 }))
}

/// `a` and `b` on stdout, `e` on stderr, and an exit with 3.
fn events() -> Vec<Step> {
    vec![
        event("1.1", "started", &json!({ "pid": 7 })),
        out("1.2", "YQ=="),
        event("1.3", "stderr", &json!({ "offset": 0, "data": "ZQ==" })),
        out("1.4", "Yg=="),
        event("1.5", "exit", &json!({ "code": 3 })),
    ]
}

async fn logs_mock(command: Value, attach: Vec<Step>) -> Mock {
    Mock::start(Script { commands: vec![command], attach, ..Script::default() }).await
}

#[tokio::test]
async fn alone_it_says_what_to_do_with_what_there_is() {
    let none = Mock::start(Script { sandboxes: Some(Vec::new()), ..Script::default() }).await;
    let refuse = vec![("GET /v1/sandboxes", 401, problem("unauthorized", 401, "no such key"))];
    let refused = Mock::start(Script { refuse, ..Script::default() }).await;
    let some = Mock::start(Script::default()).await;
    let stopped =
        Mock::start(Script { sandboxes: Some(vec![sandbox("stopped")]), ..Script::default() }).await;
    let mut shown = Vec::new();
    for mock in [&none, &refused, &some, &stopped] {
        let (code, stdout, stderr) = text(&mock.output(&[]).await);
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        assert!(stdout.lines().count() <= 12, "{stdout}");
        assert_eq!(mock.requests(), ["GET /v1/sandboxes"], "one look");
        shown.push(stdout.replace(&mock.url, "URL"));
    }
    insta::assert_snapshot!(shown.join("═══\n"));
    let (_, stdout, _) = text(&some.output(&["--json"]).await);
    let facts: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (facts["server"].as_str(), facts["sandboxes"][0]["id"].as_str()),
        (Some("reachable"), Some(SANDBOX))
    );
    assert_eq!(facts["next"][1], format!("space shell {SANDBOX}"));
}

#[tokio::test]
async fn alone_without_a_server_it_says_how_to_get_one() {
    let (code, stdout, _) = text(&space("http://127.0.0.1:1").output().await.unwrap());
    assert_eq!(code, Some(0));
    assert!(stdout.starts_with("no answer from http://127.0.0.1:1/: Connection refused"), "{stdout}");
    assert!(
        ["sudo space up", "space doctor", "SPACE_URL"].iter().all(|step| stdout.contains(step)),
        "{stdout}"
    );
}

#[tokio::test]
async fn alone_it_does_not_wait_for_a_server_that_says_nothing() {
    // The kernel takes the connection, and nobody answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let (begun, output) = (std::time::Instant::now(), space(&url).arg("--json").output().await.unwrap());
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "far less than an answer's deadline");
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), facts["server"].as_str()), (Some(0), Some("away")));
}

#[tokio::test]
async fn ps_lists_what_a_sandbox_remembers() {
    let mut ended = command(OLDER, "exited", 9);
    ended["exit"] = json!({ "signal": 9, "timed_out": false });
    let commands = vec![command(COMMAND, "running", 4), ended];
    let mock = Mock::start(Script { commands: commands.clone(), ..Script::default() }).await;
    insta::assert_snapshot!(text(&mock.output(&["ps", SANDBOX]).await).1);
    let listed: Value =
        serde_json::from_slice(&mock.output(&["ps", "--json", SANDBOX]).await.stdout).unwrap();
    assert_eq!((listed[0]["id"].as_str(), &listed[1]["exit"]["signal"]), (Some(COMMAND), &json!(9)));
}

#[tokio::test]
async fn logs_of_the_newest_command_come_on_their_own_streams() {
    let mut older = command(OLDER, "exited", 5);
    older["started_at"] = json!("2026-01-31T06:00:00.000Z");
    let commands = vec![older, command(COMMAND, "exited", 5)];
    let mock = Mock::start(Script { commands, attach: events(), ..Script::default() }).await;
    let output = mock.output(&["logs", SANDBOX]).await;
    assert_eq!(
        text(&output),
        (Some(0), "ab".into(), "e".into()),
        "without --follow its code is not the command's"
    );
    let read = mock.seen().pop().unwrap();
    assert_eq!(read.request, format!("GET /v1/sandboxes/{SANDBOX}/commands/{COMMAND}/attach"));
    assert_eq!((read.authorization.as_deref(), read.last_event_id), (Some("Bearer test-key"), None));
}

#[tokio::test]
async fn logs_of_a_command_that_runs_end_behind_what_there_was() {
    let mut attach = events();
    attach.insert(3, Step::UntilSignal(9));
    let mock = logs_mock(command(COMMAND, "running", 3), attach).await;
    let output = mock.output(&["logs", SANDBOX, COMMAND]).await;
    assert_eq!(text(&output), (Some(0), "a".into(), "e".into()));
}

#[tokio::test]
async fn logs_followed_go_on_to_the_exit_and_end_as_the_command_did() {
    let mock = logs_mock(command(COMMAND, "running", 2), events()).await;
    let output = mock.output(&["logs", "--follow", SANDBOX, COMMAND]).await;
    assert_eq!(text(&output), (Some(3), "ab".into(), "e".into()));
}

#[tokio::test]
async fn logs_go_on_behind_an_event() {
    let mock = logs_mock(command(COMMAND, "running", 3), events()[2..].to_vec()).await;
    let output = mock.output(&["logs", "--since-event", "1.2", SANDBOX, COMMAND]).await;
    assert_eq!(text(&output), (Some(0), String::new(), "e".into()));
    assert_eq!(mock.seen().pop().unwrap().last_event_id.as_deref(), Some("1.2"));
}

#[tokio::test]
async fn logs_behind_the_last_event_are_empty_and_end() {
    let mock = logs_mock(command(COMMAND, "exited", 5), events()[4..].to_vec()).await;
    let output = mock.output(&["logs", "-f", "--since-event", "1.5", SANDBOX, COMMAND]).await;
    assert_eq!(text(&output), (Some(3), String::new(), String::new()));
    assert_eq!(
        mock.seen().pop().unwrap().last_event_id.as_deref(),
        Some("1.4"),
        "its exit is asked for again"
    );
}

#[tokio::test]
async fn logs_that_are_lost_are_told_and_can_be_the_end() {
    let gap = json!({ "first_lost": 1, "last_lost": 4, "stdout_bytes": 9, "stderr_bytes": 2 });
    let mock = logs_mock(command(COMMAND, "running", 4), vec![event("1.4", "gap", &gap)]).await;
    let (code, stdout, stderr) = text(&mock.output(&["logs", SANDBOX, COMMAND]).await);
    assert_eq!((code, stdout.as_str()), (Some(0), ""));
    assert!(stderr.contains("lost 9 bytes of stdout and 2 of stderr"), "{stderr}");
}

#[tokio::test]
async fn logs_start_nothing() {
    let mock = logs_mock(command(COMMAND, "created", 0), Vec::new()).await;
    let (code, _, stderr) = text(&mock.output(&["logs", "-f", SANDBOX, COMMAND]).await);
    assert!(code == Some(125) && stderr.contains("has not been started"), "{stderr}");
    assert_eq!(mock.output(&["logs", SANDBOX]).await.status.code(), Some(125), "nor is it the newest");
    assert!(!mock.requests().iter().any(|request| request.ends_with("attach")), "{:?}", mock.requests());
}

#[tokio::test]
async fn logs_that_are_interrupted_say_how_to_go_on_and_leave_the_command_alone() {
    let attach = vec![out("1.2", "cmVhZHkK"), Step::UntilSignal(9)];
    let mock = logs_mock(command(COMMAND, "running", 2), attach).await;
    let mut child = mock.space(&["logs", "-f", SANDBOX]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).await.unwrap();
    kill(Pid::from_raw(child.id().unwrap().try_into().unwrap()), Signal::SIGINT).unwrap();
    let (code, _, stderr) = text(&child.wait_with_output().await.unwrap());
    assert_eq!((line.as_str(), code), ("ready\n", Some(130)));
    assert!(stderr.contains(&format!("space logs {SANDBOX} {COMMAND} --since-event 1.2")), "{stderr}");
    assert!(!mock.requests().iter().any(|request| request.ends_with("signal")));
}

#[tokio::test]
async fn top_is_one_look_where_there_is_no_terminal() {
    let mock = Mock::start(Script::default()).await;
    let (code, stdout, _) = text(&mock.output(&["top"]).await);
    assert_eq!((code, mock.requests()), (Some(0), vec!["GET /v1/sandboxes".to_owned()]));
    let row: Vec<_> = stdout.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..4], [SANDBOX, "running", "1×512", "base:latest"]);
    let listed: Value = serde_json::from_slice(&mock.output(&["top", "--json"]).await.stdout).unwrap();
    assert_eq!(listed[0]["id"], SANDBOX);
}

#[tokio::test]
async fn top_of_a_sandbox_lists_its_processes() {
    // 9, then `5 0 root 1.5 2048 a ESC [2J`.
    let result = json!({
        "command_id": COMMAND, "exit": { "code": 0 }, "stdout": "OQo1IDAgcm9vdCAxLjUgMjA0OCBhG1sySgo=", "stderr": "",
        "stdout_truncated": false, "stderr_truncated": false,
    });
    let mock = Mock::start(Script { result: Some(result), ..Script::default() }).await;
    let (code, stdout, _) = text(&mock.output(&["top", SANDBOX]).await);
    assert_eq!(code, Some(0));
    assert_eq!(stdout, "PID  USER  %CPU  MEMORY  COMMAND\n5    root  1.5   2 MiB   a\u{fffd}[2J\n");
    assert_eq!(mock.seen()[0].body["timeout_seconds"], 10);
    let seen: Value = serde_json::from_slice(&mock.output(&["top", SANDBOX, "--json"]).await.stdout).unwrap();
    assert_eq!((&seen["processes"][0]["pid"], &seen["truncated"]), (&json!(5), &json!(false)));
}

#[tokio::test]
async fn usage_is_shown_by_day_and_together() {
    let day = |day: &str, seconds: u64| {
        json!({
            "project_id": PROJECT, "day": day, "sandbox_seconds": seconds, "vcpu_seconds": 2 * seconds,
            "memory_mib_seconds": 512 * seconds, "disk_mib_seconds": 20_480 * seconds, "creates": 3, "later_field": 1,
        })
    };
    let usage = vec![day("2026-01-30", 40), day("2026-01-31", 86_400)];
    let mock = Mock::start(Script { usage, ..Script::default() }).await;
    insta::assert_snapshot!(text(&mock.output(&["usage"]).await).1, @r"
    DAY         PROJECT                               CREATES  SANDBOXES  VCPUS   MEMORY      DISK
    2026-01-30  prj_01920000000070008000000000000004  3        40s        1m20s   5.6 MiB·h   227.5 MiB·h
    2026-01-31  prj_01920000000070008000000000000004  3        24h00m     48h00m  12.0 GiB·h  480.0 GiB·h
    TOTAL                                             6        24h00m     48h01m  12.0 GiB·h  480.2 GiB·h
    ");
    assert_eq!(mock.seen()[0].query, "");
    let asked = mock
        .output(&["usage", "--from", "2026-01-30", "--to", "2026-01-31", "--project", "red", "--json"])
        .await;
    let json: Value = serde_json::from_slice(&asked.stdout).unwrap();
    assert_eq!((&json["from"], &json["items"][1]["sandbox_seconds"]), (&json!("2026-01-30"), &json!(86_400)));
    let query = mock.seen().pop().unwrap().query;
    assert_eq!(query, format!("project_id={PROJECT}&from=2026-01-30&to=2026-01-31"));
}
