//! An incremental parser of `text/event-stream`. Pure: bytes in, events out, however they are cut up.
//!
//! Our own because a client that talks to anything must bound what it keeps: a line or event beyond the limit
//! is an error, not an allocation. Comments are reported too, for they tell that the other side is alive.

use memchr::memchr2;

/// One parsed unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    Event {
        /// `event:`, or `message` without one.
        name: String,
        /// The `data:` lines, joined by line feeds.
        data: String,
        /// The last `id:` seen on the stream; an event without one of its own keeps the one before.
        id: Option<String>,
    },
    Comment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is longer than {limit} bytes")]
pub struct StreamLimitError {
    pub limit: usize,
}

#[derive(Debug)]
pub struct Parser {
    line: Vec<u8>,
    /// The byte before was a carriage return, so a line feed now belongs to it.
    after_carriage_return: bool,
    at_start: bool,
    name: String,
    data: String,
    has_data: bool,
    id: Option<String>,
}

impl Default for Parser {
    fn default() -> Self {
        Self {
            line: Vec::new(),
            after_carriage_return: false,
            at_start: true,
            name: String::new(),
            data: String::new(),
            has_data: false,
            id: None,
        }
    }
}

impl Parser {
    /// Bytes that one event may have before it is refused: above anything a server of ours sends (an `exec`
    /// event with 32 KiB of output, or a command with all of its arguments).
    pub const LIMIT: usize = 1024 * 1024;

    /// Takes the next bytes and adds what they complete to `frames`.
    pub fn push(&mut self, bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), StreamLimitError> {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            if std::mem::take(&mut self.after_carriage_return) && *first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = memchr2(b'\n', b'\r', rest);
            let part = &rest[..end.unwrap_or(rest.len())];
            if self.line.len() + part.len() + self.data.len() > Self::LIMIT {
                return Err(StreamLimitError { limit: Self::LIMIT });
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else { break };
            self.after_carriage_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
            self.end_line(frames);
        }
        Ok(())
    }

    fn end_line(&mut self, frames: &mut Vec<Frame>) {
        let bytes = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let line =
            if std::mem::take(&mut self.at_start) { text.trim_start_matches('\u{feff}') } else { &text };
        if line.is_empty() {
            frames.extend(self.end_event());
            return;
        }
        if line.starts_with(':') {
            frames.push(Frame::Comment);
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        self.set(field, value.strip_prefix(' ').unwrap_or(value));
    }

    fn set(&mut self, field: &str, value: &str) {
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            // `retry` is the server's wish; our clients have a schedule of their own. Others are to be ignored.
            _ => {}
        }
    }

    fn end_event(&mut self) -> Option<Frame> {
        let name = std::mem::take(&mut self.name);
        let data = std::mem::take(&mut self.data);
        let name = if name.is_empty() { "message".to_owned() } else { name };
        std::mem::take(&mut self.has_data).then(|| Frame::Event { name, data, id: self.id.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(chunks: &[&[u8]]) -> Vec<Frame> {
        let (mut parser, mut frames) = (Parser::default(), Vec::new());
        for chunk in chunks {
            parser.push(chunk, &mut frames).unwrap();
        }
        frames
    }

    fn event(name: &str, data: &str, id: Option<&str>) -> Frame {
        Frame::Event { name: name.into(), data: data.into(), id: id.map(Into::into) }
    }

    #[test]
    fn an_event_has_a_name_data_and_an_id() {
        let text = b"id: 1.2\nevent: stdout\ndata: {}\n\n";
        assert_eq!(parse(&[text]), [event("stdout", "{}", Some("1.2"))]);
    }

    #[test]
    fn defaults_and_several_data_lines_are_as_the_standard_has_them() {
        assert_eq!(parse(&[b"data\ndata:  a\ndata:b\n\n"]), [event("message", "\n a\nb", None)]);
    }

    #[test]
    fn every_line_end_is_understood_across_chunks() {
        for end in ["\n", "\r", "\r\n"] {
            let text = ["event: a", "data: 1", "", "data: 2", "", ""].join(end);
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(parse(&bytes), [event("a", "1", None), event("message", "2", None)], "{end:?}");
        }
    }

    #[test]
    fn a_comment_is_a_sign_of_life_and_no_event() {
        assert_eq!(parse(&[b": heartbeat\n\n"]), [Frame::Comment]);
    }

    #[test]
    fn an_event_without_data_is_dropped_but_its_id_stays() {
        assert_eq!(parse(&[b"id: 7\n\ndata: x\n\n"]), [event("message", "x", Some("7"))]);
    }

    #[test]
    fn an_unfinished_event_is_not_reported() {
        assert_eq!(parse(&[b"data: x\n"]), []);
    }

    #[test]
    fn an_endless_line_is_refused() {
        let (mut parser, mut frames) = (Parser::default(), Vec::new());
        assert!(parser.push(&vec![b'x'; Parser::LIMIT + 1], &mut frames).is_err());
    }

    #[test]
    fn endless_data_lines_are_refused() {
        let (mut parser, mut frames) = (Parser::default(), Vec::new());
        let result = (0..Parser::LIMIT).try_for_each(|_| parser.push(b"data: 0123456789\n", &mut frames));
        assert!(result.is_err() && frames.is_empty());
    }

    proptest! {
        #[test]
        fn how_the_bytes_are_cut_up_does_not_matter(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), any::<u8>()], 0..200),
            cut in 0usize..200,
        ) {
            let cut = cut.min(bytes.len());
            prop_assert_eq!(parse(&[&bytes[..cut], &bytes[cut..]]), parse(&[&bytes]));
        }
    }
}
