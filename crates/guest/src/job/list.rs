//! A directory's entries, in the order of their paths compared part by part, bytewise: a directory, then what it
//! holds, then its next sibling.
//!
//! Memory is bounded whatever the directory holds: of each directory on the way down only the next
//! [`PAGE_NAMES`] names are kept, and it is read again for those behind them.

use std::{
    collections::BinaryHeap,
    ops::Bound,
    os::fd::{AsFd, OwnedFd},
};

use prost::Message;
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, RawDir, SeekFrom, openat, seek, statat},
    io::Errno,
};
use space_guest_proto::job::{Done, Entries, FileInfo, FileType, GuestJobFrame, ListDirectory};

use super::{
    Context, Outcome,
    failure::JobError,
    info::{self, Infos},
    link::Link,
};

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// Names of one directory that are kept at a time.
const PAGE_NAMES: usize = 1024;
const NAMES_BYTES: usize = 32 * 1024;
/// A frame of entries is sent when it has so much, which leaves room for the largest entry.
const ENTRIES_BYTES: usize = 32 * 1024;

impl Context {
    pub(super) fn list(&mut self, job: &ListDirectory) -> Outcome {
        let directory = openat(CWD, &*job.path, DIRECTORY, Mode::empty()).map_err(JobError::at(&job.path))?;
        let after: Vec<&[u8]> = info::parts(&job.after).collect();
        let mut listing = Listing {
            link: &mut self.link,
            infos: &self.infos,
            left: job.limit,
            more: false,
            entries: Vec::new(),
            entries_bytes: 0,
        };
        let mut path = listing.infos.absolute(&job.path);
        listing.walk(&directory, &mut path, job.depth, &after)?;
        listing.send()?;
        Ok(Done { more: listing.more, ..Done::default() })
    }
}

struct Listing<'a> {
    link: &'a mut Link,
    infos: &'a Infos,
    left: u32,
    more: bool,
    entries: Vec<FileInfo>,
    entries_bytes: usize,
}

/// Whether a walk goes on.
#[derive(PartialEq, Eq)]
enum Walk {
    On,
    Full,
}

impl Listing<'_> {
    /// The entries of `directory`, which is `path`, behind `after`, and those below them. As deep as `depth`,
    /// which is limited, so that it can be a recursion.
    fn walk(
        &mut self,
        directory: &OwnedFd,
        path: &mut Vec<u8>,
        depth: u32,
        after: &[&[u8]],
    ) -> Result<Walk, JobError> {
        // The cursor itself was told, what it holds was not.
        let mut from = match after.first() {
            Some(name) => Bound::Included(name.to_vec()),
            None => Bound::Unbounded,
        };
        loop {
            let page = next_names(directory, &from, PAGE_NAMES).map_err(JobError::at(path))?;
            for name in &page {
                let told = after.first().is_some_and(|cursor| *cursor == name.as_slice());
                let below = if told { after.get(1..).unwrap_or_default() } else { &[] };
                if self.visit(directory, path, name, depth, told.then_some(below))? == Walk::Full {
                    return Ok(Walk::Full);
                }
            }
            match page.into_iter().next_back() {
                Some(last) => from = Bound::Excluded(last),
                None => return Ok(Walk::On),
            }
        }
    }

    /// One entry, unless it was told already (`Some`), and what it holds.
    fn visit(
        &mut self,
        directory: &OwnedFd,
        path: &mut Vec<u8>,
        name: &[u8],
        depth: u32,
        told: Option<&[&[u8]]>,
    ) -> Result<Walk, JobError> {
        let length = path.len();
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let walked = self.visit_path(directory, path, name, depth, told);
        path.truncate(length);
        walked
    }

    fn visit_path(
        &mut self,
        directory: &OwnedFd,
        path: &mut Vec<u8>,
        name: &[u8],
        depth: u32,
        told: Option<&[&[u8]]>,
    ) -> Result<Walk, JobError> {
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // Removed meanwhile.
            Err(Errno::NOENT) => return Ok(Walk::On),
            Err(error) => return Err(JobError::at(path)(error)),
        };
        if told.is_none() {
            if self.left == 0 {
                self.more = true;
                return Ok(Walk::Full);
            }
            self.left -= 1;
            let entry = self.infos.of(&stat, path.clone(), directory, name);
            self.add(entry)?;
        }
        if depth <= 1 || info::file_type(&stat) != FileType::Directory {
            return Ok(Walk::On);
        }
        match openat(directory, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(entered) => self.walk(&entered, path, depth - 1, told.unwrap_or_default()),
            // Another thing meanwhile, or one that the user may not look into; it was told itself.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::PERM) => Ok(Walk::On),
            Err(error) => Err(JobError::at(path)(error)),
        }
    }

    fn add(&mut self, entry: FileInfo) -> Result<(), JobError> {
        self.entries_bytes += entry.encoded_len() + 8;
        self.entries.push(entry);
        if self.entries_bytes < ENTRIES_BYTES { Ok(()) } else { self.send() }
    }

    fn send(&mut self) -> Result<(), JobError> {
        self.entries_bytes = 0;
        let entries = std::mem::take(&mut self.entries);
        if entries.is_empty() { Ok(()) } else { self.link.send(&GuestJobFrame::Entries(Entries { entries })) }
    }
}

/// The first `count` names of a directory behind `from`, in order.
fn next_names(directory: impl AsFd, from: &Bound<Vec<u8>>, count: usize) -> Result<Vec<Vec<u8>>, Errno> {
    seek(&directory, SeekFrom::Start(0))?;
    let mut buffer = Vec::with_capacity(NAMES_BYTES);
    let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
    let mut names = Least::new(count);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let behind = match from {
            Bound::Unbounded => true,
            Bound::Included(from) => name >= from.as_slice(),
            Bound::Excluded(from) => name > from.as_slice(),
        };
        if behind && name != b"." && name != b".." {
            names.offer(name);
        }
    }
    Ok(names.0.into_sorted_vec())
}

/// The least so many of the names that were offered.
struct Least(BinaryHeap<Vec<u8>>, usize);

impl Least {
    fn new(count: usize) -> Self {
        Self(BinaryHeap::new(), count)
    }

    fn offer(&mut self, name: &[u8]) {
        if self.0.len() < self.1 {
            self.0.push(name.to_vec());
        } else if let Some(mut greatest) = self.0.peek_mut()
            && name < greatest.as_slice()
        {
            greatest.clear();
            greatest.extend_from_slice(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use space_guest_proto::limits;

    use super::*;

    proptest! {
        #[test]
        fn the_least_names_are_kept_in_order(
            names in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 1..4), 0..40),
            rotated in 0..40_usize,
            count in 1..50_usize,
        ) {
            let mut offered: Vec<Vec<u8>> = names.iter().cloned().collect();
            let middle = rotated.min(offered.len());
            offered.rotate_left(middle);
            let mut least = Least::new(count);
            for name in &offered {
                least.offer(name);
            }
            let expected: Vec<Vec<u8>> = names.into_iter().take(count).collect();
            prop_assert_eq!(least.0.into_sorted_vec(), expected);
        }
    }

    #[test]
    fn the_largest_entry_fits_a_frame_that_is_nearly_due() {
        let entry = FileInfo {
            path: vec![b'x'; 2 * limits::PATH_BYTES + 64 * 256].into(),
            link_target: vec![b'x'; limits::PATH_BYTES].into(),
            owner: "x".repeat(limits::USER_BYTES),
            group: "x".repeat(limits::USER_BYTES),
            ..FileInfo::default()
        };
        assert!(ENTRIES_BYTES + entry.encoded_len() + 256 < limits::PAYLOAD_BYTES);
    }
}
