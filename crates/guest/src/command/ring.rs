//! The events of one command, the newest of them kept in bounded memory.
//!
//! Sequence numbers and offsets count everything that ever happened; what was overwritten shows to a reader as
//! a gap. Appending never fails and never waits, so a reader can't hold the command back. Pure.

use std::collections::VecDeque;

use space_guest_proto::{Stream, limits};

/// What an event is stamped with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) generation: u64,
    pub(crate) at_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Started,
    Output(Stream),
    Exit,
}

#[derive(Debug, Clone, Copy)]
struct Record {
    stamp: Stamp,
    kind: Kind,
    /// Bytes of data: at most `DATA_BYTES`.
    length: u32,
    /// Of the data within its stream.
    offset: u64,
    /// Of the data within all data that this ring ever held.
    start: u64,
}

/// An event as a reader finds it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    Started,
    Output { stream: Stream, offset: u64, data: [&'a [u8]; 2] },
    Exit,
}

/// What comes next for a reader.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    /// Nothing yet.
    Wait,
    /// Events `first` to `last` are gone. The offsets are where each stream goes on.
    Gap {
        first: u64,
        last: u64,
        offsets: [u64; 2],
    },
    Event {
        sequence: u64,
        stamp: Stamp,
        entry: Entry<'a>,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Ring {
    records: VecDeque<Record>,
    data: VecDeque<u8>,
    /// Sequence number of the last event that is gone; the first record's is one more.
    lost: u64,
    /// Where the streams stood behind the last event that is gone.
    lost_offsets: [u64; 2],
    offsets: [u64; 2],
    /// `start` of the first byte in `data`.
    data_start: u64,
}

impl Ring {
    pub(crate) fn last_sequence(&self) -> u64 {
        self.lost + self.records.len() as u64
    }

    /// Memory in use, as the limits count it.
    pub(crate) fn cost(&self) -> usize {
        self.data.len() + self.records.len() * limits::RING_EVENT_BYTES
    }

    pub(crate) fn push_started(&mut self, stamp: Stamp) {
        self.push(stamp, Kind::Started, &[]);
    }

    /// `data` is at most `DATA_BYTES`, as one read from a pipe gives.
    pub(crate) fn push_output(&mut self, stamp: Stamp, stream: Stream, data: &[u8]) {
        self.push(stamp, Kind::Output(stream), data);
    }

    /// The last event. Gives back what room was kept for more.
    pub(crate) fn push_exit(&mut self, stamp: Stamp) {
        self.push(stamp, Kind::Exit, &[]);
        self.data.shrink_to_fit();
        self.records.shrink_to_fit();
    }

    fn push(&mut self, stamp: Stamp, kind: Kind, data: &[u8]) {
        let room = limits::RING_BYTES - limits::RING_EVENT_BYTES;
        self.shrink_to(room.saturating_sub(data.len()));
        let offset = match kind {
            Kind::Output(stream) => {
                let next = &mut self.offsets[stream.index()];
                std::mem::replace(next, *next + data.len() as u64)
            }
            Kind::Started | Kind::Exit => 0,
        };
        let start = self.data_start + self.data.len() as u64;
        self.reserve(data.len());
        self.data.extend(data);
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.records.push_back(Record { stamp, kind, length, offset, start });
    }

    /// Doubles like a vector, but never beyond the ring's limit.
    fn reserve(&mut self, more: usize) {
        let needed = self.data.len() + more;
        if needed > self.data.capacity() {
            let doubled = (self.data.capacity() * 2).clamp(4096, limits::RING_BYTES).max(needed);
            self.data.reserve_exact(doubled - self.data.len());
        }
    }

    /// Drops the oldest events until the cost is at most `cost`. Never drops the exit.
    pub(crate) fn shrink_to(&mut self, cost: usize) {
        while self.cost() > cost {
            match self.records.front() {
                Some(Record { kind: Kind::Exit, .. }) | None => return,
                Some(Record { kind: Kind::Started | Kind::Output(_), .. }) => self.drop_oldest(),
            }
        }
    }

    fn drop_oldest(&mut self) {
        let Some(record) = self.records.pop_front() else { return };
        let length = (record.length as usize).min(self.data.len());
        self.data.drain(..length);
        self.data_start += length as u64;
        self.lost += 1;
        if let Kind::Output(stream) = record.kind {
            self.lost_offsets[stream.index()] = record.offset + u64::from(record.length);
        }
    }

    /// Gives room that isn't in use back to the allocator.
    pub(crate) fn release(&mut self) {
        self.data.shrink_to(self.data.len());
        self.records.shrink_to(self.records.len());
    }

    /// The first event behind `after`.
    pub(crate) fn next(&self, after: u64) -> Next<'_> {
        if after < self.lost {
            return Next::Gap { first: after + 1, last: self.lost, offsets: self.lost_offsets };
        }
        let index = usize::try_from(after - self.lost).unwrap_or(usize::MAX);
        let Some(record) = self.records.get(index) else {
            return Next::Wait;
        };
        let entry = match record.kind {
            Kind::Started => Entry::Started,
            Kind::Exit => Entry::Exit,
            Kind::Output(stream) => {
                Entry::Output { stream, offset: record.offset, data: self.slices(record) }
            }
        };
        Next::Event { sequence: after + 1, stamp: record.stamp, entry }
    }

    fn slices(&self, record: &Record) -> [&[u8]; 2] {
        let from = usize::try_from(record.start - self.data_start).unwrap_or(usize::MAX);
        let to = from.saturating_add(record.length as usize);
        let (front, back) = self.data.as_slices();
        let cut = |slice: &'_ [u8], base: usize| {
            let clamp = |at: usize| at.saturating_sub(base).min(slice.len());
            clamp(from)..clamp(to)
        };
        let (in_front, in_back) = (cut(front, 0), cut(back, front.len()));
        [front.get(in_front).unwrap_or_default(), back.get(in_back).unwrap_or_default()]
    }

    /// Where the streams stood behind event `after`; `None` where that is no longer known.
    pub(crate) fn offsets_behind(&self, after: u64) -> Option<[u64; 2]> {
        if after == 0 {
            return Some([0, 0]);
        }
        let count = usize::try_from(after.checked_sub(self.lost)?).ok()?;
        let mut offsets = self.lost_offsets;
        for record in self.records.iter().take(count) {
            if let Kind::Output(stream) = record.kind {
                offsets[stream.index()] = record.offset + u64::from(record.length);
            }
        }
        Some(offsets)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAMP: Stamp = Stamp { generation: 1, at_ms: 2 };

    fn stream(stderr: bool) -> Stream {
        if stderr { Stream::Stderr } else { Stream::Stdout }
    }

    proptest! {
        /// A reader that reads whenever it likes gets every byte at its offset, or a gap of exactly that size.
        #[test]
        fn what_a_reader_sees_is_whole_or_a_gap(
            writes in prop::collection::vec((any::<bool>(), 1..limits::DATA_BYTES, any::<u8>(), 0..4_usize), 1..80),
            squeeze in prop::option::of(0..200_000_usize),
        ) {
            let mut ring = Ring::default();
            let mut written: [Vec<u8>; 2] = Default::default();
            let (mut at, mut seen) = (0, [0_u64; 2]);
            ring.push_started(STAMP);
            let total = writes.len();
            for (number, (stderr, length, byte, reads)) in writes.into_iter().enumerate() {
                let stream = stream(stderr);
                let data: Vec<u8> = (0..length).map(|i| byte.wrapping_add(i.to_le_bytes()[0])).collect();
                ring.push_output(STAMP, stream, &data);
                written[stream.index()].extend(&data);
                prop_assert!(ring.cost() <= limits::RING_BYTES);
                prop_assert!(ring.data.capacity() <= limits::RING_BYTES + limits::DATA_BYTES);
                if let Some(squeeze) = squeeze { ring.shrink_to(squeeze); }
                let reads = if number + 1 == total { usize::MAX } else { reads };
                for _ in 0..reads {
                    match ring.next(at) {
                        Next::Wait => break,
                        Next::Gap { first, last, offsets } => {
                            prop_assert_eq!(first, at + 1);
                            prop_assert!(last >= first);
                            prop_assert!(offsets[0] >= seen[0] && offsets[1] >= seen[1]);
                            (at, seen) = (last, offsets);
                        }
                        Next::Event { sequence, entry, .. } => {
                            prop_assert_eq!(sequence, at + 1);
                            at = sequence;
                            if let Entry::Output { stream, offset, data } = entry {
                                prop_assert_eq!(offset, seen[stream.index()]);
                                let data = data.concat();
                                let from = usize::try_from(offset).unwrap();
                                prop_assert_eq!(&data[..], &written[stream.index()][from..from + data.len()]);
                                seen[stream.index()] += data.len() as u64;
                            }
                        }
                    }
                    prop_assert_eq!(ring.offsets_behind(at), Some(seen));
                }
            }
            prop_assert_eq!(at, ring.last_sequence());
            prop_assert_eq!(seen, [written[0].len() as u64, written[1].len() as u64]);
        }
    }

    #[test]
    fn a_million_tiny_writes_stay_within_the_limit() {
        let mut ring = Ring::default();
        for _ in 0..1_000_000 {
            ring.push_output(STAMP, Stream::Stdout, b"x");
        }
        assert!(ring.cost() <= limits::RING_BYTES);
        assert_eq!(ring.last_sequence(), 1_000_000);
    }

    #[test]
    fn the_exit_is_never_lost() {
        let mut ring = Ring::default();
        ring.push_output(STAMP, Stream::Stdout, b"x");
        ring.push_exit(STAMP);
        ring.shrink_to(0);
        assert_eq!(ring.next(0), Next::Gap { first: 1, last: 1, offsets: [1, 0] });
        assert_eq!(ring.next(1), Next::Event { sequence: 2, stamp: STAMP, entry: Entry::Exit });
        assert_eq!(ring.next(2), Next::Wait);
    }
}
