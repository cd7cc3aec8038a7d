//! An archive that is put out by the agent's own code, into a directory that has a neighbour.
//!
//! - Whatever the archive says, nothing but that directory changes.
//! - No more is written than the archive has bytes, and what the agent counts is what it wrote.

use std::{
    cell::RefCell,
    fs,
    os::unix::{fs::MetadataExt as _, fs::PermissionsExt as _, fs::symlink},
    path::{Path, PathBuf},
};

use space_guest::fuzz;

/// What a hole may stand for. Above it the filesystem's own limits are at work, which are the machine's.
const SPARSE_BYTES: u64 = 1 << 20;

pub(crate) fn run(archive: &[u8]) {
    let archive = &*with_sums(archive);
    if has_a_vast_hole(archive) {
        return;
    }
    // Cut by frames of the first length in the archive's name: the reader must not mind.
    let frame_bytes = usize::from(archive.first().copied().unwrap_or(0)) * 16 + 512;
    PLACE.with_borrow_mut(|place| {
        place.clear();
        let unpacked = fuzz::unpack(archive, frame_bytes, &place.inside());
        place.neighbour_is_untouched();
        if let Ok((entries, bytes)) = unpacked {
            assert!(entries <= archive.len() as u64 / 512, "{entries} entries");
            let found = place.bytes_inside();
            assert!(found <= bytes, "{found} bytes on the disk, {bytes} counted");
        }
    });
}

thread_local! {
    static PLACE: RefCell<Place> = RefCell::new(Place::new());
}

/// Made once: a run is short beside it.
struct Place {
    directory: tempfile::TempDir,
}

const SECRET: &str = "stays as it is";

impl Place {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let directory = made.unwrap_or_else(|error| panic!("no temporary directory: {error}"));
        let place = Self { directory };
        fs::create_dir(place.outside()).unwrap_or_else(|error| panic!("{error}"));
        fs::write(place.outside().join("secret"), SECRET).unwrap_or_else(|error| panic!("{error}"));
        place
    }

    fn inside(&self) -> PathBuf {
        self.directory.path().join("inside")
    }

    fn outside(&self) -> PathBuf {
        self.directory.path().join("outside")
    }

    /// An empty directory, but for ways out: links that were there before the archive came.
    fn clear(&mut self) {
        let inside = self.inside();
        open_up(&inside);
        fs::remove_dir_all(&inside).ok();
        fs::create_dir(&inside).unwrap_or_else(|error| panic!("{error}"));
        for (name, target) in [("up", ".."), ("out", "../outside"), ("secret", "../outside/secret")] {
            symlink(target, inside.join(name)).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    fn neighbour_is_untouched(&self) {
        let names = |directory: &Path| {
            let listed = fs::read_dir(directory).unwrap_or_else(|error| panic!("{error}"));
            let mut names: Vec<_> = listed.filter_map(Result::ok).map(|entry| entry.file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(self.directory.path()), ["inside", "outside"], "something was put beside");
        assert_eq!(names(&self.outside()), ["secret"], "something was put elsewhere");
        let secret = self.outside().join("secret");
        assert_eq!(fs::read_to_string(&secret).unwrap_or_default(), SECRET, "something else was written");
        let found = fs::symlink_metadata(&secret).unwrap_or_else(|error| panic!("{error}"));
        assert!(found.nlink() == 1 && found.permissions().mode() & 0o7777 == 0o644, "{found:?}");
    }

    fn bytes_inside(&self) -> u64 {
        open_up(&self.inside());
        let mut bytes = 0;
        visit(&self.inside(), &mut |found| {
            if found.is_file() {
                bytes += found.len() / found.nlink();
            }
        });
        bytes
    }
}

/// Lets us into what an archive has made forbidding.
fn open_up(directory: &Path) {
    let Ok(found) = fs::symlink_metadata(directory) else { return };
    if !found.is_dir() {
        return;
    }
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).ok();
    for entry in fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok) {
        open_up(&entry.path());
    }
}

fn visit(directory: &Path, each: &mut impl FnMut(&fs::Metadata)) {
    for entry in fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok) {
        let Ok(found) = fs::symlink_metadata(entry.path()) else { continue };
        each(&found);
        if found.is_dir() {
            visit(&entry.path(), each);
        }
    }
}

/// The archive with the checksum of every header put right: what is behind a wrong one is never reached.
fn with_sums(archive: &[u8]) -> Vec<u8> {
    let mut archive = archive.to_vec();
    let mut at = 0;
    while let Some(block) = archive.get_mut(at..at + 512) {
        let mut header = tar::Header::new_old();
        header.as_mut_bytes().copy_from_slice(block);
        header.set_cksum();
        if block.iter().any(|byte| *byte != 0) {
            block.copy_from_slice(header.as_bytes());
        }
        let data = header.entry_size().unwrap_or(0).min(1 << 20);
        at += 512 + usize::try_from(data.next_multiple_of(512)).unwrap_or(0);
    }
    archive
}

fn has_a_vast_hole(archive: &[u8]) -> bool {
    let mut archive = tar::Archive::new(archive);
    let Ok(entries) = archive.entries() else { return false };
    entries
        .map_while(Result::ok)
        .any(|entry| entry.header().entry_type().is_gnu_sparse() && entry.size() > SPARSE_BYTES)
}
