//! A directory that nothing leads out of: names are taken part by part, and the kernel resolves them.

use std::os::fd::OwnedFd;

use rustix::{
    fs::{Mode, OFlags, ResolveFlags, mkdirat, openat2},
    io::Errno,
};
use space_guest_proto::job::FailureKind;

use crate::job::{failure::JobError, info::parts};

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
/// The kernel asks to try again when something was renamed on the way.
const TRIES: usize = 64;

pub(super) struct Root(OwnedFd);

impl Root {
    pub(super) fn new(directory: OwnedFd) -> Self {
        Self(directory)
    }

    /// Opens a directory below.
    pub(super) fn open(&self, names: &[&[u8]]) -> Result<OwnedFd, Errno> {
        self.open_with(names, DIRECTORY)
    }

    pub(super) fn open_with(&self, names: &[&[u8]], flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if names.is_empty() { b".".to_vec() } else { names.join(&b'/') };
        let mut opened = Err(Errno::AGAIN);
        for _ in 0..TRIES {
            opened = openat2(&self.0, &*path, flags, Mode::empty(), BENEATH);
            if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        opened
    }

    /// The same, making what is missing.
    pub(super) fn open_or_make(&self, names: &[&[u8]]) -> Result<OwnedFd, Errno> {
        match self.open(names) {
            Err(Errno::NOENT) => {}
            opened => return opened,
        }
        let mut opened = self.open(&[])?;
        for (index, name) in names.iter().enumerate() {
            let names = names.get(..=index).unwrap_or_default();
            opened = match self.open(names) {
                Err(Errno::NOENT) => {
                    ignore_existing(mkdirat(&opened, *name, Mode::from_raw_mode(0o755)))?;
                    self.open(names)?
                }
                opened => opened?,
            };
        }
        Ok(opened)
    }
}

/// The parts of an entry's name, none of which leads up or away.
pub(super) fn checked_parts(path: &[u8]) -> Result<Vec<&[u8]>, JobError> {
    let names: Vec<&[u8]> = parts(path).collect();
    if path.starts_with(b"/") || path.contains(&0) || names.contains(&&b".."[..]) {
        return Err(outside(path));
    }
    Ok(names)
}

pub(super) fn outside(path: &[u8]) -> JobError {
    let path = String::from_utf8_lossy(path);
    JobError::new(FailureKind::Path, format!("{path}: outside of the archive's directory"))
}

/// The kernel's word for "not beneath" is "another filesystem".
pub(super) fn beneath_error(path: &[u8]) -> impl Fn(Errno) -> JobError + use<'_> {
    move |error| if error == Errno::XDEV { outside(path) } else { JobError::at(path)(error) }
}

fn ignore_existing(made: Result<(), Errno>) -> Result<(), Errno> {
    match made {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_up_or_away_are_refused() {
        assert_eq!(checked_parts(b"./a//b/").unwrap(), [b"a", b"b"]);
        assert!(checked_parts(b"./").unwrap().is_empty());
        for path in [&b"/etc/passwd"[..], b"..", b"a/../b", b"a/..", b"a\0b"] {
            assert!(matches!(checked_parts(path), Err(JobError::Failed { kind: FailureKind::Path, .. })));
        }
    }
}
