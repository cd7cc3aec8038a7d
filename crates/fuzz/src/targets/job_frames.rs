//! Frames of a job's connection, in both directions: as [`frames`](super::frames), and data is never empty and comes as it was sent.

use bytes::BytesMut;
use space_guest_proto::{
    job::{GuestJobFrame, HostJobFrame, data_header},
    limits,
};

use super::frames::check;

pub(crate) fn run(bytes: &[u8]) {
    comes_as_it_is(bytes);
    for frame in check(bytes, GuestJobFrame::decode, GuestJobFrame::encode).iter().flatten() {
        match frame {
            GuestJobFrame::Data(data) => is_data(data),
            GuestJobFrame::Entries(entries) => {
                assert!(
                    entries.entries.len() <= limits::LIST_ENTRIES as usize,
                    "more entries than a part has"
                );
            }
            GuestJobFrame::Changes(changes) => {
                assert!(changes.changes.len() <= limits::FRAME_CHANGES, "more changes than a part has");
            }
            GuestJobFrame::Opened(_) | GuestJobFrame::Done(_) => {}
        }
    }
    for frame in check(bytes, HostJobFrame::decode, HostJobFrame::encode).iter().flatten() {
        if let HostJobFrame::Data(data) = frame {
            is_data(data);
        }
    }
}

/// A frame of data, whole and with this payload.
fn comes_as_it_is(payload: &[u8]) {
    if payload.is_empty() {
        return;
    }
    let mut buffer = BytesMut::from(&data_header(payload.len())[..]);
    buffer.extend_from_slice(payload);
    let host = HostJobFrame::decode(&mut buffer.clone());
    let guest = GuestJobFrame::decode(&mut buffer);
    assert!(matches!(host, Ok(Some(HostJobFrame::Data(data))) if data == payload), "other data");
    assert!(matches!(guest, Ok(Some(GuestJobFrame::Data(data))) if data == payload), "other data");
}

fn is_data(data: &[u8]) {
    assert!((1..=limits::JOB_DATA_BYTES).contains(&data.len()), "{} bytes of data", data.len());
}
