//! `GET …/commands/{id}/terminal`: a command over a WebSocket, by `space_api::terminal`.
//!
//! ```text
//!   worker ──events──▶ outbound ──▶ socket         waits for a slow reader, and nothing else does
//!   socket ──▶ inbound ──pieces──▶ input  ──▶ worker    one write at a time, in order
//!                     └──sizes, signals──▶ wishes ──▶ worker
//! ```
//! Whichever of the two directions ends first ends the connection, and never the command. What waits in between is
//! bounded: eight pieces of input, eight signals, the latest size, the latest count of input that was taken.

mod outbound;

use crate::grants::Reach;
use std::{sync::Arc, time::Duration};

use axum::{
    extract::{
        FromRequestParts, State,
        ws::{
            CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code,
            rejection::WebSocketUpgradeRejection,
        },
    },
    response::Response,
};
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _, stream::SplitSink, stream::SplitStream};
use http::{HeaderMap, HeaderName, header, request::Parts};
use space_api::{
    FieldErrors, Problem, ProblemCode, Signal,
    commands::SignalCommand,
    limits,
    terminal::{ClientMessage, SUBPROTOCOL, ServerMessage, TerminalQuery, TerminalSize, Wish},
};
use space_types::{CommandId, SandboxId};
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

use self::outbound::Outbound;
use super::{
    commands::Attaching,
    extract::{Pairs, Query},
    problem::Failure,
};
use crate::app::{App, AppError, command_stream::Target, commands::Attacher, terminal::Input};

/// Longest message of a client. Beyond this it is not even read.
const MESSAGE: usize = 2 * limits::STDIN_WRITE_BYTES;
/// Of each socket, in each direction; most carry keys.
const BUFFER: usize = 8 * 1024;
/// Pieces of input, and signals, that wait for the guest. Nothing more is read from the socket then.
const WAITING: usize = 8;
/// Refusals that wait for the reader.
const REFUSALS: usize = 16;
/// A client that is there answers a ping, and one is sent three times as often.
const SILENCE: Duration = Duration::from_secs(3 * limits::HEARTBEAT_SECONDS);
/// What a client gets to answer a close.
const CLOSING: Duration = Duration::from_secs(5);
const LONGEST_REASON: usize = 100;

/// Attach to a command by WebSocket
///
/// Both directions of a command, on a terminal or not, by the subprotocol `space.terminal.v1`. Starts the command
/// unless it was started. The server sends binary messages (17 bytes of head: the stream, 1 stdout or 2 stderr;
/// generation and sequence, 8 bytes each, big-endian; then output) and text messages (`ServerMessage`), and a ping
/// every 15 s. The client sends binary messages (input, at most 32 KiB each) and text messages (`ClientMessage`);
/// anything else closes the connection with 1008, too much at once with 1009. Takes the attach token of the command
/// or a key. Closing neither stops nor blocks the command; `after` and `input_offset` resume exactly.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox_id}/commands/{command_id}/terminal", tag = "commands",
    params(("sandbox_id" = SandboxId, Path), ("command_id" = CommandId, Path), TerminalQuery,
        ("Sec-WebSocket-Protocol" = String, Header, description = "`space.terminal.v1`")),
    responses(
        (status = 101, description = "The WebSocket."),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn command_terminal(
    opening: Opening,
    State(app): State<Arc<App>>,
    fields: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Failure> {
    let Opening { attaching: Attaching { attacher, sandbox, command }, query } = opening;
    refuse_other_origins(&attacher, &fields)?;
    let reach = attacher.reach();
    // What is not the caller's is hidden before anything is said about the upgrade.
    app.route(reach, sandbox).await?;
    let upgrade = upgrade.map_err(|_no_upgrade| {
        Failure::new(ProblemCode::InvalidRequest, "open it as a WebSocket, over HTTP/1.1")
    })?;
    let upgrade = upgrade.protocols([SUBPROTOCOL]);
    if upgrade.selected_protocol().is_none() {
        let detail = format!("must offer {SUBPROTOCOL}");
        return Err(FieldErrors::one("Sec-WebSocket-Protocol", detail).into());
    }
    let after = query.position()?;
    let events = app.command_attach(Target { reach, sandbox, command, after, create: None }).await?;
    let input = Input { app: Arc::clone(&app), reach, sandbox, command, offset: query.input_offset };
    let sockets = app.sockets.clone();
    Ok(upgrade
        .max_message_size(MESSAGE)
        .max_frame_size(MESSAGE)
        .read_buffer_size(BUFFER)
        .write_buffer_size(BUFFER)
        .on_upgrade(move |socket| sockets.track_future(serve(socket, Outbound::new(events), input))))
}

/// Lets what is open say its last word. Streams end by themselves at shutdown.
pub(crate) async fn close_sockets(app: &App) {
    app.sockets.close();
    if timeout(CLOSING, app.sockets.wait()).await.is_err() {
        tracing::info!("some sockets did not close in time");
    }
}

/// Who opens which command, and from where on.
pub(super) struct Opening {
    attaching: Attaching,
    query: TerminalQuery,
}

impl FromRequestParts<Arc<App>> for Opening {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        let query = Query::<TerminalQuery>::from_request_parts(parts, app).await;
        // Found beside other parameters that are wrong too: its holder is to hear which.
        let Pairs(pairs) = Pairs::from_request_parts(parts, app).await.unwrap_or(Pairs(Vec::new()));
        let in_query = pairs.into_iter().find_map(|(name, token)| (name == "token").then_some(token));
        let attaching = Attaching::authorised(parts, app, in_query).await?;
        Ok(Self { attaching, query: query?.0 })
    }
}

/// A page of another site may open a socket here, and a browser says so. With a token it was given the right to; a
/// key is nothing that such a page should have.
fn refuse_other_origins(attacher: &Attacher, fields: &HeaderMap) -> Result<(), Failure> {
    let text = |name: HeaderName| fields.get(name).and_then(|value| value.to_str().ok());
    let same = match (fields.get(header::ORIGIN), text(header::ORIGIN), text(header::HOST)) {
        (None, _, _) => true,
        (Some(_), Some(origin), Some(host)) => {
            origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host))
        }
        (Some(_), _, _) => false,
    };
    match attacher {
        Attacher::Token => Ok(()),
        Attacher::Caller(_) if same => Ok(()),
        Attacher::Caller(_) => Err(Failure::new(
            ProblemCode::Forbidden,
            "a page of another origin needs the command's attach token",
        )),
    }
}

/// How a connection ends.
enum End {
    /// The client has left, or is leaving.
    Left,
    Close {
        code: u16,
        reason: String,
    },
}

impl End {
    fn close(code: u16, reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        while reason.len() > LONGEST_REASON {
            reason.pop();
        }
        Self::Close { code, reason }
    }
}

async fn serve(socket: WebSocket, mut outbound: Outbound, input: Input) {
    let (mut sink, mut incoming) = socket.split();
    let (refuse, refusals) = mpsc::channel(REFUSALS);
    let (tell_taken, taken) = watch::channel(0);
    let (pieces, waiting) = mpsc::channel(WAITING);
    let (resize, sizes) = watch::channel(None);
    let (signal, signals) = mpsc::channel(WAITING);
    let of = Of {
        app: Arc::clone(&input.app),
        reach: input.reach,
        sandbox: input.sandbox,
        command: input.command,
    };
    let inbound = Inbound { pieces, resize, signal, refuse: refuse.clone() };
    let carried_out = async {
        tokio::join!(
            write_all(input, waiting, tell_taken, refuse.clone()),
            of.carry_out(sizes, signals, refuse)
        );
        // The client's own end says how the connection ends.
        std::future::pending().await
    };
    let end = tokio::select! {
        end = outbound.run(&mut sink, taken, refusals) => end,
        end = inbound.run(&mut incoming) => end,
        end = carried_out => end,
    };
    // A client that takes nothing any more is left all the same.
    timeout(CLOSING, close(sink, incoming, end)).await.ok();
}

async fn close(mut sink: SplitSink<WebSocket, Message>, mut incoming: SplitStream<WebSocket>, end: End) {
    let sent = match end {
        End::Left => sink.close().await,
        End::Close { code, reason } => {
            sink.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await
        }
    };
    // Closing on unread bytes would reset the connection, and what was just sent with it.
    while sent.is_ok() && matches!(incoming.next().await, Some(Ok(_))) {}
}

/// Input as the client sent it.
enum Piece {
    Data(Bytes),
    End,
}

/// From the client to those who carry out what it says.
struct Inbound {
    pieces: mpsc::Sender<Piece>,
    resize: watch::Sender<Option<TerminalSize>>,
    signal: mpsc::Sender<Signal>,
    refuse: mpsc::Sender<ServerMessage>,
}

impl Inbound {
    async fn run(self, incoming: &mut SplitStream<WebSocket>) -> End {
        loop {
            let message = match timeout(SILENCE, incoming.next()).await {
                Ok(Some(Ok(message))) => message,
                Ok(Some(Err(error))) => {
                    tracing::debug!(%error, "a socket broke");
                    return End::close(close_code::SIZE, format!("a message has at most {MESSAGE} bytes"));
                }
                Ok(None) | Err(_) => return End::Left,
            };
            match message {
                Message::Binary(data) if data.len() > limits::STDIN_WRITE_BYTES => {
                    let most = limits::STDIN_WRITE_BYTES;
                    return End::close(close_code::SIZE, format!("input has at most {most} bytes a message"));
                }
                Message::Binary(data) => self.pass(Piece::Data(data)).await,
                Message::Text(text) => match serde_json::from_str(&text) {
                    Ok(said) => self.said(said).await,
                    Err(error) => return End::close(close_code::POLICY, error.to_string()),
                },
                Message::Close(_) => return End::Left,
                Message::Ping(_) | Message::Pong(_) => {}
            }
        }
    }

    async fn said(&self, said: ClientMessage) {
        match said {
            ClientMessage::Resize { rows, columns } => {
                let size = TerminalSize { rows, columns };
                match size.validate() {
                    Ok(()) => drop(self.resize.send_replace(Some(size))),
                    Err(errors) => refuse(&self.refuse, Wish::Resize, &errors.into()),
                }
            }
            // Whoever takes these ends with this connection.
            ClientMessage::Signal { signal } => self.signal.send(signal).await.unwrap_or_default(),
            ClientMessage::Eof {} => self.pass(Piece::End).await,
        }
    }

    async fn pass(&self, piece: Piece) {
        self.pieces.send(piece).await.unwrap_or_default();
    }
}

/// Writes piece by piece until one is refused; the rest is dropped, as a pipe without a reader drops it.
async fn write_all(
    mut input: Input,
    mut pieces: mpsc::Receiver<Piece>,
    taken: watch::Sender<u64>,
    refusals: mpsc::Sender<ServerMessage>,
) {
    let mut refused = false;
    while let Some(piece) = pieces.recv().await {
        if refused {
            continue;
        }
        let (data, eof) = match piece {
            Piece::Data(data) => (data, false),
            Piece::End => (Bytes::new(), true),
        };
        match input.write(&data, eof).await {
            Ok(next) => drop(taken.send_replace(next)),
            Err(error) => {
                refused = true;
                refuse(&refusals, Wish::Input, &error);
            }
        }
    }
}

/// The command that a connection is about.
struct Of {
    app: Arc<App>,
    reach: Option<Reach>,
    sandbox: SandboxId,
    command: CommandId,
}

impl Of {
    async fn carry_out(
        self,
        mut sizes: watch::Receiver<Option<TerminalSize>>,
        mut signals: mpsc::Receiver<Signal>,
        refusals: mpsc::Sender<ServerMessage>,
    ) {
        loop {
            tokio::select! {
                Ok(()) = sizes.changed() => {
                    let size = *sizes.borrow_and_update();
                    let Some(size) = size else { continue };
                    if let Err(error) = self.app.command_resize(self.reach, self.sandbox, self.command, size).await {
                        refuse(&refusals, Wish::Resize, &error);
                    }
                }
                Some(signal) = signals.recv() => {
                    let asked = SignalCommand { signal };
                    let sent =
                        self.app.command_signal(self.reach, self.sandbox, self.command, &asked, None).await;
                    if let Err(error) = sent {
                        refuse(&refusals, Wish::Signal, &error);
                    }
                }
                else => return,
            }
        }
    }
}

/// Tells the client. One that doesn't listen while it has so many refused wishes loses some of the news.
fn refuse(refusals: &mpsc::Sender<ServerMessage>, wish: Wish, error: &AppError) {
    refusals.try_send(ServerMessage::Refused { wish, problem: error.problem() }).ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{app::auth::Caller, grants::Grants};
    use space_api::{keys::Role, scopes::ScopeSet};
    use space_types::{KeyId, TenantId};

    #[test]
    fn a_page_of_another_origin_needs_a_token() {
        let tenant_id = TenantId::new();
        let (role, scopes) = (Role::Member, ScopeSet::all());
        let grants = Grants { tenant_id, project_id: None, role, scopes, expires_at: None };
        let key = Caller { tenant_id, key_id: KeyId::new(), grants };
        let refused = |attacher: Attacher, origin: Option<&'static str>| {
            let mut fields = HeaderMap::new();
            fields.insert(header::HOST, http::HeaderValue::from_static("space.example:8700"));
            if let Some(origin) = origin {
                fields.insert(header::ORIGIN, http::HeaderValue::from_static(origin));
            }
            refuse_other_origins(&attacher, &fields).is_err()
        };
        let with_key = |origin| refused(Attacher::Caller(key), origin);
        assert!(!with_key(None));
        assert!(!with_key(Some("https://space.example:8700")));
        for other in [
            "https://space.example",
            "https://evil.example",
            "null",
            "https://space.example:8700.evil.example",
        ] {
            assert!(with_key(Some(other)), "{other}");
            assert!(!refused(Attacher::Token, Some(other)), "{other}");
        }
    }
}
