//! A listing as a guest sends it: what passes the checks is what was asked for.
//!
//! - Entries are absolute paths without NUL, in order and without repetition, no more than the limit.
//! - Below an absolute path none lies elsewhere, deeper than asked, or at or before the cursor.

use space_guest_proto::job::{Change, Entries, FileInfo, ListDirectory};
use space_sandbox::fuzz;

use crate::script::Script;

pub(crate) fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let asked = ListDirectory {
        path: script.line().to_vec().into(),
        depth: u32::from(script.byte() % 4) + 1,
        after: script.line().to_vec().into(),
        limit: u32::from(script.byte() % 8) + 1,
    };
    let mut parts = Vec::new();
    while !script.is_over() {
        let count = script.byte() % 4;
        parts.push(Entries { entries: (0..count).map(|_| info(&mut script)).collect() });
    }
    changes(&parts);
    if let Some(entries) = fuzz::listing(asked.clone(), parts) {
        are_as_asked(&asked, &entries);
    }
}

fn info(script: &mut Script<'_>) -> FileInfo {
    FileInfo {
        path: script.line().to_vec().into(),
        file_type: i32::from(script.byte()) - 1,
        mode: u32::try_from(script.number()).unwrap_or(u32::MAX),
        ..FileInfo::default()
    }
}

/// The same paths as changes.
fn changes(parts: &[Entries]) {
    for entry in parts.iter().flat_map(|part| &part.entries) {
        let change = Change { kind: entry.file_type, path: entry.path.clone() };
        if fuzz::change_is_sound(&change) {
            let is_loss = change.kind == 6;
            assert!((1..=6).contains(&change.kind), "{change:?}");
            assert_eq!(is_loss, change.path.is_empty(), "{change:?}");
            assert!(is_loss || is_absolute(&change.path), "{change:?}");
        }
    }
}

fn are_as_asked(asked: &ListDirectory, entries: &[FileInfo]) {
    assert!(entries.len() <= asked.limit as usize, "more than asked for");
    let paths: Vec<Vec<&[u8]>> = entries.iter().map(|entry| names(&entry.path)).collect();
    assert!(paths.is_sorted_by(|one, next| one < next), "out of order: {paths:?}");
    for entry in entries {
        assert!(is_absolute(&entry.path) && entry.mode <= 0o7777, "{entry:?}");
        assert!((0..=7).contains(&entry.file_type), "{entry:?}");
    }
    let root = names(&asked.path);
    // Where a relative path begins, or `..` leads, is the guest's to say.
    if !asked.path.starts_with(b"/") || root.contains(&&b".."[..]) {
        return;
    }
    for path in paths {
        let below = path.strip_prefix(root.as_slice()).unwrap_or_else(|| panic!("{path:?} is elsewhere"));
        assert!((1..=asked.depth as usize).contains(&below.len()), "{path:?} is too deep");
        assert!(below > names(&asked.after).as_slice(), "{path:?} was on a page before");
    }
}

fn is_absolute(path: &[u8]) -> bool {
    path.starts_with(b"/") && !path.contains(&0)
}

fn names(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").collect()
}
