//! One open event stream: bytes from the server, frames out, until it breaks off.

use std::{collections::VecDeque, time::Duration};

use reqwest::Response;

use super::ClientError;
use crate::sse::{Frame, Parser};

#[derive(Debug)]
pub(super) struct Connection {
    response: Response,
    parser: Parser,
    frames: VecDeque<Frame>,
    silence: Duration,
    url: String,
}

impl Connection {
    pub(super) fn new(response: Response, silence: Duration) -> Self {
        let url = response.url().origin().ascii_serialization();
        Self { response, parser: Parser::default(), frames: VecDeque::new(), silence, url }
    }

    /// The next event. Comments count as signs of life and are dropped. An end, an error and a silence of
    /// longer than the limit all mean that the stream was lost: whether it was complete, the events tell.
    ///
    /// Cancel safe: no byte is taken from the response without being kept.
    pub(super) async fn next(&mut self) -> Result<(String, String, Option<String>), ClientError> {
        loop {
            while let Some(frame) = self.frames.pop_front() {
                if let Frame::Event { name, data, id } = frame {
                    return Ok((name, data, id));
                }
            }
            let Ok(Ok(Some(bytes))) = tokio::time::timeout(self.silence, self.response.chunk()).await else {
                return Err(ClientError::StreamLost { url: self.url.clone() });
            };
            let mut frames = Vec::new();
            self.parser.push(&bytes, &mut frames)?;
            self.frames.extend(frames);
        }
    }
}
