//! A command over a WebSocket that survives its connections, in both directions.
//!
//! ```text
//!   connecting ──101──▶ open ──exit──▶ done
//!       ▲                │
//!       └── pause ◀──────┘ lost, or an error that passes
//! ```
//! A new connection asks for the events behind the last one that was handed out, and sends again what the server
//! has not said to be taken, with its offset: nothing is lost or doubled either way.

mod input;
mod socket;

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::{SinkExt as _, StreamExt as _, ready};
use serde_json::Value;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;

use self::{
    input::Unacknowledged,
    socket::{Socket, open},
};
use super::{Client, ClientError, StreamConfig, backoff::Backoff, passes};
use crate::{
    Problem, Signal,
    commands::Exit,
    sse::{Gap, Position},
    terminal::{ClientMessage, OutputHead, OutputStream, ServerMessage, TerminalSize, Wish},
};

/// Input that may wait to be taken by the server, beyond one more piece.
const AHEAD: usize = 64 * 1024;
/// Close codes from here to [`TOO_LARGE`]: this client said something that it must not say.
const PROTOCOL: u16 = 1002;
const TOO_LARGE: u16 = 1009;
/// Names of text messages that this client knows.
const KNOWN: [&str; 6] = ["started", "gap", "exit", "input", "refused", "error"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalEvent {
    Started {
        pid: u32,
    },
    Output {
        stream: OutputStream,
        data: Vec<u8>,
    },
    /// Output was lost because it came faster than it was read.
    Gap(Gap),
    /// The last event.
    Exit(Exit),
    /// Something that was asked for here was refused; everything else goes on.
    Refused {
        wish: Wish,
        problem: Problem,
    },
    /// The connection is lost, and another is tried.
    Lost,
    /// There is another, and nothing is missing.
    Back,
}

type Connecting = Pin<Box<dyn Future<Output = Result<Socket, ClientError>> + Send>>;

/// Input, sizes and signals are sent while [`Terminal::next`] is waited for.
pub struct Terminal {
    client: Client,
    path: String,
    position: Option<Position>,
    input: Unacknowledged,
    size: Option<TerminalSize>,
    due: VecDeque<ClientMessage>,
    connecting: Option<Connecting>,
    socket: Option<Socket>,
    heard: Instant,
    backoff: Backoff,
    config: StreamConfig,
    lost: bool,
    done: bool,
}

impl Terminal {
    pub(super) fn new(client: Client, path: String, input_offset: u64, config: StreamConfig) -> Self {
        // A server that was never there is given up as soon as by any other call.
        let backoff = Backoff::new(client.patience);
        Self {
            client,
            path,
            position: None,
            input: Unacknowledged::behind(input_offset),
            size: None,
            due: VecDeque::new(),
            connecting: None,
            socket: None,
            heard: Instant::now(),
            backoff,
            config,
            lost: false,
            done: false,
        }
    }

    /// Whether the server keeps up with what is written. Writing on is possible, and fills memory.
    pub fn has_room(&self) -> bool {
        self.input.len() < AHEAD
    }

    pub fn write(&mut self, data: &[u8]) {
        self.input.push(data);
    }

    /// Of the last event handed out.
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// The latest size is also told to each new connection.
    pub fn resize(&mut self, size: TerminalSize) {
        self.size = Some(size);
        self.due.retain(|message| !matches!(message, ClientMessage::Resize { .. }));
        self.due.push_back(ClientMessage::Resize { rows: size.rows, columns: size.columns });
    }

    /// Sent once: one that is lost with its connection is lost.
    pub fn signal(&mut self, signal: Signal) {
        self.due.push_back(ClientMessage::Signal { signal });
    }

    /// The next event, or `None` after `Exit`. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<TerminalEvent>, ClientError> {
        loop {
            if self.done {
                return Ok(None);
            }
            if self.socket.is_none() {
                if let Some(event) = self.connect().await? {
                    return Ok(Some(event));
                }
                continue;
            }
            match self.step().await {
                Ok(Some(event)) => {
                    self.done = matches!(event, TerminalEvent::Exit(_));
                    return Ok(Some(event));
                }
                Ok(None) => {}
                Err(error) if passes(&error) => {
                    self.socket = None;
                    self.connecting = Some(self.attempt(error.retry_after().unwrap_or_default()));
                    self.lost = true;
                    return Ok(Some(TerminalEvent::Lost));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One attempt, which goes on where it was when the call was cancelled.
    async fn connect(&mut self) -> Result<Option<TerminalEvent>, ClientError> {
        if self.connecting.is_none() {
            self.connecting = Some(self.attempt(Duration::ZERO));
        }
        let Some(connecting) = &mut self.connecting else { return Ok(None) };
        let opened = connecting.as_mut().await;
        self.connecting = None;
        match opened {
            Ok(socket) => {
                self.socket = Some(socket);
                self.heard = Instant::now();
                self.input.rewind();
                if let Some(size) = self.size.filter(|_| self.lost) {
                    self.resize(size);
                }
                Ok(std::mem::take(&mut self.lost).then_some(TerminalEvent::Back))
            }
            Err(error) if passes(&error) => {
                let pause = self.backoff.next(error.retry_after()).ok_or(error)?;
                self.connecting = Some(self.attempt(pause));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn attempt(&self, pause: Duration) -> Connecting {
        let (client, path) = (self.client.clone(), self.path.clone());
        let mut query = vec![("input_offset", self.input.offset().to_string())];
        query.extend(self.position.map(|position| ("after", position.to_string())));
        Box::pin(async move {
            tokio::time::sleep(pause).await;
            open(&client, &path, query).await
        })
    }

    async fn step(&mut self) -> Result<Option<TerminalEvent>, ClientError> {
        let deadline = self.heard + self.config.silence;
        let heard = tokio::time::timeout_at(deadline, std::future::poll_fn(|context| self.poll(context)));
        let message = heard.await.unwrap_or_else(|_elapsed| Err(self.stream_lost()))?;
        self.heard = Instant::now();
        self.backoff = Backoff::new(self.config.patience);
        self.take(message)
    }

    /// Sends what there is to send, then waits for a message.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Message, ClientError>> {
        let lost = self.stream_lost();
        let Some(socket) = &mut self.socket else { return Poll::Ready(Err(lost)) };
        while !self.due.is_empty() || self.input.has_unsent() {
            match socket.poll_ready_unpin(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Err(lost)),
                Poll::Pending => break,
            }
            let message = match self.due.pop_front() {
                Some(message) => Message::text(serde_json::to_string(&message).unwrap_or_default()),
                None => Message::binary(self.input.take_unsent()),
            };
            if socket.start_send_unpin(message).is_err() {
                return Poll::Ready(Err(lost));
            }
        }
        if matches!(socket.poll_flush_unpin(context), Poll::Ready(Err(_))) {
            return Poll::Ready(Err(lost));
        }
        match ready!(socket.poll_next_unpin(context)) {
            Some(Ok(message)) => Poll::Ready(Ok(message)),
            Some(Err(_)) | None => Poll::Ready(Err(lost)),
        }
    }

    /// `None`: nothing that a caller hears of.
    fn take(&mut self, message: Message) -> Result<Option<TerminalEvent>, ClientError> {
        match message {
            Message::Binary(message) => {
                let Some((head, output)) = OutputHead::decode(&message) else { return Ok(None) };
                let event = TerminalEvent::Output { stream: head.stream, data: output.to_vec() };
                Ok(self.is_new(head.position).then_some(event))
            }
            Message::Text(text) => match parse(&text)? {
                Some(message) => self.told(message),
                None => Ok(None),
            },
            Message::Close(Some(frame)) => match u16::from(frame.code) {
                code @ PROTOCOL..=TOO_LARGE => {
                    Err(ClientError::Closed { code, reason: frame.reason.to_string() })
                }
                _ => Err(self.stream_lost()),
            },
            Message::Close(None) => Err(self.stream_lost()),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Ok(None),
        }
    }

    fn told(&mut self, message: ServerMessage) -> Result<Option<TerminalEvent>, ClientError> {
        let (id, event) = match message {
            ServerMessage::Started { id, pid } => (id, TerminalEvent::Started { pid }),
            ServerMessage::Gap { id, first_lost, last_lost, stdout_bytes, stderr_bytes } => {
                (id, TerminalEvent::Gap(Gap { first_lost, last_lost, stdout_bytes, stderr_bytes }))
            }
            ServerMessage::Exit { id, exit } => (id, TerminalEvent::Exit(exit)),
            ServerMessage::Input { next_offset } => {
                self.input.taken(next_offset);
                return Ok(None);
            }
            ServerMessage::Refused { wish, problem } => {
                if wish == Wish::Input {
                    self.input.close();
                }
                return Ok(Some(TerminalEvent::Refused { wish, problem }));
            }
            ServerMessage::Error { problem } => return Err(ClientError::Problem(Box::new(problem))),
        };
        let position: Option<Position> = id.parse().ok();
        Ok(position.is_some_and(|position| self.is_new(position)).then_some(event))
    }

    fn is_new(&mut self, position: Position) -> bool {
        let new = self.position.is_none_or(|last| position > last);
        if new {
            self.position = Some(position);
        }
        new
    }

    fn stream_lost(&self) -> ClientError {
        ClientError::StreamLost { url: self.client.url().to_string() }
    }
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, position, lost, done, .. } = self;
        f.debug_struct("Terminal")
            .field("path", path)
            .field("position", position)
            .field("lost", lost)
            .field("done", done)
            .finish_non_exhaustive()
    }
}

/// `None`: a message of a later server.
fn parse(text: &str) -> Result<Option<ServerMessage>, ClientError> {
    let failed = |source| ClientError::StreamEvent { name: "text".to_owned(), source };
    let value: Value = serde_json::from_str(text).map_err(failed)?;
    if !value["type"].as_str().is_some_and(|name| KNOWN.contains(&name)) {
        return Ok(None);
    }
    serde_json::from_value(value).map(Some).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_a_later_server_is_skipped_and_a_damaged_one_is_not() {
        assert!(matches!(parse(r#"{"type":"title","text":"x"}"#), Ok(None)));
        assert!(matches!(parse(r#"{"type":"input","next_offset":7}"#), Ok(Some(_))));
        assert!(parse(r#"{"type":"input"}"#).is_err());
    }
}
