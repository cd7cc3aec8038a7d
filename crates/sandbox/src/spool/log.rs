//! One command's spool: its segments, what is to be written, and who waits for it.
//!
//! ```text
//!   forgotten │ oldest segment … newest segment │ batch │ room until `command` bytes ahead of the furthest reader
//!             │ on disk, or in memory when the   │       │ are reached
//!             │ disk has no room                 │       │
//! ```
//! The owner of the guest appends and commits; readers fetch. Both for a moment under the lock, and neither waits for
//! the other: a reader that has all there is leaves its waker.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
};

use space_node_proto::commands::{CommandEvent, command_event::Kind};
use tokio::sync::Notify;
use tracing::warn;

use super::{
    SpoolLimits,
    directory::SpoolDirectory,
    position::{Discontinuity, Position},
    reader::CommandStream,
    segment,
};
use crate::guest::CallError;

/// Positions remembered of segments that are gone, so that a gap's bytes can be told to whoever comes back.
const FORGOTTEN: usize = 1024;

/// What all spools of a sandbox share.
#[derive(Debug)]
pub(super) struct Shared {
    /// `None`: the sandbox came without a directory, and all is kept in memory.
    pub(super) directory: Option<SpoolDirectory>,
    pub(super) limits: SpoolLimits,
    /// Bytes on disk.
    pub(super) disk: AtomicU64,
    /// Wakes the owner of the guest when a spool has room again.
    pub(super) wake: Arc<Notify>,
}

#[derive(Debug)]
pub(crate) struct Spool {
    pub(super) command_id: String,
    pub(super) shared: Arc<Shared>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
pub(super) struct Segment {
    pub(super) start: Position,
    /// Bytes of records in front of it, since the first.
    pub(super) base: u64,
    /// Bytes of its records.
    pub(super) length: u64,
    pub(super) store: Store,
}

#[derive(Debug)]
pub(super) enum Store {
    /// Open as long as it is written to.
    Disk(Option<Arc<File>>),
    Memory(Vec<u8>),
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) segments: BTreeMap<u64, Segment>,
    next_number: u64,
    /// Behind the last event, appended or in the batch.
    position: Position,
    batch: Vec<u8>,
    batch_start: Position,
    /// Bytes of records ever committed.
    written: u64,
    /// How many of them a reader has had, the furthest one.
    furthest: u64,
    disk_failed: bool,
    readers: HashMap<u64, Option<Waker>>,
    last_reader: u64,
    /// The owner waits for room.
    pub(super) hungry: bool,
    exited: bool,
    verdict: Option<CallError>,
    /// Where dropped segments began, oldest first, from the command's start.
    forgotten: Vec<Position>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Appended {
    Taken {
        exit: bool,
    },
    /// No room. The event was not taken and has to come again.
    Full,
}

impl Spool {
    pub(super) fn new(
        command_id: String,
        shared: Arc<Shared>,
        segments: BTreeMap<u64, Segment>,
        position: Position,
        exited: bool,
    ) -> Self {
        let next_number = segments.last_key_value().map_or(1, |(number, _segment)| number + 1);
        let written = segments.last_key_value().map_or(0, |(_number, newest)| newest.base + newest.length);
        let inner = Inner {
            segments,
            next_number,
            position,
            batch: Vec::new(),
            batch_start: position,
            written,
            furthest: 0,
            disk_failed: shared.directory.is_none(),
            readers: HashMap::new(),
            last_reader: 0,
            hungry: false,
            exited,
            verdict: None,
            forgotten: vec![Position::START],
        };
        Self { command_id, shared, inner: Mutex::new(inner) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sequence number of the last event taken.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.lock().position.sequence
    }

    /// Takes an event into the batch, if it continues the last one and there is room.
    pub(crate) fn append(&self, event: &CommandEvent) -> Result<Appended, Discontinuity> {
        let limits = &self.shared.limits;
        let mut inner = self.lock();
        let position = inner.position.advanced(event)?;
        let length = segment::record_length(event).ok_or(Discontinuity)? as u64;
        if length > inner.room(limits) {
            return Ok(Appended::Full);
        }
        segment::push_record(&mut inner.batch, event);
        inner.position = position;
        inner.exited = matches!(event.kind, Some(Kind::Exit(_)));
        Ok(Appended::Taken { exit: inner.exited })
    }

    /// Writes the batch with one call and wakes who waits for it.
    pub(crate) fn commit(&self) {
        let mut inner = self.lock();
        if inner.batch.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut inner.batch);
        match self.write(&mut inner, &batch) {
            Ok(()) if inner.disk_failed => {
                inner.disk_failed = false;
                self.move_to_disk(&mut inner);
            }
            Ok(()) => {}
            Err(error) => self.keep_in_memory(&mut inner, &batch, &error),
        }
        inner.written += batch.len() as u64;
        inner.batch_start = inner.position;
        // The next batch is about as long.
        inner.batch = batch;
        inner.batch.clear();
        self.trim(&mut inner);
        if inner.exited {
            inner.close_newest();
        }
        for waker in inner.readers.values_mut().filter_map(Option::take) {
            waker.wake();
        }
    }

    fn write(&self, inner: &mut Inner, batch: &[u8]) -> io::Result<()> {
        let directory = self.shared.directory.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let length = batch.len() as u64;
        if let Some((number, newest)) = inner.segments.last_key_value()
            && newest.length < self.shared.limits.segment
            && let Store::Disk(file) = &newest.store
        {
            let (number, at) = (*number, segment::HEAD as u64 + newest.length);
            let file = match file {
                Some(file) => Arc::clone(file),
                None => Arc::new(directory.open_to_append(&segment::name(&self.command_id, number))?),
            };
            file.write_all_at(batch, at)?;
            if let Some(newest) = inner.segments.get_mut(&number) {
                newest.length += length;
                newest.store = Store::Disk(Some(file));
            }
            self.shared.disk.fetch_add(length, Ordering::Relaxed);
            return Ok(());
        }
        inner.close_newest();
        let start = inner.batch_start;
        let file = self.write_segment(inner.next_number, &start, batch)?;
        inner.push_segment(start, length, Store::Disk(Some(Arc::new(file))));
        Ok(())
    }

    /// Makes the file of a segment. One that can't be written whole is removed.
    fn write_segment(&self, number: u64, start: &Position, records: &[u8]) -> io::Result<File> {
        let directory = self.shared.directory.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        directory.check_room()?;
        let name = segment::name(&self.command_id, number);
        let file = directory.create(&name)?;
        let whole = [&segment::head(start)[..], records].concat();
        if let Err(error) = file.write_all_at(&whole, 0) {
            directory.remove(&name);
            return Err(error);
        }
        self.shared.disk.fetch_add(records.len() as u64, Ordering::Relaxed);
        Ok(file)
    }

    fn keep_in_memory(&self, inner: &mut Inner, batch: &[u8], error: &io::Error) {
        if !inner.disk_failed {
            inner.disk_failed = true;
            warn!(command_id = self.command_id, %error, "a command's output is kept in memory");
        }
        let limits = &self.shared.limits;
        let piece = limits.memory / 4;
        if let Some((_number, newest)) = inner.segments.iter_mut().next_back()
            && newest.length < piece
            && let Store::Memory(records) = &mut newest.store
        {
            records.extend(batch);
            newest.length += batch.len() as u64;
        } else {
            inner.close_newest();
            inner.push_segment(inner.batch_start, batch.len() as u64, Store::Memory(batch.to_vec()));
        }
        while inner.memory() > limits.memory && inner.drop_read_memory() {}
    }

    /// There is room on the disk again: what had to stay in memory follows.
    fn move_to_disk(&self, inner: &mut Inner) {
        let Inner { segments, .. } = inner;
        for (number, segment) in segments.iter_mut() {
            if let Store::Memory(records) = &segment.store {
                match self.write_segment(*number, &segment.start, records) {
                    Ok(_file) => segment.store = Store::Disk(None),
                    Err(_error) => return,
                }
            }
        }
    }

    /// Drops old segments as long as the others hold enough.
    fn trim(&self, inner: &mut Inner) {
        while let Some((_number, oldest)) = inner.segments.first_key_value()
            && inner.segments.len() > 1
            && inner.written - oldest.base - oldest.length >= self.shared.limits.command
        {
            self.drop_oldest(inner);
        }
    }

    pub(super) fn drop_oldest(&self, inner: &mut Inner) {
        let Some((number, oldest)) = inner.segments.pop_first() else { return };
        inner.forget(oldest.start);
        if matches!(oldest.store, Store::Disk(_)) {
            self.shared.disk.fetch_sub(oldest.length, Ordering::Relaxed);
            if let Some(directory) = &self.shared.directory {
                directory.remove(&segment::name(&self.command_id, number));
            }
        }
    }

    /// Drops the oldest segment for the budget's sake. The last one of an exited command stays: its exit is in there.
    pub(super) fn shrink(&self) {
        let mut inner = self.lock();
        if inner.can_shrink() {
            self.drop_oldest(&mut inner);
        }
    }

    /// Bytes that shrinking may free.
    pub(super) fn shrinkable(&self) -> u64 {
        let inner = self.lock();
        if inner.can_shrink() { inner.segments.values().map(Segment::on_disk).sum() } else { 0 }
    }

    /// Removes what is on disk and in memory. Nobody may read it any more.
    pub(crate) fn clear(&self) {
        let mut inner = self.lock();
        while !inner.segments.is_empty() {
            self.drop_oldest(&mut inner);
        }
    }

    /// Bytes that may be appended before the furthest reader has come closer.
    pub(crate) fn room(&self) -> u64 {
        self.lock().room(&self.shared.limits)
    }

    /// Whether so much was read that the guest should be asked for more; if not, the owner is woken once it was.
    pub(crate) fn wants_more(&self) -> bool {
        let mut inner = self.lock();
        inner.hungry = inner.room(&self.shared.limits) < self.shared.limits.resume();
        !inner.hungry
    }

    /// Whether nothing follows: it has exited, or what follows can't be had.
    pub(crate) fn is_over(&self) -> bool {
        let inner = self.lock();
        inner.exited || inner.verdict.is_some()
    }

    pub(crate) fn readers(&self) -> usize {
        self.lock().readers.len()
    }

    /// Readers get what there is, then `error`, unless the exit is among it.
    pub(crate) fn fail(&self, error: CallError) {
        let mut inner = self.lock();
        inner.verdict.get_or_insert(error);
        inner.close_newest();
        for waker in inner.readers.values_mut().filter_map(Option::take) {
            waker.wake();
        }
    }

    /// Takes a verdict back: another attempt may go better.
    pub(crate) fn revive(&self) {
        self.lock().verdict = None;
    }

    pub(crate) fn verdict(&self) -> Option<CallError> {
        self.lock().verdict.clone()
    }

    /// A reader of what follows `after`.
    pub(crate) fn reader(self: &Arc<Self>, after: u64) -> CommandStream {
        let mut inner = self.lock();
        inner.last_reader += 1;
        let id = inner.last_reader;
        inner.readers.insert(id, None);
        let found = inner.segments.iter().rev().find(|(_number, segment)| segment.start.sequence <= after);
        let (number, start) = match found {
            Some((number, segment)) => (*number, segment.start),
            None => (0, inner.remembered(after)),
        };
        drop(inner);
        CommandStream::new(Arc::clone(self), id, after, number, start)
    }
}

impl SpoolLimits {
    /// Room at which a guest is asked for more again.
    fn resume(&self) -> u64 {
        self.window.min(self.command / 2).min(self.memory / 2)
    }
}

impl Segment {
    pub(super) const fn on_disk(&self) -> u64 {
        match self.store {
            Store::Disk(_) => self.length,
            Store::Memory(_) => 0,
        }
    }

    const fn in_memory(&self) -> u64 {
        match self.store {
            Store::Disk(_) => 0,
            Store::Memory(_) => self.length,
        }
    }
}

impl Inner {
    fn room(&self, limits: &SpoolLimits) -> u64 {
        let written = self.written + self.batch.len() as u64;
        let pace = self.furthest.saturating_add(limits.command).saturating_sub(written);
        if !self.disk_failed {
            return pace;
        }
        let unread = self.segments.values().filter(|segment| segment.base + segment.length > self.furthest);
        let held = unread.map(Segment::in_memory).sum::<u64>() + self.batch.len() as u64;
        pace.min(limits.memory.saturating_sub(held))
    }

    fn memory(&self) -> u64 {
        self.segments.values().map(Segment::in_memory).sum()
    }

    /// Drops the oldest segment in memory that the furthest reader is past. False: there is none.
    fn drop_read_memory(&mut self) -> bool {
        let read =
            |segment: &Segment| segment.in_memory() > 0 && segment.base + segment.length <= self.furthest;
        let found = self.segments.iter().find(|(_number, segment)| read(segment)).map(|(number, _)| *number);
        let dropped = found.and_then(|number| self.segments.remove(&number));
        if let Some(segment) = &dropped {
            self.forget(segment.start);
        }
        dropped.is_some()
    }

    fn push_segment(&mut self, start: Position, length: u64, store: Store) {
        let segment = Segment { start, base: self.written, length, store };
        self.segments.insert(self.next_number, segment);
        self.next_number += 1;
    }

    fn close_newest(&mut self) {
        if let Some((_number, newest)) = self.segments.iter_mut().next_back()
            && let Store::Disk(file) = &mut newest.store
        {
            *file = None;
        }
    }

    fn can_shrink(&self) -> bool {
        let droppable = if self.exited { self.segments.len() > 1 } else { !self.segments.is_empty() };
        droppable && self.segments.first_key_value().is_some_and(|(_number, oldest)| oldest.on_disk() > 0)
    }

    fn forget(&mut self, start: Position) {
        if self.forgotten.len() >= FORGOTTEN {
            let mut keep = false;
            self.forgotten.retain(|_start| {
                keep = !keep;
                keep
            });
        }
        self.forgotten.push(start);
    }

    /// The last position known at or in front of `after`.
    fn remembered(&self, after: u64) -> Position {
        let known = self.forgotten.iter().rev().find(|start| start.sequence <= after);
        known.copied().unwrap_or(Position::START)
    }

    /// The furthest reader has had the first `bytes`. True: the owner waits for that.
    pub(super) fn read_up_to(&mut self, bytes: u64, limits: &SpoolLimits) -> bool {
        self.furthest = self.furthest.max(bytes);
        let satisfied = self.hungry && self.room(limits) >= limits.resume();
        if satisfied {
            self.hungry = false;
        }
        satisfied
    }

    pub(super) fn wait(&mut self, reader: u64, waker: &Waker) {
        self.readers.insert(reader, Some(waker.clone()));
    }

    pub(super) fn leave(&mut self, reader: u64) {
        self.readers.remove(&reader);
    }

    /// What follows the last event: nothing yet, the end, or why there is none.
    pub(super) fn outcome(&self) -> Option<Result<(), CallError>> {
        match &self.verdict {
            _ if self.exited => Some(Ok(())),
            Some(error) => Some(Err(error.clone())),
            None => None,
        }
    }

    /// Why what is here can't be read.
    pub(super) fn unreadable(&self) -> CallError {
        self.verdict.clone().unwrap_or(CallError::Unreadable)
    }
}
