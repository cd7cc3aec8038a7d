//! From a command's events to a WebSocket: each sent before the next is asked for, so a slow reader holds back its
//! own stream and nobody else.

use std::time::Duration;

use axum::extract::ws::{Message, WebSocket, close_code};
use bytes::Bytes;
use futures::{SinkExt as _, stream::SplitSink};
use space_api::{
    Problem, ProblemCode, limits,
    sse::{CommandEvent, Position},
    terminal::{OutputHead, OutputStream, ServerMessage},
};
use space_attach::Positioned;
use tokio::{
    sync::{mpsc, watch},
    time::{Interval, MissedTickBehavior, interval},
};

use super::End;
use crate::app::command_stream::CommandStream;

pub(super) struct Outbound {
    events: CommandStream,
    pings: Interval,
}

impl Outbound {
    pub(super) fn new(events: CommandStream) -> Self {
        let mut pings = interval(Duration::from_secs(limits::HEARTBEAT_SECONDS));
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { events, pings }
    }

    pub(super) async fn run(
        &mut self,
        sink: &mut SplitSink<WebSocket, Message>,
        mut taken: watch::Receiver<u64>,
        mut refusals: mpsc::Receiver<ServerMessage>,
    ) -> End {
        loop {
            let (message, end) = tokio::select! {
                // A flood of output must hold back neither pings nor answers.
                biased;
                _ = self.pings.tick() => (Message::Ping(Bytes::new()), None),
                Some(refusal) = refusals.recv() => (text(&refusal), None),
                Ok(()) = taken.changed() => {
                    let next_offset = *taken.borrow_and_update();
                    (text(&ServerMessage::Input { next_offset }), None)
                }
                event = self.events.next() => match event {
                    Some(event) => message(event),
                    None => return End::close(close_code::NORMAL, "the command has ended"),
                },
            };
            if sink.send(message).await.is_err() {
                return End::Left;
            }
            if let Some(end) = end {
                return end;
            }
        }
    }
}

/// One event as a message, and how the connection ends if it was the last.
fn message(Positioned { position, event }: Positioned) -> (Message, Option<End>) {
    let position = position.unwrap_or_default();
    let id = position.to_string();
    match event {
        CommandEvent::Stdout(output) => (binary(OutputStream::Stdout, position, &output.data.0), None),
        CommandEvent::Stderr(output) => (binary(OutputStream::Stderr, position, &output.data.0), None),
        CommandEvent::Started(started) => (text(&ServerMessage::Started { id, pid: started.pid }), None),
        CommandEvent::Gap(gap) => {
            let gap = ServerMessage::Gap {
                id,
                first_lost: gap.first_lost,
                last_lost: gap.last_lost,
                stdout_bytes: gap.stdout_bytes,
                stderr_bytes: gap.stderr_bytes,
            };
            (text(&gap), None)
        }
        CommandEvent::Exit(exit) => {
            let end = End::close(close_code::NORMAL, "the command has ended");
            (text(&ServerMessage::Exit { id, exit }), Some(end))
        }
        CommandEvent::Error(error) => {
            let end = End::close(close_of(&error.problem), error.problem.detail.clone());
            (text(&ServerMessage::Error { problem: error.problem }), Some(end))
        }
        // Of `exec` alone.
        CommandEvent::Command(_) => (Message::Ping(Bytes::new()), None),
    }
}

fn close_of(problem: &Problem) -> u16 {
    if problem.code == ProblemCode::ShuttingDown { close_code::RESTART } else { close_code::ERROR }
}

fn binary(stream: OutputStream, position: Position, output: &[u8]) -> Message {
    Message::Binary(OutputHead { stream, position }.encode(output).into())
}

/// These types always serialise.
fn text(message: &ServerMessage) -> Message {
    Message::Text(serde_json::to_string(message).unwrap_or_default().into())
}
