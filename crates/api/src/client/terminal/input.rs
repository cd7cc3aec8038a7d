//! Input that was written and not yet said to be taken: what a new connection begins with.

use std::collections::VecDeque;

use crate::limits::STDIN_WRITE_BYTES;

#[derive(Debug)]
pub(super) struct Unacknowledged {
    /// Of the first byte kept.
    offset: u64,
    bytes: VecDeque<u8>,
    /// How many of them were sent on this connection.
    sent: usize,
    closed: bool,
}

impl Unacknowledged {
    pub(super) fn behind(offset: u64) -> Self {
        Self { offset, bytes: VecDeque::new(), sent: 0, closed: false }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn push(&mut self, data: &[u8]) {
        if !self.closed {
            self.bytes.extend(data);
        }
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.sent < self.bytes.len()
    }

    /// The next message.
    pub(super) fn take_unsent(&mut self) -> Vec<u8> {
        let piece: Vec<u8> = self.bytes.range(self.sent..).take(STDIN_WRITE_BYTES).copied().collect();
        self.sent += piece.len();
        piece
    }

    /// All before `next_offset` is the command's.
    pub(super) fn taken(&mut self, next_offset: u64) {
        let taken = usize::try_from(next_offset.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        // More than this connection sent can't be ours: somebody else writes too.
        let taken = taken.min(self.sent);
        self.bytes.drain(..taken);
        self.sent -= taken;
        self.offset = self.offset.max(next_offset);
    }

    /// There is a new connection, which has seen nothing.
    pub(super) fn rewind(&mut self) {
        self.sent = 0;
    }

    /// Nobody takes any.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.bytes.clear();
        self.sent = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_taken_is_sent_again_from_its_offset() {
        let mut input = Unacknowledged::behind(10);
        input.push(b"abc");
        assert_eq!(input.take_unsent(), b"abc");
        input.push(b"de");
        assert_eq!(input.take_unsent(), b"de");
        input.taken(12);
        assert!(!input.has_unsent());
        input.rewind();
        assert_eq!((input.offset(), input.take_unsent().as_slice()), (12, b"cde".as_slice()));
        input.taken(15);
        assert_eq!((input.offset(), input.len()), (15, 0));
        // An answer that was overtaken by another changes nothing.
        input.taken(12);
        assert_eq!(input.offset(), 15);
    }

    #[test]
    fn a_message_is_no_longer_than_the_server_takes() {
        let mut input = Unacknowledged::behind(0);
        input.push(&vec![7; STDIN_WRITE_BYTES + 1]);
        assert_eq!((input.take_unsent().len(), input.take_unsent().len()), (STDIN_WRITE_BYTES, 1));
        input.close();
        input.push(b"x");
        assert!(!input.has_unsent() && input.len() == 0);
    }
}
