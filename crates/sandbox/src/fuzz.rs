//! What is private here and must stand hostile bytes, for the fuzz targets of `space-fuzz`.

use space_guest_proto::{
    Reply, Request,
    job::{Change, Entries, FileInfo, ListDirectory},
};

use crate::{console, guest, job};

/// Whether a reply that the protocol's rules let pass is believed.
pub fn reply_is_sound(request: &Request, reply: &Reply) -> bool {
    guest::check::reply(request, reply).is_ok()
}

/// A listing that comes in these parts; `None` where the guest is not believed.
pub fn listing(asked: ListDirectory, parts: Vec<Entries>) -> Option<Vec<FileInfo>> {
    let mut listing = job::check::Listing::new(asked);
    for part in parts {
        listing.take(part).ok()?;
    }
    Some(listing.into_entries())
}

pub fn change_is_sound(change: &Change) -> bool {
    job::check::change(change).is_ok()
}

/// A guest's text as people get it.
pub fn printable(text: &str, limit: usize) -> String {
    guest::printable(text, limit)
}

/// What is kept of a console that comes in these pieces, and how many panics were found.
pub fn console(pieces: &[&[u8]]) -> (Vec<u8>, usize) {
    console::replay(pieces)
}
