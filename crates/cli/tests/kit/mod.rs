//! A server that says what a test tells it to, and remembers what it was asked.

#![allow(dead_code, unused_imports, reason = "each test file uses its own part")]

pub(crate) mod edge;
mod ports;
mod terminal;

use std::{
    process::{Output, Stdio},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{State, ws::WebSocketUpgrade, ws::rejection::WebSocketUpgradeRejection},
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::{net::TcpListener, process::Command, sync::watch};

pub(crate) const SANDBOX: &str = "sbx_01920000000070008000000000000001";
pub(crate) const COMMAND: &str = "cmd_01920000000070008000000000000002";
pub(crate) const OPERATION: &str = "op_01920000000070008000000000000003";
pub(crate) const PROJECT: &str = "prj_01920000000070008000000000000004";
const TENANT: &str = "tnt_01920000000070008000000000000005";
const DIGEST: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
const TIME: &str = "2026-01-31T07:00:00.000Z";

/// What a stream does next.
#[derive(Clone)]
pub(crate) enum Step {
    Send(String),
    /// The connection breaks.
    Break,
    /// Nothing, until so many signals have arrived.
    UntilSignal(u32),
    /// Nothing, until standard input was closed.
    UntilEof,
}

#[derive(Clone, Default)]
pub(crate) struct Script {
    pub(crate) exec: Vec<Step>,
    pub(crate) attach: Vec<Step>,
    /// What `exec` answers to who wants no stream.
    pub(crate) result: Option<Value>,
    /// The commands that the sandbox remembers.
    pub(crate) commands: Vec<Value>,
    /// All sandboxes; one that runs when absent.
    pub(crate) sandboxes: Option<Vec<Value>>,
    /// Answers these requests (`METHOD path`) with a problem.
    pub(crate) refuse: Vec<(&'static str, u16, Value)>,
    /// What each connection to the terminal does, one after the other.
    pub(crate) terminal: Vec<Vec<Turn>>,
    /// Scheme and port of the edge that serves the sandbox's ports.
    pub(crate) edge: (&'static str, u16),
    pub(crate) public_ports: Vec<u16>,
    /// What the sandboxes held.
    pub(crate) usage: Vec<Value>,
    /// Bytes of stdin that are taken at once.
    pub(crate) stdin_room: usize,
}

#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) request: String,
    pub(crate) query: String,
    pub(crate) last_event_id: Option<String>,
    pub(crate) authorization: Option<String>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) body: Value,
}

struct Shared {
    script: Script,
    seen: Mutex<Vec<Seen>>,
    stdin: Mutex<Vec<u8>>,
    signals: watch::Sender<u32>,
    connections: Mutex<usize>,
    /// Tokens of ports that were made.
    tokens: Mutex<u32>,
    sizes: Mutex<Vec<(u32, u32)>>,
    eof: watch::Sender<bool>,
}

pub(crate) use terminal::Turn;

#[derive(Clone)]
pub(crate) struct Mock {
    pub(crate) url: String,
    shared: Arc<Shared>,
}

impl Mock {
    pub(crate) async fn start(script: Script) -> Self {
        let shared = Arc::new(Shared {
            script,
            seen: Mutex::default(),
            stdin: Mutex::default(),
            signals: watch::channel(0).0,
            connections: Mutex::default(),
            tokens: Mutex::default(),
            sizes: Mutex::default(),
            eof: watch::channel(false).0,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, shared }
    }

    /// The client, pointed at this server.
    pub(crate) fn space(&self, arguments: &[&str]) -> Command {
        let mut command = space(&self.url);
        command.args(arguments);
        command
    }

    pub(crate) async fn output(&self, arguments: &[&str]) -> Output {
        self.space(arguments).output().await.unwrap()
    }

    /// `METHOD path` of each request, in order.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.request).collect()
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// The sizes that terminals were given, in order.
    pub(crate) fn sizes(&self) -> Vec<(u32, u32)> {
        self.shared.sizes.lock().unwrap().clone()
    }

    pub(crate) fn stdin(&self) -> Vec<u8> {
        self.shared.stdin.lock().unwrap().clone()
    }
}

/// The client with nothing of this process's surroundings.
pub(crate) fn space(url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_space"));
    command.env_clear().env("SPACE_URL", url).env("SPACE_API_KEY", "test-key");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

pub(crate) fn event(id: &str, name: &str, data: &Value) -> Step {
    Step::Send(format!("id: {id}\nevent: {name}\ndata: {data}\n\n"))
}

/// The first event of `exec`.
pub(crate) fn created() -> Step {
    Step::Send(format!("event: command\ndata: {}\n\n", created_body()))
}

fn created_body() -> Value {
    json!({
        "command": {
            "id": COMMAND, "sandbox_id": SANDBOX, "argv": ["x"], "env_names": [], "stdin": true,
            "state": "created", "last_sequence": 0, "created_at": TIME,
        },
        "attach": { "url": format!("/v1/sandboxes/{SANDBOX}/commands/{COMMAND}/attach"), "token": "attach-token", "expires_at": TIME },
    })
}

pub(crate) fn problem(code: &str, status: u16, detail: &str) -> Value {
    json!({ "type": format!("/problems/{code}"), "title": "t", "status": status, "code": code, "detail": detail, "request_id": "req-1" })
}

pub(crate) fn sandbox(state: &str) -> Value {
    json!({
        "id": SANDBOX, "project_id": PROJECT, "state": state, "template": { "name": "base", "tag": "latest", "digest": DIGEST },
        "vcpus": 1, "memory_mib": 512, "disk_mib": 2048, "env_names": ["A"], "labels": { "team": "red" },
        "created_at": TIME, "later_field": true,
    })
}

/// A command that was made by somebody else.
pub(crate) fn command(id: &str, state: &str, last_sequence: u64) -> Value {
    json!({
        "id": id, "sandbox_id": SANDBOX, "argv": ["sh", "-c", "echo a\u{1b}[2J; exit 3"], "env_names": [], "stdin": false,
        "state": state, "last_sequence": last_sequence, "created_at": TIME, "started_at": TIME,
    })
}

fn operation(status: &str) -> Value {
    json!({ "id": OPERATION, "kind": "create", "sandbox_id": SANDBOX, "status": status, "created_at": TIME })
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    body: Bytes,
) -> Response {
    let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let request = format!("{method} {}", uri.path());
    shared.seen.lock().unwrap().push(Seen {
        request: request.clone(),
        query: uri.query().unwrap_or_default().to_owned(),
        last_event_id: header("last-event-id"),
        authorization: header("authorization"),
        idempotency_key: header("idempotency-key"),
        body: body.clone(),
    });
    if let Some((_, status, problem)) =
        shared.script.refuse.iter().find(|(refused, _, _)| *refused == request)
    {
        return (StatusCode::from_u16(*status).unwrap(), problem.to_string()).into_response();
    }
    if uri.path().contains("/ports") {
        return ports::answer(&shared, method.as_str(), uri.path(), &body);
    }
    match (method.as_str(), uri.path().rsplit('/').next().unwrap()) {
        ("POST", "exec") if shared.script.result.is_some() => {
            json!(shared.script.result).to_string().into_response()
        }
        ("POST", "exec") => stream(shared.clone(), shared.script.exec.clone()),
        ("GET", "attach") => stream(shared.clone(), shared.script.attach.clone()),
        ("POST", "commands") => (StatusCode::CREATED, created_body().to_string()).into_response(),
        ("GET", "terminal") => {
            terminal::open(shared.clone(), upgrade.unwrap(), uri.query().unwrap_or_default())
        }
        ("POST", "stdin") => stdin(&shared, &body),
        ("POST", "signal") => {
            shared.signals.send_modify(|count| *count += 1);
            StatusCode::NO_CONTENT.into_response()
        }
        ("POST", "sandboxes") => both("creating", "running"),
        ("DELETE", SANDBOX) => both("deleting", "running"),
        ("GET", OPERATION) => operation("succeeded").to_string().into_response(),
        ("GET", "sandboxes") => {
            let items = shared.script.sandboxes.clone().unwrap_or_else(|| vec![sandbox("running")]);
            json!({ "items": items }).to_string().into_response()
        }
        ("GET", "commands") => json!({ "items": shared.script.commands }).to_string().into_response(),
        ("GET", id) if id.starts_with("cmd_") => {
            let mut commands = shared.script.commands.iter();
            commands.find(|command| command["id"] == id).unwrap().to_string().into_response()
        }
        ("GET", "usage") => json!({ "from": "2026-01-30", "to": "2026-01-31", "items": shared.script.usage })
            .to_string()
            .into_response(),
        ("GET", "projects") => {
            let items = [
                json!({ "id": PROJECT, "tenant_id": TENANT, "name": "red", "is_default": false, "created_at": TIME }),
            ];
            json!({ "items": items }).to_string().into_response()
        }
        ("GET", SANDBOX) => sandbox("running").to_string().into_response(),
        (method, path) => panic!("not expected: {method} {path}"),
    }
}

fn both(state: &str, status: &str) -> Response {
    let body = json!({ "sandbox": sandbox(state), "operation": operation(status) });
    (StatusCode::ACCEPTED, body.to_string()).into_response()
}

/// Takes as much as there is room for, and refuses a hole.
fn stdin(shared: &Shared, body: &Value) -> Response {
    let mut taken = shared.stdin.lock().unwrap();
    let write: space_api::commands::WriteStdin = serde_json::from_value(body.clone()).unwrap();
    assert_eq!(write.offset, taken.len() as u64, "a hole or a repetition");
    let room = shared.script.stdin_room.min(write.data.len());
    taken.extend(&write.data.0[..room]);
    if write.eof && room == write.data.len() {
        shared.eof.send_replace(true);
    }
    json!({ "next_offset": taken.len() }).to_string().into_response()
}

fn stream(shared: Arc<Shared>, steps: Vec<Step>) -> Response {
    let bytes = stream::iter(steps).then(move |step| {
        let shared = shared.clone();
        async move {
            match step {
                Step::Send(text) => Ok(Bytes::from(text)),
                Step::Break => {
                    // A server flushes when a body has nothing ready; only then has the client seen the rest.
                    tokio::task::yield_now().await;
                    Err(std::io::Error::other("broken on purpose"))
                }
                Step::UntilSignal(count) => {
                    shared.signals.subscribe().wait_for(|seen| *seen >= count).await.unwrap();
                    Ok(Bytes::from_static(b": waited\n"))
                }
                Step::UntilEof => {
                    shared.eof.subscribe().wait_for(|eof| *eof).await.unwrap();
                    Ok(Bytes::from_static(b": waited\n"))
                }
            }
        }
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(bytes)).into_response()
}
