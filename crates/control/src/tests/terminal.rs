//! Commands over a WebSocket, spoken to byte by byte.

use futures::{SinkExt as _, StreamExt as _};
use http::{HeaderName, header};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Error, Message, client::IntoClientRequest as _},
};

use super::kit::{Client, PATIENCE, World};

const PROTOCOL: &str = "space.terminal.v1";

struct Made {
    path: String,
    token: String,
}

async fn make(world: &World, argv: Value) -> Made {
    let sandbox = world.running().await;
    let path = format!("/v1/sandboxes/{sandbox}/commands");
    let mut body = json!({"argv": argv, "stdin": true});
    if body["argv"][0] == "tty" {
        body["terminal"] = json!({"rows": 24, "columns": 80});
    }
    let created = world.admin.post(&path, &body).await.expect(201);
    Made {
        path: format!("{path}/{}", created["command"]["id"].as_str().unwrap()),
        token: created["attach"]["token"].as_str().unwrap().to_owned(),
    }
}

/// What a server said, in the order that it did.
#[derive(Debug, PartialEq)]
enum Said {
    Output(Vec<u8>, String),
    Text(Value),
    Closed(u16),
    Lost,
}

#[derive(Debug)]
struct Socket {
    stream: WebSocketStream<TcpStream>,
    /// Bytes of input that were said to be taken.
    counted: u64,
}

/// Status of a refused upgrade.
async fn try_open(world: &World, path: &str, fields: &[(HeaderName, &str)]) -> Result<Socket, u16> {
    let address = world.server.http_address();
    let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
    for (name, value) in fields {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let stream = TcpStream::connect(address).await.unwrap();
    match client_async(request, stream).await {
        Ok((socket, response)) => {
            assert_eq!(response.headers()[header::SEC_WEBSOCKET_PROTOCOL], PROTOCOL);
            Ok(Socket { stream: socket, counted: 0 })
        }
        Err(Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

/// With the command's token and nothing else.
async fn open(world: &World, made: &Made, query: &str) -> Socket {
    let path = format!("{}/terminal?token={}{query}", made.path, made.token);
    try_open(world, &path, &[(header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL)]).await.unwrap()
}

impl Socket {
    async fn next(&mut self) -> Said {
        loop {
            let message =
                tokio::time::timeout(PATIENCE, self.stream.next()).await.expect("nothing came in time");
            return match message {
                Some(Ok(Message::Binary(message))) => {
                    let number = |at: usize| u64::from_be_bytes(message[at..at + 8].try_into().unwrap());
                    assert_eq!(message[0], 1, "it is stdout");
                    Said::Output(message[17..].to_vec(), format!("{}.{}", number(1), number(9)))
                }
                Some(Ok(Message::Text(text))) => self.text(&text),
                Some(Ok(Message::Close(frame))) => Said::Closed(frame.map_or(0, |frame| frame.code.into())),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                Some(Err(_)) | None => Said::Lost,
            };
        }
    }

    fn text(&mut self, text: &str) -> Said {
        let text: Value = serde_json::from_str(text).unwrap();
        if text["type"] == "input" {
            self.counted = text["next_offset"].as_u64().unwrap();
        }
        Said::Text(text)
    }

    /// Waits until so much input is said to be taken.
    async fn counts(&mut self, count: u64) {
        while self.counted < count {
            let said = self.next().await;
            assert!(matches!(said, Said::Text(_)), "{said:?}");
        }
        assert_eq!(self.counted, count);
    }

    /// The next of a kind; counts of input come when they like.
    async fn next_but_counts(&mut self) -> Said {
        loop {
            let said = self.next().await;
            if !matches!(&said, Said::Text(text) if text["type"] == "input") {
                return said;
            }
        }
    }

    /// Output up to and with `text`, in however many pieces; the last position.
    async fn output(&mut self, text: &str) -> String {
        let mut all = Vec::new();
        loop {
            match self.next_but_counts().await {
                Said::Output(bytes, position) => {
                    all.extend(bytes);
                    if all == text.as_bytes() {
                        return position;
                    }
                    assert!(text.as_bytes().starts_with(&all), "{:?} for {text:?}", String::from_utf8(all));
                }
                Said::Text(text) if text["type"] == "started" => assert_eq!(text["id"], "1.1"),
                other @ (Said::Text(_) | Said::Closed(_) | Said::Lost) => panic!("{other:?} for {text:?}"),
            }
        }
    }

    async fn type_in(&mut self, keys: &[u8]) {
        self.stream.send(Message::binary(keys.to_vec())).await.unwrap();
    }

    async fn say(&mut self, text: &Value) {
        self.stream.send(Message::text(text.to_string())).await.unwrap();
    }

    async fn refusal(&mut self) -> (Value, Value) {
        match self.next_but_counts().await {
            Said::Text(text) if text["type"] == "refused" => {
                (text["wish"].clone(), text["problem"]["code"].clone())
            }
            other @ (Said::Text(_) | Said::Output(..) | Said::Closed(_) | Said::Lost) => {
                panic!("{other:?} is no refusal")
            }
        }
    }
}

async fn state(world: &World, made: &Made) -> Value {
    world.admin.get(&made.path).await.expect(200)["state"].clone()
}

#[tokio::test]
async fn a_terminal_goes_both_ways_and_ends_with_its_command() {
    let world = World::start().await;
    let _node = world.node().await;
    let made = make(&world, json!(["tty"])).await;
    let described = world.admin.get(&made.path).await.expect(200);
    assert_eq!((&described["terminal"]["rows"], &described["stdin"]), (&json!(24), &json!(true)));
    let mut socket = open(&world, &made, "").await;
    assert_eq!(socket.next().await, Said::Text(json!({"type": "started", "id": "1.1", "pid": 2})));
    assert_eq!(socket.output("24 80\n").await, "1.2");
    socket.say(&json!({"type": "resize", "rows": 50, "columns": 132})).await;
    assert_eq!(socket.output("50 132\n").await, "1.3");
    socket.type_in(b"\x00hi\x7f").await;
    socket.output("\x00hi\x7f").await;
    socket.counts(4).await;
    socket.type_in(b"\x04").await;
    socket.output("\x04").await;
    let Said::Text(exit) = socket.next_but_counts().await else { panic!("no exit") };
    assert_eq!((&exit["type"], &exit["id"], &exit["code"]), (&json!("exit"), &json!("1.6"), &json!(0)));
    assert_eq!(socket.next_but_counts().await, Said::Closed(1000));
}

#[tokio::test]
async fn nobody_gets_in_without_being_let_in() {
    let world = World::start().await;
    let _node = world.node().await;
    let other = world.tenant("other").await;
    let made = make(&world, json!(["tty"])).await;
    let path = format!("{}/terminal", made.path);
    let offer = (header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL);
    let [ours, theirs] = [&world.admin.key, &other.key].map(|key| format!("Bearer {key}"));
    let key = |value| [offer.clone(), (header::AUTHORIZATION, value)];
    assert_eq!(try_open(&world, &path, std::slice::from_ref(&offer)).await.unwrap_err(), 401);
    assert_eq!(try_open(&world, &path, &key("Bearer nonsense")).await.unwrap_err(), 401);
    assert_eq!(try_open(&world, &path, &key(theirs.as_str())).await.unwrap_err(), 404);
    let forged = format!("{path}?token=space_attach_{}", "A".repeat(140));
    assert_eq!(try_open(&world, &forged, std::slice::from_ref(&offer)).await.unwrap_err(), 401);
    assert_eq!(state(&world, &made).await, "created", "a refused upgrade starts nothing");
    assert!(try_open(&world, &path, &key(ours.as_str())).await.is_ok());
    // The token by header, as SSE takes it.
    let token = format!("Bearer {}", made.token);
    assert!(try_open(&world, &path, &key(token.as_str())).await.is_ok());
}

#[tokio::test]
async fn a_page_of_another_origin_gets_in_with_a_token_alone() {
    let world = World::start().await;
    let _node = world.node().await;
    let made = make(&world, json!(["tty"])).await;
    let path = format!("{}/terminal", made.path);
    let (key, own) = (format!("Bearer {}", world.admin.key), world.admin.base.clone());
    let fields = |origin| {
        [
            (header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL),
            (header::AUTHORIZATION, key.as_str()),
            (header::ORIGIN, origin),
        ]
    };
    assert_eq!(try_open(&world, &path, &fields("https://evil.example")).await.unwrap_err(), 403);
    assert!(try_open(&world, &path, &fields(own.as_str())).await.is_ok());
    let by_token = format!("{path}?token={}", made.token);
    assert!(try_open(&world, &by_token, &fields("https://evil.example")).await.is_ok());
}

#[tokio::test]
async fn what_is_no_upgrade_to_the_protocol_is_refused() {
    let world = World::start().await;
    let _node = world.node().await;
    let made = make(&world, json!(["tty"])).await;
    let path = format!("{}/terminal", made.path);
    world.admin.get(&path).await.problem(400, "invalid_request");
    world.admin.get(&format!("{path}?afer=1.2")).await.problem(422, "unknown_field");
    let with = |query: &str| format!("{path}?token={}{query}", made.token);
    let offer = |protocol| [(header::SEC_WEBSOCKET_PROTOCOL, protocol)];
    assert_eq!(try_open(&world, &with(""), &offer("space.terminal.v9")).await.unwrap_err(), 422);
    assert_eq!(try_open(&world, &with("&after=x"), &offer(PROTOCOL)).await.unwrap_err(), 422);
    assert_eq!(try_open(&world, &with("&input_offset=-1"), &offer(PROTOCOL)).await.unwrap_err(), 422);
    let never = made.path.rsplit_once('/').unwrap().0.to_owned();
    let never = format!("{never}/{}/terminal", space_types::CommandId::new());
    let key = format!("Bearer {}", world.admin.key);
    let fields = [(header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL), (header::AUTHORIZATION, key.as_str())];
    assert_eq!(try_open(&world, &never, &fields).await.unwrap_err(), 404);
}

#[tokio::test]
async fn after_a_cut_nothing_is_lost_or_doubled() {
    let world = World::start().await;
    let _node = world.node().await;
    let made = make(&world, json!(["tty"])).await;
    let mut socket = open(&world, &made, "&input_offset=0").await;
    let seen = socket.output("24 80\n").await;
    socket.type_in(b"ab").await;
    socket.output("ab").await;
    // Cut off without a word. The client has heard neither of the echo nor of all that was taken.
    drop(socket);
    let mut socket = open(&world, &made, &format!("&after={seen}&input_offset=1")).await;
    assert_eq!(socket.output("ab").await, "1.3");
    socket.type_in(b"bcd").await;
    assert_eq!(socket.output("cd").await, "1.4");
    socket.counts(4).await;
    drop(socket);
    // Without an offset what is typed goes behind all that was taken.
    let mut socket = open(&world, &made, "&after=1.4").await;
    socket.type_in(b"e").await;
    assert_eq!(socket.output("e").await, "1.5");
}

#[tokio::test]
async fn two_readers_see_the_same() {
    let world = World::start().await;
    let _node = world.node().await;
    let made = make(&world, json!(["tty"])).await;
    let mut writer = open(&world, &made, "").await;
    let mut reader = open(&world, &made, "").await;
    writer.type_in(b"hello").await;
    assert_eq!(writer.output("24 80\nhello").await, reader.output("24 80\nhello").await);
}

#[tokio::test]
async fn closing_ends_nothing_but_the_connection() {
    let world = World::start().await;
    let _node = world.node().await;
    let made = make(&world, json!(["tty"])).await;
    let mut socket = open(&world, &made, "").await;
    socket.output("24 80\n").await;
    socket.stream.close(None).await.unwrap();
    assert!(matches!(socket.next().await, Said::Closed(_) | Said::Lost));
    assert_eq!(state(&world, &made).await, "running");
}

#[tokio::test]
async fn what_a_client_must_not_say_closes_the_connection_and_nothing_else() {
    let world = World::start().await;
    let _node = world.node().await;
    let made = make(&world, json!(["tty"])).await;
    let table = [
        (Message::binary(vec![0; space_api::limits::STDIN_WRITE_BYTES + 1]), 1009),
        (Message::binary(vec![0; 1 << 20]), 1009),
        (Message::text("{\"type\":\"paste\"}"), 1008),
        (Message::text("{\"type\":\"eof\",\"now\":true}"), 1008),
        (Message::text("no JSON"), 1008),
    ];
    for (message, code) in table {
        let mut socket = open(&world, &made, "&after=1.2").await;
        // Of the largest one the server reads no more than the head.
        socket.stream.send(message).await.ok();
        let said = socket.next().await;
        assert!(said == Said::Closed(code) || (code == 1009 && said == Said::Lost), "{said:?} for {code}");
    }
    assert_eq!(state(&world, &made).await, "running");
}

#[tokio::test]
async fn a_terminal_survives_its_workers_restart() {
    let world = World::start().await;
    let node = world.node().await;
    let made = make(&world, json!(["tty"])).await;
    let mut socket = open(&world, &made, "&input_offset=0").await;
    socket.output("24 80\n").await;
    socket.type_in(b"one").await;
    assert_eq!(socket.output("one").await, "1.3");
    node.restart_workers().await.unwrap();
    socket.type_in(b"two").await;
    assert_eq!(socket.output("two").await, "1.4");
    socket.counts(6).await;
}

#[tokio::test]
async fn any_command_can_be_attached_to_in_both_directions() {
    let world = World::start().await;
    let _node = world.node().await;
    let made = make(&world, json!(["cat"])).await;
    let mut socket = open(&world, &made, "&input_offset=0").await;
    assert!(matches!(socket.next().await, Said::Text(text) if text["type"] == "started"));
    socket.say(&json!({"type": "resize", "rows": 1, "columns": 1})).await;
    assert_eq!(socket.refusal().await, (json!("resize"), json!("no_terminal")));
    socket.say(&json!({"type": "resize", "rows": 0, "columns": 1})).await;
    assert_eq!(socket.refusal().await, (json!("resize"), json!("invalid_field")));
    socket.type_in(b"hi").await;
    socket.output("hi").await;
    socket.say(&json!({"type": "eof"})).await;
    let Said::Text(exit) = socket.next_but_counts().await else { panic!("no exit") };
    assert_eq!((&exit["type"], &exit["code"]), (&json!("exit"), &json!(0)));
}

#[tokio::test]
async fn a_hole_in_the_input_is_refused_and_a_signal_still_goes_through() {
    let world = World::start().await;
    let _node = world.node().await;
    let made = make(&world, json!(["tty"])).await;
    let mut socket = open(&world, &made, "&input_offset=7").await;
    socket.output("24 80\n").await;
    socket.type_in(b"x").await;
    assert_eq!(socket.refusal().await, (json!("input"), json!("stdin_offset")));
    socket.say(&json!({"type": "signal", "signal": "TERM"})).await;
    let Said::Text(exit) = socket.next().await else { panic!("no exit") };
    assert_eq!((&exit["type"], &exit["signal"]), (&json!("exit"), &json!(15)));
}

#[tokio::test]
async fn a_size_is_also_given_by_a_request() {
    let world = World::start().await;
    let _node = world.node().await;
    let made = make(&world, json!(["tty"])).await;
    let resize = format!("{}/resize", made.path);
    let size = json!({"rows": 1, "columns": 4096});
    world.admin.post(&resize, &size).await.problem(409, "command_not_running");
    let mut socket = open(&world, &made, "").await;
    socket.output("24 80\n").await;
    let answer = world.admin.post(&resize, &size).await;
    assert_eq!(answer.status, 204);
    socket.output("1 4096\n").await;
    let bad = world.admin.post(&resize, &json!({"rows": 0, "columns": 80})).await;
    bad.problem(422, "invalid_field");
    assert_eq!(bad.body["field"], "rows");
    let pipe = make(&world, json!(["cat"])).await;
    world.admin.post(&format!("{}/resize", pipe.path), &size).await.problem(409, "no_terminal");
    let create = format!("/v1/sandboxes/{}/commands", world.running().await);
    let body = json!({"argv": ["sh"], "terminal": {"rows": 1, "columns": 4097}});
    let request = world.admin.request(Method::POST, &create).json(&body);
    let bad = Client::send(request).await;
    bad.problem(422, "invalid_field");
    assert_eq!(bad.body["field"], "terminal.columns");
}

#[tokio::test]
async fn a_server_that_goes_down_says_so() {
    let world = World::start().await;
    let _node = world.node().await;
    let made = make(&world, json!(["tty"])).await;
    let mut socket = open(&world, &made, "").await;
    socket.output("24 80\n").await;
    let stopped = tokio::spawn(world.stop());
    let Said::Text(error) = socket.next().await else { panic!("no error") };
    assert_eq!((&error["type"], &error["problem"]["code"]), (&json!("error"), &json!("shutting_down")));
    assert_eq!(socket.next().await, Said::Closed(1012));
    drop(socket);
    stopped.await.unwrap();
}

#[tokio::test]
async fn a_terminal_ends_with_an_error_when_its_sandbox_does() {
    let world = World::start().await;
    let _node = world.node().await;
    let made = make(&world, json!(["tty"])).await;
    let mut socket = open(&world, &made, "").await;
    socket.output("24 80\n").await;
    let sandbox = made.path.split('/').nth(3).unwrap();
    world.admin.delete(&format!("/v1/sandboxes/{sandbox}?wait=60")).await.expect(200);
    let Said::Text(error) = socket.next().await else { panic!("no error") };
    assert_eq!(error["problem"]["code"], "sandbox_not_running");
    assert_eq!(socket.next().await, Said::Closed(1011));
}
