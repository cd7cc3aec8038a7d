//! Archives: POSIX tar streams, without compression.
//!
//! - `read`: from a file or a directory. `write`: into a directory, which is `beneath`'s.
//!
//! Files, directories, symbolic and hard links, with modes, times to the second, and numbers of owners. Devices,
//! FIFOs and sockets are left out in both directions, so that the archive of a root filesystem is of use to any
//! user.

mod beneath;
mod read;
mod write;

/// What tar counts in.
const BLOCK: usize = 512;

/// Bytes that fill the last block of so much data.
fn padding(bytes: u64) -> usize {
    let over = usize::try_from(bytes % BLOCK as u64).unwrap_or(0);
    (BLOCK - over) % BLOCK
}
