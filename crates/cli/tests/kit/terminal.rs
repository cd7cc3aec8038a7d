//! The WebSocket of a command, played by a script. Input is taken once by its offset, as an agent does.

use std::{collections::VecDeque, sync::Arc};

use axum::{
    extract::ws::{Message, WebSocket, WebSocketUpgrade},
    response::Response,
};
use futures::StreamExt;
use serde_json::{Value, json};
use space_api::{
    sse::Position,
    terminal::{ClientMessage, OutputHead, OutputStream},
};

use super::Shared;

/// What a connection does next.
#[derive(Clone)]
pub(crate) enum Turn {
    /// Output, as the event with this sequence number.
    Output(u64, &'static str),
    /// Nothing, until so many bytes were typed, in all connections together.
    UntilTyped(usize),
    /// The same, without saying that they were taken.
    UntilTypedInSilence(usize),
    /// Nothing, until the terminal was given so many sizes.
    UntilSizes(usize),
    Exit(i32),
    /// The connection breaks.
    Break,
    /// Nothing any more.
    Hold,
}

pub(super) fn open(shared: Arc<Shared>, upgrade: WebSocketUpgrade, query: &str) -> Response {
    let offset = query.split('&').find_map(|pair| pair.strip_prefix("input_offset=")).unwrap();
    let offset: usize = offset.parse().unwrap();
    let number = {
        let mut connections = shared.connections.lock().unwrap();
        *connections += 1;
        *connections - 1
    };
    let turns = shared.script.terminal.get(number).cloned().unwrap_or_default();
    upgrade
        .protocols(["space.terminal.v1"])
        .on_upgrade(move |socket| async move { Played { shared, socket, offset }.play(turns.into()).await })
}

struct Played {
    shared: Arc<Shared>,
    socket: WebSocket,
    /// Of the next byte on this connection.
    offset: usize,
}

impl Played {
    async fn play(mut self, mut turns: VecDeque<Turn>) {
        while let Some(turn) = turns.pop_front() {
            match turn {
                Turn::Output(sequence, text) => {
                    let position = Position { generation: 1, sequence };
                    let head = OutputHead { stream: OutputStream::Stdout, position };
                    self.socket.send(Message::Binary(head.encode(text.as_bytes()).into())).await.unwrap();
                }
                Turn::UntilTyped(count) => {
                    self.hear_until(|shared| shared.stdin.lock().unwrap().len() >= count).await;
                    let taken = self.shared.stdin.lock().unwrap().len();
                    self.say(&json!({ "type": "input", "next_offset": taken })).await;
                }
                Turn::UntilTypedInSilence(count) => {
                    self.hear_until(|shared| shared.stdin.lock().unwrap().len() >= count).await;
                }
                Turn::UntilSizes(count) => {
                    self.hear_until(|shared| shared.sizes.lock().unwrap().len() >= count).await;
                }
                Turn::Exit(code) => self.say(&json!({ "type": "exit", "id": "1.99", "code": code })).await,
                Turn::Break => return,
                Turn::Hold => return self.hear_until(|_| false).await,
            }
        }
        self.socket.send(Message::Close(None)).await.ok();
        self.hear_until(|_| false).await;
    }

    async fn say(&mut self, text: &Value) {
        self.socket.send(Message::Text(text.to_string().into())).await.unwrap();
    }

    async fn hear_until(&mut self, enough: impl Fn(&Shared) -> bool) {
        while !enough(&self.shared) {
            match self.socket.next().await {
                Some(Ok(Message::Binary(data))) => self.typed(&data),
                Some(Ok(Message::Text(text))) => match serde_json::from_str(&text).unwrap() {
                    ClientMessage::Resize { rows, columns } => {
                        self.shared.sizes.lock().unwrap().push((rows, columns));
                    }
                    other @ (ClientMessage::Signal { .. } | ClientMessage::Eof {}) => {
                        panic!("not expected: {other:?}")
                    }
                },
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            }
        }
    }

    fn typed(&mut self, data: &[u8]) {
        let mut taken = self.shared.stdin.lock().unwrap();
        assert!(self.offset <= taken.len(), "a hole");
        let known = (taken.len() - self.offset).min(data.len());
        taken.extend(&data[known..]);
        self.offset += data.len();
    }
}
