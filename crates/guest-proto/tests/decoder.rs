//! What the decoders do with bytes that nobody promised anything about: no panic, no frame above the limit,
//! and the same frames however the bytes were split. `corpus/` holds odd frames by name; a fuzzer starts from
//! them too.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use bytes::BytesMut;
use proptest::prelude::*;
use space_guest_proto::{GuestFrame, HostFrame, limits};

/// Feeds `bytes` in pieces of the given lengths (the rest at once); the frames as text, or the first error.
fn frames<F: std::fmt::Debug, E: std::fmt::Display>(
    bytes: &[u8],
    splits: &[usize],
    decode: impl Fn(&mut BytesMut) -> Result<Option<F>, E>,
) -> (Vec<String>, Option<String>) {
    let mut buffer = BytesMut::new();
    let mut found = Vec::new();
    let mut rest = bytes;
    let mut pieces = splits.iter();
    while !rest.is_empty() {
        let length = pieces.next().map_or(rest.len(), |length| (*length).min(rest.len()));
        let (piece, behind) = rest.split_at(length);
        rest = behind;
        buffer.extend_from_slice(piece);
        loop {
            match decode(&mut buffer) {
                Ok(Some(frame)) => found.push(format!("{frame:?}")),
                Ok(None) => break,
                Err(error) => return (found, Some(error.to_string())),
            }
        }
        assert!(buffer.len() < limits::FRAME_BYTES, "a whole frame is never left in the buffer");
    }
    (found, None)
}

fn both(bytes: &[u8], splits: &[usize]) -> [(Vec<String>, Option<String>); 2] {
    [frames(bytes, splits, HostFrame::decode), frames(bytes, splits, GuestFrame::decode)]
}

/// Mostly headers that are nearly right, so that payloads are reached.
fn hostile_bytes() -> impl Strategy<Value = Vec<u8>> {
    let frame = (
        prop_oneof![any::<u8>(), 0_u8..5, 0x10_u8..0x27, 0x40_u8..0x46, 0x90_u8..0xa7],
        prop_oneof![9 => Just(0_u8), 1 => any::<u8>()],
        any::<u32>(),
        prop::collection::vec(any::<u8>(), 0..200),
        prop_oneof![9 => Just(0_i32), 1 => -20..20_i32, 1 => any::<i32>()],
    )
        .prop_map(|(kind, flags, id, payload, lie)| {
            let length = u32::try_from(payload.len()).unwrap().wrapping_add_signed(lie);
            let mut bytes = length.to_le_bytes().to_vec();
            bytes.extend([kind, flags, 0, 0]);
            bytes.extend(id.to_le_bytes());
            bytes.extend(payload);
            bytes
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

    #[test]
    fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
        both(&bytes, &[1, 2, 3]);
    }
}

#[test]
fn the_corpus_decodes_as_its_names_say() {
    let mut seen = 0;
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let bytes = fs::read(&path).unwrap();
        let [host, guest] = both(&bytes, &[5, 1, 7]);
        let shown = (host.0.len(), host.1.is_some(), guest.0.len(), guest.1.is_some());
        // <what>.<frames><!: error> as host frames, then as guest frames.
        let expected = format!(
            "{}.{}{}.{}{}",
            name.split('.').next().unwrap(),
            shown.0,
            if shown.1 { "x" } else { "" },
            shown.2,
            if shown.3 { "x" } else { "" }
        );
        assert_eq!(name, expected, "{host:?} {guest:?}");
        seen += 1;
    }
    assert!(seen >= 10, "{seen}");
}
