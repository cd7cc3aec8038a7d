//! `space.terminal.v1`: a command over one WebSocket, in both directions.
//!
//! ```text
//!   server ─▶ client   binary   stream (1 byte) · generation (8) · sequence (8) · output      17 bytes of head
//!                      text     started, gap, exit, input, refused, error                      JSON
//!   client ─▶ server   binary   input, at most 32 KiB
//!                      text     resize, signal, eof                                            JSON
//! ```
//! Numbers in the head are big-endian, as a `DataView` reads them. Each event has its position with it, so a
//! reader that keeps the last one resumes exactly, by `?after=`. Input is counted in bytes from the command's
//! start: `input` tells how many were taken, and a writer that resumes says with `?input_offset=` where what it
//! sends begins. Bytes that were taken are skipped, so nothing is typed twice.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{FieldErrors, Problem, Signal, commands::Exit, limits, sse::Position};

/// What `Sec-WebSocket-Protocol` has to offer.
pub const SUBPROTOCOL: &str = "space.terminal.v1";
/// Of a binary message from the server, before the output.
pub const OUTPUT_HEAD_BYTES: usize = 17;

/// Size of a terminal. Body of `POST …/commands/{id}/resize` too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    #[schema(minimum = 1, maximum = 4096, example = 24)]
    pub rows: u32,
    #[schema(minimum = 1, maximum = 4096, example = 80)]
    pub columns: u32,
}

impl TerminalSize {
    pub fn validate(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::default();
        self.check(&mut errors, "");
        errors.finish()
    }

    /// `prefix`: where it is in the request.
    pub(crate) fn check(self, errors: &mut FieldErrors, prefix: &str) {
        let possible = 1..=limits::TERMINAL_CELLS;
        for (name, cells) in [("rows", self.rows), ("columns", self.columns)] {
            let detail = format!("must be 1 to {}", limits::TERMINAL_CELLS);
            errors.require(possible.contains(&cells), &format!("{prefix}{name}"), detail);
        }
    }
}

/// Query of `GET …/commands/{id}/terminal`.
#[derive(Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TerminalQuery {
    /// The attach token, for browsers, which can't set headers. It appears in no log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// `<generation>.<sequence>` of the last event that was seen. Without it: from the first that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Where the input that will be sent begins. Without it: behind all that was taken so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_offset: Option<u64>,
}

impl TerminalQuery {
    pub fn position(&self) -> Result<Option<Position>, FieldErrors> {
        let parsed = self.after.as_deref().map(str::parse).transpose();
        parsed.map_err(|error: crate::sse::PositionError| FieldErrors::one("after", error.to_string()))
    }
}

/// A text message of the server. `id` is an event's position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerMessage {
    Started {
        id: String,
        pid: u32,
    },
    /// Output was lost because it came faster than it was read.
    Gap {
        id: String,
        first_lost: u64,
        last_lost: u64,
        stdout_bytes: u64,
        stderr_bytes: u64,
    },
    /// The last event of a command. The server closes with 1000 behind it.
    Exit {
        id: String,
        #[serde(flatten)]
        exit: Exit,
    },
    /// So many bytes of input were taken since the command's start. Not for every message: the latest counts.
    Input {
        next_offset: u64,
    },
    /// A wish of the client that could not be carried out; everything else goes on. After a refused `input`
    /// whatever input follows is dropped.
    Refused {
        wish: Wish,
        problem: Problem,
    },
    /// The connection ends early; the command may still run.
    Error {
        problem: Problem,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    Input,
    Resize,
    Signal,
}

/// A text message of the client. Anything else closes the connection with 1008.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ClientMessage {
    Resize {
        rows: u32,
        columns: u32,
    },
    Signal {
        signal: Signal,
    },
    /// Ends the input behind what was sent.
    Eof {},
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum OutputStream {
    Stdout = 1,
    Stderr = 2,
}

/// The head of a binary message of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputHead {
    pub stream: OutputStream,
    pub position: Position,
}

impl OutputHead {
    /// The whole message.
    pub fn encode(self, output: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(OUTPUT_HEAD_BYTES + output.len());
        message.push(self.stream as u8);
        message.extend_from_slice(&self.position.generation.to_be_bytes());
        message.extend_from_slice(&self.position.sequence.to_be_bytes());
        message.extend_from_slice(output);
        message
    }

    /// The head and the output of a message; `None`: it is none.
    pub fn decode(message: &[u8]) -> Option<(Self, &[u8])> {
        let (head, output) = message.split_at_checked(OUTPUT_HEAD_BYTES)?;
        let stream = match head.first()? {
            1 => OutputStream::Stdout,
            2 => OutputStream::Stderr,
            _ => return None,
        };
        let number = |at: usize| Some(u64::from_be_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let position = Position { generation: number(1)?, sequence: number(9)? };
        Some((Self { stream, position }, output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProblemCode;

    #[test]
    fn output_comes_with_its_stream_and_position() {
        let position = Position { generation: 1, sequence: 0x0203 };
        let head = OutputHead { stream: OutputStream::Stderr, position };
        let message = head.encode(b"x\0");
        assert_eq!(message, b"\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\x02\x03x\0");
        assert_eq!(OutputHead::decode(&message), Some((head, b"x\0".as_slice())));
        assert_eq!(OutputHead::decode(&message[..16]), None);
        assert_eq!(OutputHead::decode(&[3; 20]), None);
    }

    #[test]
    fn messages_are_as_they_are_documented() {
        let id = "1.2".to_owned();
        let exit = Exit { code: Some(7), ..Exit::default() };
        let table = [
            (ServerMessage::Started { id: id.clone(), pid: 7 }, r#"{"type":"started","id":"1.2","pid":7}"#),
            (ServerMessage::Exit { id, exit }, r#"{"type":"exit","id":"1.2","code":7,"timed_out":false}"#),
            (ServerMessage::Input { next_offset: 3 }, r#"{"type":"input","next_offset":3}"#),
        ];
        for (message, text) in table {
            assert_eq!(serde_json::to_string(&message).unwrap(), text);
            assert_eq!(serde_json::from_str::<ServerMessage>(text).unwrap(), message);
        }
        let problem = Problem::new(ProblemCode::StdinClosed, "closed");
        let refused = serde_json::to_value(ServerMessage::Refused { wish: Wish::Input, problem }).unwrap();
        assert_eq!(refused["type"], "refused");
        assert_eq!(refused["wish"], "input");
    }

    #[test]
    fn a_client_says_nothing_else() {
        let parse = |text: &str| serde_json::from_str::<ClientMessage>(text).ok();
        assert_eq!(
            parse(r#"{"type":"resize","rows":1,"columns":2}"#),
            Some(ClientMessage::Resize { rows: 1, columns: 2 })
        );
        assert_eq!(
            parse(r#"{"type":"signal","signal":"INT"}"#),
            Some(ClientMessage::Signal { signal: Signal::INT })
        );
        assert_eq!(parse(r#"{"type":"eof"}"#), Some(ClientMessage::Eof {}));
        for text in [
            "",
            "{}",
            "[]",
            r#"{"type":"paste"}"#,
            r#"{"type":"eof","now":true}"#,
            r#"{"type":"resize","rows":1}"#,
            r#"{"type":"resize","rows":-1,"columns":1}"#,
            r#"{"type":"signal","signal":"NONE"}"#,
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_size_names_the_side_that_is_impossible() {
        let fields = |rows, columns| {
            let errors = TerminalSize { rows, columns }.validate().err().unwrap_or_default();
            errors.into_vec().into_iter().map(|error| error.field).collect::<Vec<_>>()
        };
        assert_eq!(fields(1, 4096), [""; 0]);
        assert_eq!(fields(0, 80), ["rows"]);
        assert_eq!(fields(0, 4097), ["rows", "columns"]);
    }
}
