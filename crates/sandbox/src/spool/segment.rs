//! The form of a segment: a head that says which event it continues, then records.
//!
//! | bytes | of the head | | bytes | of a record |
//! |---|---|---|---|---|
//! | 0–7 | `spool`, version | | 0–3 | length of the event |
//! | 8–15 | sequence number of the event before the first | | 4–11 | its sequence number |
//! | 16–31 | next offsets of stdout and stderr | | 12– | a `CommandEvent` |
//! | 32–39 | bit 0, 1: they are exact | | | |
//!
//! Numbers are little endian. No checksum: the bytes are read back by the machine that wrote them, under the user that
//! wrote them. What a killed worker leaves is a record that is too short, and each record is decoded and must continue
//! the one before it when a segment is taken up again.

use prost::Message;
use space_node_proto::commands::CommandEvent;

use super::position::Position;

const MAGIC: [u8; 8] = *b"spool\0\0\x01";
pub(super) const HEAD: usize = 40;
const RECORD_HEAD: usize = 12;
/// The largest event: a piece of output, or the text of an exit, and room for the rest.
const EVENT: usize = space_guest_proto::limits::DATA_BYTES + 4 * 1024;
/// The largest record.
#[cfg(test)]
pub(super) const RECORD: usize = RECORD_HEAD + EVENT;

pub(super) fn head(start: &Position) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let [(stdout, stdout_exact), (stderr, stderr_exact)] = start.offsets;
    let exact = u64::from(stdout_exact) | u64::from(stderr_exact) << 1;
    head[..8].copy_from_slice(&MAGIC);
    for (at, number) in [start.sequence, stdout, stderr, exact].into_iter().enumerate() {
        head[8 + at * 8..16 + at * 8].copy_from_slice(&number.to_le_bytes());
    }
    head
}

/// `None`: it is no head.
pub(super) fn parse_head(head: &[u8; HEAD]) -> Option<Position> {
    let number = |at: usize| head[at..at + 8].try_into().ok().map(u64::from_le_bytes);
    if head[..8] != MAGIC {
        return None;
    }
    let exact = number(32)?;
    let offsets = [(number(16)?, exact & 1 != 0), (number(24)?, exact & 2 != 0)];
    Some(Position { sequence: number(8)?, offsets })
}

/// How long `event` is as a record; `None` if no segment takes it.
pub(super) fn record_length(event: &CommandEvent) -> Option<usize> {
    Some(event.encoded_len()).filter(|length| *length <= EVENT).map(|length| RECORD_HEAD + length)
}

pub(super) fn push_record(buffer: &mut Vec<u8>, event: &CommandEvent) {
    let length = u32::try_from(event.encoded_len()).unwrap_or(u32::MAX);
    buffer.extend(length.to_le_bytes());
    buffer.extend(event.sequence.to_le_bytes());
    buffer.extend(event.encode_to_vec());
}

/// One whole record at the beginning of `bytes`: its event and its length.
pub(super) fn parse_record(bytes: &[u8]) -> Parsed {
    let Some(head) = bytes.first_chunk::<RECORD_HEAD>() else { return Parsed::Short };
    let [l0, l1, l2, l3, sequence @ ..] = *head;
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if length > EVENT {
        return Parsed::Damaged;
    }
    let Some(encoded) = bytes.get(RECORD_HEAD..RECORD_HEAD + length) else { return Parsed::Short };
    match CommandEvent::decode(encoded) {
        Ok(event) if event.sequence == u64::from_le_bytes(sequence) => {
            Parsed::Whole(event, RECORD_HEAD + length)
        }
        Ok(_) | Err(_) => Parsed::Damaged,
    }
}

#[derive(Debug)]
pub(super) enum Parsed {
    Whole(CommandEvent, usize),
    /// It goes on behind `bytes`.
    Short,
    Damaged,
}

/// The name of a command's segment. An id holds no dot and no slash.
pub(super) fn name(command_id: &str, number: u64) -> String {
    format!("{command_id}.{number:06}")
}

/// The command and the number of a segment by its name.
pub(super) fn parse_name(name: &str) -> Option<(&str, u64)> {
    let (command_id, number) = name.split_once('.')?;
    space_guest_proto::validate::command_id(command_id).ok()?;
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|_number| digits).map(|number| (command_id, number))
}
