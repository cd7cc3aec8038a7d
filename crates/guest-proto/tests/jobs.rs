//! Frames of jobs: they survive encoding and decoding, their bytes are pinned, and no bytes make the decoders panic.
//! `job-corpus/` holds odd frames by name; a fuzzer starts from them too.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use space_guest_proto::{
    EncodeError,
    job::{
        Change, ChangeKind, Changes, Done, Entries, Failure, FailureKind, FileInfo, FileType, GuestJobFrame,
        HostJobFrame, Job, ListDirectory, MakeDirectory, MoveFile, OpenJob, OpenTunnel, Opened, ReadArchive,
        ReadFile, RemoveFile, StatFile, Upload, WatchFiles, WriteArchive, WriteFile,
    },
    limits,
};

fn path(path: &'static [u8]) -> Bytes {
    Bytes::from_static(path)
}

fn info() -> FileInfo {
    FileInfo {
        path: path(b"/home/user/caf\xe9"),
        file_type: FileType::Symlink.into(),
        mode: 0o777,
        uid: 1000,
        gid: 1001,
        owner: "user".into(),
        group: "users".into(),
        size: 5 << 30,
        allocated: 4096,
        modified_ns: -1,
        link_target: path(b"target"),
        version: 0x0102_0304_0506_0708,
    }
}

fn every_job() -> Vec<Job> {
    let upload = Upload { id: "u-1".into(), offset: 9, complete: true };
    vec![
        Job::Stat(StatFile { path: path(b"a"), follow: true }),
        Job::List(ListDirectory { path: path(b"b"), depth: 3, after: path(b"x/y"), limit: 1000 }),
        Job::Read(ReadFile { path: path(b"c"), offset: 1, length: Some(0) }),
        Job::Write(WriteFile {
            path: path(b"d"),
            mode: Some(0),
            parents: true,
            exclusive: true,
            upload: Some(upload),
            owner: "1:2".into(),
        }),
        Job::MakeDirectory(MakeDirectory { path: path(b"e"), parents: true, mode: Some(0o700) }),
        Job::Move(MoveFile { from: path(b"f"), to: path(b"g"), replace: true }),
        Job::Remove(RemoveFile { path: path(b"h"), recursive: true }),
        Job::Watch(WatchFiles { path: path(b"i"), recursive: true }),
        Job::ReadArchive(ReadArchive { path: path(b"j") }),
        Job::WriteArchive(WriteArchive { path: path(b"k") }),
        Job::Tunnel(OpenTunnel { port: 8080 }),
    ]
}

fn open(job: Job) -> HostJobFrame {
    HostJobFrame::Open(Box::new(OpenJob { protocol: 1, user: "user".into(), job: Some(job) }))
}

fn done() -> Done {
    let failure = Failure { kind: FailureKind::Offset.into(), message: "no".into() };
    Done { failure: Some(failure), info: Some(info()), more: true, next_offset: 9, entries: 2, bytes: 3 }
}

fn guest_frames() -> Vec<GuestJobFrame> {
    vec![
        GuestJobFrame::Opened(Box::new(Opened { info: Some(info()) })),
        GuestJobFrame::Data(path(b"data")),
        GuestJobFrame::Entries(Entries { entries: vec![info(), FileInfo::default()] }),
        GuestJobFrame::Changes(Changes {
            changes: vec![Change { kind: ChangeKind::Moved.into(), path: path(b"/a\nb") }],
        }),
        GuestJobFrame::Done(Box::new(done())),
    ]
}

#[test]
fn host_frames_survive_the_round_trip() {
    let mut frames: Vec<HostJobFrame> = every_job().into_iter().map(open).collect();
    frames.extend([HostJobFrame::Data(path(b"data")), HostJobFrame::Finish]);
    let mut buffer = BytesMut::new();
    for frame in &frames {
        frame.encode(&mut buffer).unwrap();
    }
    for frame in frames {
        assert_eq!(HostJobFrame::decode(&mut buffer).unwrap(), Some(frame));
    }
    assert!(buffer.is_empty());
}

#[test]
fn guest_frames_survive_the_round_trip() {
    let mut buffer = BytesMut::new();
    for frame in guest_frames() {
        frame.encode(&mut buffer).unwrap();
    }
    for frame in guest_frames() {
        assert_eq!(GuestJobFrame::decode(&mut buffer).unwrap(), Some(frame));
    }
    assert!(buffer.is_empty());
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

#[test]
fn the_bytes_of_jobs_do_not_change() {
    let host: Vec<HostJobFrame> = every_job()
        .into_iter()
        .map(open)
        .chain([HostJobFrame::Data(path(b"hey")), HostJobFrame::Finish])
        .collect();
    let mut shown = Vec::new();
    for frame in host {
        let mut buffer = BytesMut::new();
        frame.encode(&mut buffer).unwrap();
        shown.push(hex(&buffer));
    }
    for frame in guest_frames() {
        let mut buffer = BytesMut::new();
        frame.encode(&mut buffer).unwrap();
        shown.push(hex(&buffer));
    }
    let pinned: Vec<&str> = include_str!("job-frames.hex").lines().collect();
    assert_eq!(shown, pinned, "a peer in an old snapshot would not understand this");
}

#[test]
fn the_largest_data_fits_one_frame_and_no_more() {
    let mut buffer = BytesMut::new();
    HostJobFrame::Data(vec![0; limits::JOB_DATA_BYTES].into()).encode(&mut buffer).unwrap();
    assert_eq!(buffer.len(), limits::FRAME_BYTES);
    let too_much = HostJobFrame::Data(vec![0; limits::JOB_DATA_BYTES + 1].into());
    assert!(matches!(too_much.encode(&mut buffer), Err(EncodeError::TooLarge(_))));
}

#[test]
fn a_job_of_tomorrow_is_none_and_a_field_of_tomorrow_is_skipped() {
    // Job 21, and field 30 of OpenJob; the protocol, and the user.
    let payload = [0x08, 1, 0x12, 1, b'u', 0xaa, 0x01, 2, 0x0a, 0, 0xf2, 0x01, 1, 0];
    let mut buffer = BytesMut::new();
    buffer.extend_from_slice(&[u8::try_from(payload.len()).unwrap(), 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
    buffer.extend_from_slice(&payload);
    let expected = OpenJob { protocol: 1, user: "u".into(), job: None };
    assert_eq!(HostJobFrame::decode(&mut buffer).unwrap(), Some(HostJobFrame::Open(Box::new(expected))));
}

/// Feeds `bytes` in pieces of the given lengths (the rest at once); how many frames, and whether that ended in
/// an error.
fn count<F, E>(
    bytes: &[u8],
    splits: &[usize],
    decode: impl Fn(&mut BytesMut) -> Result<Option<F>, E>,
) -> (usize, bool) {
    let mut buffer = BytesMut::new();
    let mut frames = 0;
    let mut rest = bytes;
    let mut pieces = splits.iter();
    while !rest.is_empty() {
        let length = pieces.next().map_or(rest.len(), |length| (*length).min(rest.len()));
        let (piece, behind) = rest.split_at(length);
        rest = behind;
        buffer.extend_from_slice(piece);
        loop {
            match decode(&mut buffer) {
                Ok(Some(_)) => frames += 1,
                Ok(None) => break,
                Err(_) => return (frames, true),
            }
        }
        assert!(buffer.len() < limits::FRAME_BYTES, "a whole frame is never left in the buffer");
    }
    (frames, false)
}

fn both(bytes: &[u8], splits: &[usize]) -> [(usize, bool); 2] {
    [count(bytes, splits, HostJobFrame::decode), count(bytes, splits, GuestJobFrame::decode)]
}

#[test]
fn the_corpus_decodes_as_its_names_say() {
    let mut seen = 0;
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/job-corpus")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        // <what>.<frames><x: error> as host frames, then as guest frames.
        let shown = both(&fs::read(&path).unwrap(), &[5, 1, 7])
            .map(|(frames, error)| format!("{frames}{}", if error { "x" } else { "" }));
        let what = name.split('.').next().unwrap();
        assert_eq!(name, format!("{what}.{}.{}", shown[0], shown[1]));
        seen += 1;
    }
    assert!(seen >= 8, "{seen}");
}

fn hostile_bytes() -> impl Strategy<Value = Vec<u8>> {
    let frame = (
        prop_oneof![9 => 0x4f_u8..0x58, 1 => any::<u8>()],
        prop_oneof![9 => Just(0_u8), 1 => any::<u8>()],
        prop::collection::vec(any::<u8>(), 0..200),
        prop_oneof![9 => Just(0_i32), 1 => -20..20_i32, 1 => any::<i32>()],
    )
        .prop_map(|(kind, flags, payload, lie)| {
            let length = u32::try_from(payload.len()).unwrap().wrapping_add_signed(lie);
            [&length.to_le_bytes()[..], &[kind, flags, 0, 0, 0, 0, 0, 0], &payload].concat()
        });
    prop::collection::vec(frame, 0..8).prop_map(|frames| frames.concat())
}

proptest! {
    #[test]
    fn splits_change_nothing_and_nothing_panics(
        bytes in hostile_bytes(),
        splits in prop::collection::vec(1..50_usize, 0..60),
    ) {
        prop_assert_eq!(both(&bytes, &splits), both(&bytes, &[]));
    }
}
