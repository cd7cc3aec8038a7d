//! The writing end of a command's stdin: bytes are taken at their offset, once, however often they are sent.
//!
//! Nothing is buffered but what one write left over; the pipe's own 64 KiB are the buffer. A write is answered
//! when its last byte is in the pipe, which is how a command that doesn't read holds its writer back.
//!
//! A terminal is written to in the same way. Its end of file is a character, sent once and not counted.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
};

use bytes::{Buf, Bytes};
use rustix::io::Errno;
use space_guest_proto::message::RefusalCode;

use super::terminal::end_of_file;

/// Who is told about a write when it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) connection: u64,
    pub(crate) request: u32,
}

pub(crate) struct Stdin {
    pipe: Option<Rc<OwnedFd>>,
    is_terminal: bool,
    /// Of a terminal: nothing was written since the last line ended.
    at_line_start: bool,
    next_offset: u64,
    pending: Option<Pending>,
}

struct Pending {
    writer: Writer,
    data: Bytes,
    eof: bool,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// All of it is in the pipe.
    Done {
        next_offset: u64,
    },
    /// The pipe is full: wait until it can be written, then call [`Stdin::resume`].
    Later,
    Refused(RefusalCode),
}

impl Stdin {
    /// `None`: the command's stdin is `/dev/null`.
    pub(crate) fn new(pipe: Option<OwnedFd>) -> Self {
        Self {
            pipe: pipe.map(Rc::new),
            is_terminal: false,
            at_line_start: true,
            next_offset: 0,
            pending: None,
        }
    }

    pub(crate) fn terminal(master: Rc<OwnedFd>) -> Self {
        Self { pipe: Some(master), is_terminal: true, ..Self::new(None) }
    }

    /// A write waits for room.
    pub(crate) fn is_waiting(&self) -> bool {
        self.pending.is_some()
    }

    /// The pipe, for the event loop.
    pub(crate) fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn write(&mut self, writer: Writer, offset: u64, mut data: Bytes, eof: bool) -> Written {
        if self.pending.is_some() {
            return Written::Refused(RefusalCode::Busy);
        }
        let Some(taken) = self.next_offset.checked_sub(offset) else {
            return Written::Refused(RefusalCode::StdinHole);
        };
        data.advance(usize::try_from(taken).unwrap_or(usize::MAX).min(data.len()));
        if self.pipe.is_none() && !data.is_empty() {
            return Written::Refused(RefusalCode::StdinClosed);
        }
        let written = self.push(&mut data, eof);
        if written == Written::Later {
            // A copy, so as not to keep the receive buffer that it is a slice of.
            self.pending = Some(Pending { writer, data: Bytes::copy_from_slice(&data), eof });
        }
        written
    }

    /// Goes on with the write that waits; its writer and what became of it.
    pub(crate) fn resume(&mut self) -> Option<(Writer, Written)> {
        let Pending { writer, mut data, eof } = self.pending.take()?;
        let written = self.push(&mut data, eof);
        if written == Written::Later {
            self.pending = Some(Pending { writer, data, eof });
        }
        Some((writer, written))
    }

    /// Writes what there is room for, and takes it off `data`.
    fn push(&mut self, data: &mut Bytes, eof: bool) -> Written {
        let pushed = self.push_data(data).and_then(|()| if eof { self.end() } else { Ok(()) });
        match pushed {
            Ok(()) => Written::Done { next_offset: self.next_offset },
            Err(Errno::AGAIN) => Written::Later,
            Err(_) => {
                self.pipe = None;
                Written::Refused(RefusalCode::StdinClosed)
            }
        }
    }

    fn push_data(&mut self, data: &mut Bytes) -> Result<(), Errno> {
        while let Some(pipe) = self.pipe.as_ref().filter(|_| !data.is_empty()) {
            let written = write_some(pipe, data)?;
            let taken = data.split_to(written.min(data.len()));
            self.at_line_start = taken.last().is_some_and(|last| matches!(last, b'\n' | b'\r'));
            self.next_offset += taken.len() as u64;
        }
        Ok(())
    }

    /// Nothing comes behind this. On a terminal one end-of-file character hands an unfinished line over; only one
    /// at a line's start is the end.
    fn end(&mut self) -> Result<(), Errno> {
        while let Some(pipe) = self.pipe.as_ref().filter(|_| self.is_terminal) {
            let Some(character) = end_of_file(pipe.as_fd()) else { break };
            write_some(pipe, &[character])?;
            if std::mem::replace(&mut self.at_line_start, true) {
                break;
            }
        }
        self.pipe = None;
        Ok(())
    }

    /// Forgets the waiting write if `matches` says so; its writer.
    pub(crate) fn cancel(&mut self, matches: impl Fn(Writer) -> bool) -> Option<Writer> {
        let writer = self.pending.as_ref().map(|pending| pending.writer).filter(|writer| matches(*writer))?;
        self.pending = None;
        Some(writer)
    }

    /// The command has exited.
    pub(crate) fn close(&mut self) {
        self.pipe = None;
    }
}

/// At least one byte.
fn write_some(pipe: &OwnedFd, data: &[u8]) -> Result<usize, Errno> {
    loop {
        match rustix::io::write(pipe, data) {
            Ok(0) => return Err(Errno::AGAIN),
            Err(Errno::INTR) => {}
            written => return written,
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    const WRITER: Writer = Writer { connection: 1, request: 2 };

    fn pair() -> (Stdin, OwnedFd) {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        (Stdin::new(Some(write)), read)
    }

    fn drain(pipe: &OwnedFd) -> Vec<u8> {
        let mut all = vec![0; 1 << 20];
        let length = rustix::io::read(pipe, &mut all).unwrap_or(0);
        all.truncate(length);
        all
    }

    #[test]
    fn bytes_are_taken_once_and_holes_are_refused() {
        let (mut stdin, pipe) = pair();
        let write =
            |stdin: &mut Stdin, offset, data| stdin.write(WRITER, offset, Bytes::from_static(data), false);
        assert_eq!(write(&mut stdin, 0, b"abc"), Written::Done { next_offset: 3 });
        assert_eq!(write(&mut stdin, 0, b"abc"), Written::Done { next_offset: 3 });
        assert_eq!(write(&mut stdin, 1, b"bcde"), Written::Done { next_offset: 5 });
        assert_eq!(write(&mut stdin, 6, b"x"), Written::Refused(RefusalCode::StdinHole));
        assert_eq!(drain(&pipe), b"abcde");
    }

    #[test]
    fn end_of_file_can_be_repeated_but_not_written_behind() {
        let (mut stdin, pipe) = pair();
        for _ in 0..2 {
            let written = stdin.write(WRITER, 0, Bytes::from_static(b"a"), true);
            assert_eq!(written, Written::Done { next_offset: 1 });
        }
        let more = stdin.write(WRITER, 1, Bytes::from_static(b"b"), false);
        assert_eq!(more, Written::Refused(RefusalCode::StdinClosed));
        assert_eq!(drain(&pipe), b"a");
    }

    #[test]
    fn a_full_pipe_holds_the_answer_back() {
        let (mut stdin, pipe) = pair();
        let big = Bytes::from(vec![7; 100_000]);
        assert_eq!(stdin.write(WRITER, 0, big, true), Written::Later);
        assert_eq!(stdin.write(WRITER, 0, Bytes::new(), false), Written::Refused(RefusalCode::Busy));
        assert_eq!(drain(&pipe).len(), 65536);
        assert_eq!(stdin.resume(), Some((WRITER, Written::Done { next_offset: 100_000 })));
        assert_eq!(stdin.resume(), None);
        assert_eq!(drain(&pipe).len(), 100_000 - 65536);
    }

    #[test]
    fn a_reader_that_closed_is_told_as_closed() {
        let (mut stdin, pipe) = pair();
        drop(pipe);
        let written = stdin.write(WRITER, 0, Bytes::from_static(b"a"), false);
        assert_eq!(written, Written::Refused(RefusalCode::StdinClosed));
    }
}
