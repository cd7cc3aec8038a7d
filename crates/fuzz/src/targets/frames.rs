//! Frames of a connection to an agent, in both directions. The first byte says how the others are cut up; from 128 on they
//! are no frames yet but what goes into some, so that headers are right and more of what is behind them is reached.
//!
//! - However the bytes are cut up, the same frames come, and the same end.
//! - The buffer never holds a whole frame back, and never more than one.
//! - A frame that was decoded is encoded to bytes that decode to it.
//! - What the guest's own rules accept is within them: ids that are free, calls below their limit.

use std::fmt::Debug;

use crate::script::Script;
use bytes::BytesMut;
use space_guest_proto::{DecodeError, EncodeError, GuestConnection, GuestFrame, HostFrame, limits};

pub(crate) fn guest(bytes: &[u8]) {
    check(bytes, GuestFrame::decode, GuestFrame::encode);
}

pub(crate) fn host(bytes: &[u8]) {
    for frames in check(bytes, HostFrame::decode, HostFrame::encode) {
        obeys(&frames);
    }
}

/// What came of some bytes.
#[derive(Debug, PartialEq)]
pub(super) struct Decoded<F> {
    frames: Vec<F>,
    error: Option<String>,
}

/// The frames in both ways of cutting.
pub(super) fn check<F: PartialEq + Debug>(
    bytes: &[u8],
    decode: impl Fn(&mut BytesMut) -> Result<Option<F>, DecodeError>,
    encode: impl Fn(&F, &mut BytesMut) -> Result<(), EncodeError>,
) -> [Vec<F>; 2] {
    let Some((cut, bytes)) = bytes.split_first() else { return [Vec::new(), Vec::new()] };
    let built = if *cut < 128 { bytes.to_vec() } else { build(bytes) };
    let bytes = built.as_slice();
    let whole = decode_in_pieces(bytes, bytes.len().max(1), &decode);
    let pieces = decode_in_pieces(bytes, usize::from(*cut).max(1), &decode);
    assert_eq!(whole, pieces, "cutting the bytes changes what they say");
    for frame in &whole.frames {
        comes_back(frame, &decode, &encode);
    }
    [whole.frames, pieces.frames]
}

/// Frames with headers that fit them: kind, id and payload of each as the bytes say.
fn build(bytes: &[u8]) -> Vec<u8> {
    let mut script = Script::new(bytes);
    let mut frames = Vec::new();
    while !script.is_over() {
        let (kind, id, payload) = (script.byte(), script.byte(), script.piece());
        frames.extend(u32::try_from(payload.len()).unwrap_or(0).to_le_bytes());
        frames.extend([kind, 0, 0, 0, id, 0, 0, 0]);
        frames.extend(payload);
    }
    frames
}

fn decode_in_pieces<F>(
    bytes: &[u8],
    piece_bytes: usize,
    decode: impl Fn(&mut BytesMut) -> Result<Option<F>, DecodeError>,
) -> Decoded<F> {
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    for piece in bytes.chunks(piece_bytes) {
        buffer.extend_from_slice(piece);
        loop {
            match decode(&mut buffer) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return Decoded { frames, error: Some(error.to_string()) },
            }
        }
        assert!(buffer.len() < limits::FRAME_BYTES, "a whole frame is left in the buffer");
        assert!(buffer.capacity() <= 4 * limits::FRAME_BYTES, "room for more than a frame");
    }
    Decoded { frames, error: None }
}

fn comes_back<F: PartialEq + Debug>(
    frame: &F,
    decode: impl Fn(&mut BytesMut) -> Result<Option<F>, DecodeError>,
    encode: impl Fn(&F, &mut BytesMut) -> Result<(), EncodeError>,
) {
    let mut buffer = BytesMut::new();
    // Numbers may have come in fewer bytes than they are due.
    if encode(frame, &mut buffer).is_err() {
        assert!(buffer.is_empty(), "half a frame");
        return;
    }
    let again = decode(&mut buffer).unwrap_or_else(|error| panic!("{frame:?} comes back as {error}"));
    assert_eq!(again.as_ref(), Some(frame), "another frame comes back");
    assert!(buffer.is_empty(), "bytes behind the frame");
}

/// The guest's view of what a host sent.
fn obeys(frames: &[HostFrame]) {
    let mut rules = GuestConnection::new();
    let mut open = std::collections::HashSet::new();
    let mut heard_hello = false;
    for frame in frames {
        if rules.receive(frame).is_err() {
            return;
        }
        match frame {
            HostFrame::Hello(_) => assert!(!std::mem::replace(&mut heard_hello, true), "a second hello"),
            HostFrame::Request { id, .. } | HostFrame::UnknownRequest { id, .. } => {
                assert!(*id != 0 && open.insert(*id), "id {id} twice");
            }
            HostFrame::Credit { id, .. } => assert!(rules.credit(*id) <= limits::CREDIT_BYTES),
            HostFrame::Detach { .. } | HostFrame::NoticeTaken => {}
        }
        assert!(heard_hello && open.len() <= limits::CALLS_PER_CONNECTION);
    }
}
