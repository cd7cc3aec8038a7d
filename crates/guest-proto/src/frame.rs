//! The frame header, and the split of a byte stream into frames.
//!
//! ```text
//!  0        4      5       6          8        12
//!  ├────────┼──────┼───────┼──────────┼────────┼─────────
//!  │ length │ kind │ flags │ reserved │   id   │ payload   integers are little endian
//! ```
//! `length` counts the payload alone. `id` is the request's or subscription's, chosen by the host; 0 belongs
//! to the connection itself. Nothing is allocated for a frame before its header was checked.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::limits;

pub const HEADER_BYTES: usize = 12;

/// A receiver that doesn't know the frame's kind drops the frame instead of closing the connection.
pub const FLAG_IGNORABLE: u8 = 0x01;

/// Set in the kind of a reply; the other bits are the request's.
pub const REPLY_BIT: u8 = 0x80;

/// Kinds of frames that are neither request nor reply. Requests have 0x10 to 0x3f.
pub mod kind {
    pub const HELLO: u8 = 0x01;
    pub const REFUSAL: u8 = 0x02;
    pub const NOTICE: u8 = 0x03;
    pub const NOTICE_TAKEN: u8 = 0x04;
    pub const CREDIT: u8 = 0x40;
    pub const DETACH: u8 = 0x41;
    pub const EVENT: u8 = 0x42;
    pub const OUTPUT: u8 = 0x43;
    pub const END: u8 = 0x44;
    /// On the connection of a job; see [`job`](crate::job).
    pub const JOB_OPEN: u8 = 0x50;
    pub const JOB_FINISH: u8 = 0x51;
    pub const JOB_DATA: u8 = 0x52;
    pub const JOB_OPENED: u8 = 0x53;
    pub const JOB_ENTRIES: u8 = 0x54;
    pub const JOB_CHANGES: u8 = 0x55;
    pub const JOB_DONE: u8 = 0x56;
    /// What a request's kind may be, known or not: an unknown one is refused, not fatal.
    pub const REQUESTS: std::ops::RangeInclusive<u8> = 0x10..=0x3f;
}

/// Why bytes are no frame. The connection can't be used any further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("payload of {0} bytes; at most {max} are allowed", max = limits::PAYLOAD_BYTES)]
    Oversized(u32),
    #[error("unknown flags {0:#04x}")]
    Flags(u8),
    #[error("reserved bytes are {0:#06x}, not 0")]
    Reserved(u16),
}

/// One frame, its payload not looked at yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawFrame {
    pub kind: u8,
    pub flags: u8,
    pub id: u32,
    pub payload: Bytes,
}

/// Takes the next frame off `buffer`'s front, without copying its payload. `None`: more bytes are needed.
pub fn take(buffer: &mut BytesMut) -> Result<Option<RawFrame>, FrameError> {
    let Some(mut header) = buffer.get(..HEADER_BYTES) else {
        return Ok(None);
    };
    let length = header.get_u32_le();
    let (kind, flags, reserved, id) =
        (header.get_u8(), header.get_u8(), header.get_u16_le(), header.get_u32_le());
    let payload_bytes = usize::try_from(length).unwrap_or(usize::MAX);
    if payload_bytes > limits::PAYLOAD_BYTES {
        return Err(FrameError::Oversized(length));
    }
    if flags & !FLAG_IGNORABLE != 0 {
        return Err(FrameError::Flags(flags));
    }
    if reserved != 0 {
        return Err(FrameError::Reserved(reserved));
    }
    let total = HEADER_BYTES + payload_bytes;
    if buffer.len() < total {
        buffer.reserve(total - buffer.len());
        return Ok(None);
    }
    let mut frame = buffer.split_to(total);
    frame.advance(HEADER_BYTES);
    Ok(Some(RawFrame { kind, flags, id, payload: frame.freeze() }))
}

/// Appends a header. `payload_bytes` is at most [`limits::PAYLOAD_BYTES`]: callers check.
pub(crate) fn put_header(kind: u8, id: u32, payload_bytes: usize, buffer: &mut BytesMut) {
    debug_assert!(payload_bytes <= limits::PAYLOAD_BYTES);
    buffer.reserve(HEADER_BYTES + payload_bytes);
    buffer.put_u32_le(u32::try_from(payload_bytes).unwrap_or(u32::MAX));
    buffer.put_u8(kind);
    buffer.put_u8(0);
    buffer.put_u16_le(0);
    buffer.put_u32_le(id);
}
