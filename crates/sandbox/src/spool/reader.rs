//! One reader of a spool, at its own pace: it reads when it is polled, and is polled when the one behind it has room.
//!
//! It tells apart what it has had from what it missed by sequence numbers alone, so it doesn't matter why something is
//! missing: a segment dropped for the limit or the budget, or events that the guest's ring had lost before.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::unix::fs::FileExt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use futures::Stream;
use space_node_proto::commands::{CommandEvent, Gap, command_event::Kind, output};

use super::{
    log::{Inner, Spool, Store},
    position::Position,
    segment::{self, Parsed},
};
use crate::{guest::CallError, limits};

/// Events in order, then the end, or an error first.
#[derive(Debug)]
pub(crate) struct CommandStream {
    spool: Arc<Spool>,
    id: u64,
    cursor: Cursor,
    ready: VecDeque<CommandEvent>,
    ended: bool,
}

#[derive(Debug)]
struct Cursor {
    /// Of the last event that the reader has had, or said it has.
    sequence: u64,
    /// The next offset of stdout and stderr where the cursor is.
    offsets: [u64; 2],
    /// Bytes of both that were missing on the way there and were not told yet.
    lost: [u64; 2],
    number: u64,
    /// Of the next record in that segment.
    at: u64,
    /// The segment, once it was read from.
    file: Option<Arc<File>>,
}

enum Fetched {
    /// Records, though perhaps none that the reader didn't know.
    Some,
    /// There is nothing yet; the waker was left.
    Nothing,
    End,
}

impl CommandStream {
    pub(super) fn new(spool: Arc<Spool>, id: u64, after: u64, number: u64, start: Position) -> Self {
        let cursor =
            Cursor { sequence: after, offsets: start.bytes(), lost: [0; 2], number, at: 0, file: None };
        Self { spool, id, cursor, ready: VecDeque::new(), ended: false }
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.ready.len()
    }

    /// Reads once; `ready` may stay empty if all of it was known.
    fn fetch(&mut self, waker: &Waker) -> Result<Fetched, CallError> {
        let spool = Arc::clone(&self.spool);
        let mut inner = spool.lock();
        let Some((base, length)) = self.cursor.settle(&inner) else {
            if let Some(outcome) = inner.outcome() {
                return outcome.map(|()| Fetched::End);
            }
            inner.wait(self.id, waker);
            return Ok(Fetched::Nothing);
        };
        let room = usize::try_from(length - self.cursor.at).unwrap_or(usize::MAX).min(limits::READ);
        let mut bytes = vec![0; room];
        if let Err(error) = self.cursor.read(&spool, &inner, &mut bytes) {
            tracing::warn!(command_id = spool.command_id, %error, "a segment can't be read");
            return Err(inner.unreadable());
        }
        let mut read = 0;
        loop {
            match segment::parse_record(&bytes[read..]) {
                Parsed::Whole(event, length) => {
                    read += length;
                    self.ready.extend(self.cursor.pass(event));
                }
                Parsed::Short if read > 0 => break,
                Parsed::Short | Parsed::Damaged => return Err(inner.unreadable()),
            }
        }
        self.cursor.at += read as u64;
        if inner.read_up_to(base + self.cursor.at, &spool.shared.limits) {
            spool.shared.wake.notify_one();
        }
        Ok(Fetched::Some)
    }
}

impl Cursor {
    /// Goes to the segment with the next record; answers its base and length. `None`: there is no such record yet.
    fn settle(&mut self, inner: &Inner) -> Option<(u64, u64)> {
        if let Some(segment) = inner.segments.get(&self.number)
            && self.at < segment.length
        {
            return Some((segment.base, segment.length));
        }
        let (number, next) = inner.segments.range(self.number + 1..).next()?;
        self.number = *number;
        self.at = 0;
        self.file = None;
        for stream in 0..2 {
            self.lost[stream] += next.start.bytes()[stream].saturating_sub(self.offsets[stream]);
        }
        self.offsets = next.start.bytes();
        Some((next.base, next.length))
    }

    fn read(&mut self, spool: &Spool, inner: &Inner, bytes: &mut [u8]) -> io::Result<()> {
        let segment = inner.segments.get(&self.number).ok_or(io::ErrorKind::NotFound)?;
        let opened = match &segment.store {
            Store::Memory(records) => {
                let from = usize::try_from(self.at).unwrap_or(usize::MAX);
                let found = records.get(from..from + bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
                bytes.copy_from_slice(found);
                return Ok(());
            }
            Store::Disk(opened) => opened,
        };
        let file = match (&self.file, opened) {
            (Some(file), _) | (None, Some(file)) => Arc::clone(file),
            (None, None) => {
                let directory = spool.shared.directory.as_ref().ok_or(io::ErrorKind::NotFound)?;
                Arc::new(directory.open_to_read(&segment::name(&spool.command_id, self.number))?)
            }
        };
        file.read_exact_at(bytes, segment::HEAD as u64 + self.at)?;
        self.file = Some(file);
        Ok(())
    }

    /// What the reader gets to see of the next record: nothing of what it knows, and a gap before what does not
    /// follow.
    fn pass(&mut self, event: CommandEvent) -> impl Iterator<Item = CommandEvent> + use<> {
        self.count(&event);
        let lost = std::mem::take(&mut self.lost);
        if event.sequence <= self.sequence {
            return [None, None].into_iter().flatten();
        }
        let due = self.sequence + 1;
        let (generation, at_ms) = (event.generation, event.at_ms);
        let gap = |last_lost: u64, [stdout_bytes, stderr_bytes]: [u64; 2]| CommandEvent {
            sequence: last_lost,
            generation,
            at_ms,
            kind: Some(Kind::Gap(Gap { first_lost: due, last_lost, stdout_bytes, stderr_bytes })),
        };
        self.sequence = event.sequence;
        let seen = match &event.kind {
            Some(Kind::Gap(_)) => [Some(gap(event.sequence, lost)), None],
            Some(_) | None if event.sequence > due => [Some(gap(event.sequence - 1, lost)), Some(event)],
            Some(_) | None => [Some(event), None],
        };
        seen.into_iter().flatten()
    }

    /// Goes past an event with the offsets.
    fn count(&mut self, event: &CommandEvent) {
        match &event.kind {
            Some(Kind::Output(piece)) => {
                let stream = usize::from(piece.stream() == output::Stream::Stderr);
                self.offsets[stream] = piece.offset + piece.data.len() as u64;
            }
            Some(Kind::Gap(gap)) => {
                for (stream, bytes) in [gap.stdout_bytes, gap.stderr_bytes].into_iter().enumerate() {
                    self.offsets[stream] += bytes;
                    self.lost[stream] += bytes;
                }
            }
            Some(Kind::Started(_) | Kind::Exit(_)) | None => {}
        }
    }
}

impl Stream for CommandStream {
    type Item = Result<CommandEvent, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while !self.ended {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            let outcome = match self.fetch(context.waker()) {
                Ok(Fetched::Some) => continue,
                Ok(Fetched::Nothing) => return Poll::Pending,
                Ok(Fetched::End) => Ok(()),
                Err(error) => Err(error),
            };
            self.ended = true;
            return Poll::Ready(outcome.err().map(Err));
        }
        Poll::Ready(None)
    }
}

impl Drop for CommandStream {
    fn drop(&mut self) {
        self.spool.lock().leave(self.id);
    }
}
