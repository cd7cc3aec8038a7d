//! Spools without a guest: what is appended is read, by readers of any pace, through full disks and restarts.

#![allow(clippy::cast_possible_truncation, reason = "numbers are small")]

use std::{collections::HashMap, fs, os::fd::OwnedFd, path::Path, sync::Arc};

use futures::{FutureExt, StreamExt};
use space_node_proto::commands::{
    CommandEvent, Exit, Gap, Output, Started, command_event::Kind, output::Stream,
};
use tokio::sync::Notify;

use super::{Appended, CommandStream, Shelf, Spool, SpoolLimits};
use crate::{
    guest::{CallError, Fate},
    limits,
};

pub(crate) const SMALL: SpoolLimits = SpoolLimits {
    segment: 64 * 1024,
    command: 512 * 1024,
    sandbox: 4 * 1024 * 1024,
    memory: 128 * 1024,
    window: 128 * 1024,
    free_percent: 0,
};
const PIECE: usize = 8 * 1024;

struct Bench {
    directory: tempfile::TempDir,
    limits: SpoolLimits,
    wake: Arc<Notify>,
    shelf: Shelf,
}

impl Bench {
    fn new(limits: SpoolLimits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let wake = Arc::new(Notify::new());
        let shelf = Shelf::new(Some(opened(directory.path())), limits, Arc::clone(&wake));
        Self { directory, limits, wake, shelf }
    }

    /// What another worker finds.
    fn restart(&mut self) -> HashMap<String, Arc<Spool>> {
        self.shelf = Shelf::new(Some(opened(self.directory.path())), self.limits, Arc::clone(&self.wake));
        self.shelf.recover()
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    fn woken(&self) -> bool {
        self.wake.notified().now_or_never().is_some()
    }
}

fn opened(path: &Path) -> OwnedFd {
    fs::File::open(path).unwrap().into()
}

/// Writes a command's events.
struct Writer {
    spool: Arc<Spool>,
    sequence: u64,
    offset: u64,
}

impl Writer {
    fn new(spool: &Arc<Spool>) -> Self {
        Self { spool: Arc::clone(spool), sequence: 0, offset: 0 }
    }

    fn say(&mut self, kind: Kind) -> Appended {
        let event = CommandEvent { sequence: self.sequence + 1, generation: 1, at_ms: 5, kind: Some(kind) };
        let appended = self.spool.append(&event).unwrap();
        self.spool.commit();
        if appended != Appended::Full {
            self.sequence += 1;
        }
        appended
    }

    fn piece(&mut self) -> Appended {
        let data = data(self.offset, PIECE);
        let appended =
            self.say(Kind::Output(Output { stream: Stream::Stdout.into(), offset: self.offset, data }));
        if appended != Appended::Full {
            self.offset += PIECE as u64;
        }
        appended
    }

    fn pieces(&mut self, count: usize) {
        for _piece in 0..count {
            assert_ne!(self.piece(), Appended::Full);
        }
    }

    fn exit(&mut self) {
        assert_eq!(self.say(Kind::Exit(Exit::default())), Appended::Taken { exit: true });
    }
}

fn data(offset: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| ((offset + at) % 251) as u8).collect()
}

/// All that is there now.
fn drain(stream: &mut CommandStream) -> Vec<CommandEvent> {
    let mut events = Vec::new();
    while let Some(Some(event)) = stream.next().now_or_never() {
        events.push(event.unwrap());
    }
    events
}

/// Checks that every byte is there, once and in order, or within a gap that says how many.
fn heard(events: &[CommandEvent], after: u64) -> Heard {
    let mut heard = Heard { last: after, bytes: 0, lost: 0, gaps: 0, exits: 0 };
    let mut offset = None;
    for event in events {
        match event.kind.as_ref().unwrap() {
            Kind::Gap(gap) => {
                assert_eq!((gap.first_lost, gap.last_lost), (heard.last + 1, event.sequence));
                heard.lost += gap.stdout_bytes;
                heard.gaps += 1;
                offset = offset.map(|offset| offset + gap.stdout_bytes);
            }
            kind @ (Kind::Started(_) | Kind::Output(_) | Kind::Exit(_)) => {
                assert_eq!(event.sequence, heard.last + 1);
                if let Kind::Output(piece) = kind {
                    assert!(
                        offset.is_none_or(|offset| offset == piece.offset),
                        "{offset:?} {}",
                        piece.offset
                    );
                    assert_eq!(piece.data, data(piece.offset, piece.data.len()));
                    offset = Some(piece.offset + piece.data.len() as u64);
                    heard.bytes += piece.data.len() as u64;
                }
                heard.exits += usize::from(matches!(kind, Kind::Exit(_)));
            }
        }
        heard.last = event.sequence;
    }
    heard
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Heard {
    last: u64,
    bytes: u64,
    lost: u64,
    gaps: usize,
    exits: usize,
}

#[test]
fn readers_of_any_pace_get_every_event_once_and_in_order() {
    let bench = Bench::new(SMALL);
    let spool = bench.shelf.spool("c");
    let mut writer = Writer::new(&spool);
    writer.say(Kind::Started(Started { pid: 7 }));
    let mut readers: Vec<_> = (0..4).map(|_reader| spool.reader(0)).collect();
    let mut events = vec![Vec::new(); readers.len()];
    for round in 0..40 {
        writer.pieces(1);
        for (pace, (reader, events)) in readers.iter_mut().zip(&mut events).enumerate() {
            if round % (1 << pace) == 0 {
                events.extend(drain(reader));
            }
        }
    }
    writer.exit();
    for (reader, events) in readers.iter_mut().zip(&mut events) {
        events.extend(drain(reader));
        let expected = Heard { last: 42, bytes: 40 * PIECE as u64, lost: 0, gaps: 0, exits: 1 };
        assert_eq!(heard(events, 0), expected);
        assert!(reader.next().now_or_never().unwrap().is_none(), "the stream ends behind the exit");
    }
}

#[test]
fn an_only_reader_however_slow_loses_nothing_and_the_writer_has_to_wait() {
    let bench = Bench::new(SMALL);
    let spool = bench.shelf.spool("c");
    let mut writer = Writer::new(&spool);
    let mut reader = spool.reader(0);
    let mut events = Vec::new();
    let mut waits = 0;
    while writer.offset < 4 * SMALL.command {
        if writer.piece() == Appended::Full {
            waits += 1;
            assert!(!spool.wants_more());
            while !bench.woken() {
                events.push(reader.next().now_or_never().unwrap().unwrap().unwrap());
            }
            assert!(spool.wants_more());
        }
    }
    writer.exit();
    events.extend(drain(&mut reader));
    let expected = Heard { last: writer.sequence, bytes: writer.offset, lost: 0, gaps: 0, exits: 1 };
    assert_eq!(heard(&events, 0), expected);
    assert!(waits > 0, "the writer never ran ahead");
}

#[test]
fn a_command_that_nobody_reads_costs_its_size_once() {
    let bench = Bench::new(SMALL);
    let spool = bench.shelf.spool("c");
    let mut writer = Writer::new(&spool);
    while writer.piece() != Appended::Full {}
    for _again in 0..100 {
        assert_eq!(writer.piece(), Appended::Full);
    }
    let on_disk: u64 =
        bench.files().iter().map(|name| fs::metadata(bench.directory.path().join(name)).unwrap().len()).sum();
    assert!(on_disk <= SMALL.command + 1024 && on_disk > SMALL.command - 2 * PIECE as u64, "{on_disk}");
}

#[test]
fn a_reader_slower_than_the_furthest_by_more_than_a_spool_gets_one_right_gap() {
    let bench = Bench::new(SMALL);
    let spool = bench.shelf.spool("c");
    let mut writer = Writer::new(&spool);
    let (mut fast, mut slow, mut late) = (spool.reader(0), spool.reader(0), spool.reader(0));
    writer.pieces(1);
    let mut seen = drain(&mut slow);
    for _piece in 0..200 {
        writer.pieces(1);
        drain(&mut fast);
    }
    writer.exit();
    seen.extend(drain(&mut slow));
    for (events, had) in [(seen, 1), (drain(&mut late), 0)] {
        let heard = heard(&events, 0);
        assert_eq!((heard.last, heard.gaps, heard.exits), (writer.sequence, 1, 1));
        assert_eq!(heard.bytes + heard.lost, writer.offset);
        assert!(heard.bytes >= SMALL.command - PIECE as u64, "{} bytes behind {had}", heard.bytes);
    }
}

#[test]
fn a_gap_of_the_guest_and_one_of_the_spool_are_told_as_one() {
    let bench = Bench::new(SMALL);
    let spool = bench.shelf.spool("c");
    let mut writer = Writer::new(&spool);
    let (mut fast, mut slow) = (spool.reader(0), spool.reader(0));
    for _piece in 0..60 {
        writer.pieces(1);
        drain(&mut fast);
    }
    // Rolls the segment over, so that the guest's gap is the first record of one.
    while !matches!(spool.lock().segments.last_key_value(), Some((_, newest)) if newest.length >= SMALL.segment)
    {
        writer.pieces(1);
        drain(&mut fast);
    }
    let lost = Gap {
        first_lost: writer.sequence + 1,
        last_lost: writer.sequence + 10,
        stdout_bytes: 100,
        stderr_bytes: 0,
    };
    let event =
        CommandEvent { sequence: lost.last_lost, generation: 1, at_ms: 5, kind: Some(Kind::Gap(lost)) };
    spool.append(&event).unwrap();
    spool.commit();
    writer.sequence += 10;
    writer.offset += 100;
    let first_kept = *spool.lock().segments.last_key_value().unwrap().0;
    while *spool.lock().segments.first_key_value().unwrap().0 < first_kept {
        writer.pieces(1);
        drain(&mut fast);
    }
    let events = drain(&mut slow);
    let heard = heard(&events, 0);
    assert_eq!((heard.gaps, heard.last, heard.bytes + heard.lost), (1, writer.sequence, writer.offset));
}

#[test]
fn a_reader_comes_back_behind_any_event() {
    let bench = Bench::new(SMALL);
    let spool = bench.shelf.spool("c");
    let mut writer = Writer::new(&spool);
    writer.pieces(30);
    writer.exit();
    for after in 0..=writer.sequence {
        let heard = heard(&drain(&mut spool.reader(after)), after);
        assert_eq!((heard.last, heard.gaps), (writer.sequence, 0));
        assert_eq!(heard.exits, usize::from(after < writer.sequence));
    }
    assert!(spool.reader(1_000_000).next().now_or_never().unwrap().is_none());
    assert!(spool.reader(u64::MAX).next().now_or_never().unwrap().is_none());
}

#[tokio::test]
async fn a_reader_that_waits_is_woken_by_the_next_event_and_by_the_end() {
    let bench = Bench::new(SMALL);
    let spool = bench.shelf.spool("c");
    let mut reader = spool.reader(0);
    let waiting = tokio::spawn(async move {
        let first = reader.next().await;
        (first, reader.next().await)
    });
    tokio::task::yield_now().await;
    Writer::new(&spool).pieces(1);
    tokio::task::yield_now().await;
    spool.fail(CallError::Ended(Fate::Released));
    let (first, second) = waiting.await.unwrap();
    assert_eq!(first.unwrap().unwrap().sequence, 1);
    assert!(matches!(second, Some(Err(CallError::Ended(Fate::Released)))), "{second:?}");
}

#[test]
fn readers_that_leave_leave_nothing_behind() {
    let bench = Bench::new(SMALL);
    let spool = bench.shelf.spool("c");
    let readers: Vec<_> = (0..10)
        .map(|_reader| {
            let mut reader = spool.reader(0);
            assert!(reader.next().now_or_never().is_none());
            reader
        })
        .collect();
    assert_eq!(spool.readers(), 10);
    drop(readers);
    assert_eq!((spool.readers(), Arc::strong_count(&spool)), (0, 1));
}

#[test]
fn after_a_restart_readers_and_the_spooler_go_on_where_they_were() {
    let mut bench = Bench::new(SMALL);
    let spool = bench.shelf.spool("c");
    let mut writer = Writer::new(&spool);
    writer.pieces(30);
    let mut reader = spool.reader(0);
    let mut events = Vec::new();
    for _event in 0..12 {
        events.push(reader.next().now_or_never().unwrap().unwrap().unwrap());
    }
    drop(reader);

    let spool = bench.restart().remove("c").unwrap();
    assert_eq!((spool.last_sequence(), spool.is_over()), (30, false));
    writer.spool = Arc::clone(&spool);
    writer.pieces(20);
    writer.exit();
    events.extend(drain(&mut spool.reader(12)));
    let expected = Heard { last: 51, bytes: 50 * PIECE as u64, lost: 0, gaps: 0, exits: 1 };
    assert_eq!(heard(&events, 0), expected);

    let spool = bench.restart().remove("c").unwrap();
    assert!(spool.is_over());
    assert_eq!(heard(&drain(&mut spool.reader(0)), 0), expected);
}

#[test]
fn a_record_that_was_torn_anywhere_is_cut_off_and_written_again() {
    let mut bench = Bench::new(SMALL);
    let spool = bench.shelf.spool("c");
    Writer::new(&spool).pieces(2);
    let path = bench.directory.path().join("c.000001");
    let whole = fs::read(&path).unwrap();
    for length in (0..whole.len()).step_by(97).chain([39, 40, 41, 52, whole.len() - 1]) {
        fs::write(&path, &whole[..length]).unwrap();
        let found = bench.restart();
        let spool = found.get("c").cloned().unwrap_or_else(|| bench.shelf.spool("c"));
        let kept = spool.last_sequence();
        assert!(kept < 2, "{length} of {} bytes held {kept} events", whole.len());
        let mut writer = Writer { spool, sequence: kept, offset: kept * PIECE as u64 };
        writer.pieces(2);
        let heard = heard(&drain(&mut writer.spool.reader(0)), 0);
        assert_eq!((heard.last, heard.bytes, heard.gaps), (kept + 2, writer.offset, 0), "{length}");
        writer.spool.clear();
    }
}

#[test]
fn what_is_no_spool_is_removed_and_no_link_is_followed() {
    let mut bench = Bench::new(SMALL);
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::write(outside.path(), "secret").unwrap();
    std::os::unix::fs::symlink(outside.path(), bench.directory.path().join("c.000001")).unwrap();
    fs::write(bench.directory.path().join("d.000001"), "no segment").unwrap();
    fs::write(bench.directory.path().join("whatever"), "").unwrap();
    assert!(bench.restart().is_empty());
    assert_eq!(bench.files(), Vec::<String>::new());
    std::os::unix::fs::symlink(outside.path(), bench.directory.path().join("c.000001")).unwrap();
    let spool = bench.shelf.spool("c");
    Writer::new(&spool).pieces(1);
    assert_eq!(heard(&drain(&mut spool.reader(0)), 0).bytes, PIECE as u64);
    assert_eq!(fs::read_to_string(outside.path()).unwrap(), "secret");
}

#[test]
fn a_disk_without_room_makes_the_spool_small_and_the_stream_stays_right() {
    let bench = Bench::new(SpoolLimits { free_percent: 100, ..SMALL });
    let spool = bench.shelf.spool("c");
    let mut writer = Writer::new(&spool);
    let mut reader = spool.reader(0);
    let mut events = Vec::new();
    let mut waits = 0;
    while writer.offset < SMALL.command {
        if writer.piece() == Appended::Full {
            waits += 1;
            assert!(
                spool.lock().segments.values().map(|segment| segment.length).sum::<u64>() <= SMALL.memory
            );
            assert!(!spool.wants_more());
            events.extend(drain(&mut reader));
            assert!(bench.woken() && spool.wants_more());
        }
    }
    writer.exit();
    events.extend(drain(&mut reader));
    let expected = Heard { last: writer.sequence, bytes: writer.offset, lost: 0, gaps: 0, exits: 1 };
    assert_eq!(heard(&events, 0), expected);
    assert!(waits > 2 && bench.files().is_empty());
}

#[test]
fn a_disk_that_fails_in_the_middle_loses_nothing_that_is_still_to_be_read() {
    let bench = Bench::new(SMALL);
    let spool = bench.shelf.spool("c");
    let mut writer = Writer::new(&spool);
    let mut reader = spool.reader(0);
    writer.pieces(3);
    let mut events = drain(&mut reader);
    // The newest segment stays open and can be written to; the next can't be made.
    let path = bench.directory.path().to_owned();
    fs::remove_dir_all(&path).unwrap();
    for _round in 0..30 {
        writer.pieces(2);
        events.extend(drain(&mut reader));
    }
    assert!(spool.lock().segments.values().any(|segment| segment.on_disk() == 0));
    writer.exit();
    events.extend(drain(&mut reader));
    let expected = Heard { last: 64, bytes: 63 * PIECE as u64, lost: 0, gaps: 0, exits: 1 };
    assert_eq!(heard(&events, 0), expected);
    fs::create_dir(&path).unwrap();
}

#[test]
fn output_kept_in_memory_goes_to_the_disk_once_there_is_room() {
    let mut bench = Bench::new(SMALL);
    let spool = bench.shelf.spool("c");
    let mut writer = Writer::new(&spool);
    // No file can be made of these names.
    let taken: Vec<_> = (1..=9).map(|n| bench.directory.path().join(format!("c.{n:06}"))).collect();
    for path in &taken {
        fs::create_dir(path).unwrap();
    }
    writer.pieces(6);
    assert_eq!(spool.lock().segments.values().map(super::log::Segment::on_disk).sum::<u64>(), 0);
    for path in &taken {
        fs::remove_dir(path).unwrap();
    }
    writer.pieces(1);
    writer.exit();
    let spool = bench.restart().remove("c").unwrap();
    let expected = Heard { last: 8, bytes: 7 * PIECE as u64, lost: 0, gaps: 0, exits: 1 };
    assert_eq!(heard(&drain(&mut spool.reader(0)), 0), expected);
}

#[test]
fn over_its_budget_a_sandbox_drops_the_oldest_segments_of_the_largest_spool() {
    let bench = Bench::new(SpoolLimits { sandbox: 512 * 1024, ..SMALL });
    let spools: Vec<_> = ["a", "b", "c"].map(|id| bench.shelf.spool(id)).to_vec();
    let mut writers: Vec<_> = spools.iter().map(Writer::new).collect();
    let mut small = spools[2].reader(0);
    writers[0].pieces(50);
    writers[1].pieces(20);
    writers[2].pieces(2);
    assert!(bench.shelf.is_over_budget());
    bench.shelf.shrink(&spools.iter());
    assert!(!bench.shelf.is_over_budget());
    let on_disk: u64 =
        bench.files().iter().map(|name| fs::metadata(bench.directory.path().join(name)).unwrap().len()).sum();
    assert!(on_disk <= 512 * 1024 + 1024, "{on_disk}");
    assert_eq!(heard(&drain(&mut small), 0).bytes, 2 * PIECE as u64);
    let largest = heard(&drain(&mut spools[0].reader(0)), 0);
    assert_eq!((largest.gaps, largest.bytes + largest.lost), (1, 50 * PIECE as u64));
    let second = heard(&drain(&mut spools[1].reader(0)), 0);
    assert_eq!((second.gaps, second.bytes), (0, 20 * PIECE as u64));
}

#[test]
fn the_exit_of_a_command_outlasts_every_budget() {
    let bench = Bench::new(SpoolLimits { sandbox: 0, ..SMALL });
    let spool = bench.shelf.spool("c");
    let mut writer = Writer::new(&spool);
    let mut reader = spool.reader(0);
    writer.pieces(30);
    writer.exit();
    bench.shelf.shrink(&[&spool].into_iter());
    let heard = heard(&drain(&mut reader), 0);
    assert_eq!((heard.exits, heard.gaps, heard.bytes + heard.lost), (1, 1, writer.offset));
}

#[test]
fn an_event_that_does_not_continue_the_last_is_refused() {
    let bench = Bench::new(SMALL);
    let spool = bench.shelf.spool("c");
    let output = |sequence, offset| CommandEvent {
        sequence,
        generation: 1,
        at_ms: 1,
        kind: Some(Kind::Output(Output { stream: Stream::Stdout.into(), offset, data: vec![1; 10] })),
    };
    for lie in [output(0, 0), output(2, 0), output(u64::MAX, 0), output(1, 1), output(1, u64::MAX)] {
        assert!(spool.append(&lie).is_err(), "{lie:?}");
    }
    assert!(spool.append(&output(1, 0)).is_ok());
    assert!(spool.append(&output(1, 0)).is_err());
    assert!(spool.append(&output(2, 10)).is_ok());
}

/// The largest record fits one read and the memory of a command, and credit is worth a piece of output.
const _: () = {
    assert!(super::segment::RECORD <= limits::READ);
    assert!(super::segment::RECORD as u64 <= limits::SPOOL_MEMORY / 2);
    assert!(limits::SPOOL_WINDOW / 4 >= space_guest_proto::limits::DATA_BYTES as u64);
};
