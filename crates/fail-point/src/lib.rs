//! Named places at which a daemon can be made to die, to prove that nothing is lost or left behind there.
//!
//! A daemon that comes to the place that is armed aborts: no destructor runs, nothing is flushed, exactly as with
//! `kill -9`. What arms a place:
//!
//! | variable | of | meaning |
//! |---|---|---|
//! | `SPACE_FAIL_POINT` | a daemon | the place; armed at each start |
//! | `SPACE_FAIL_POINT_DIR` | who starts daemons | a directory; its file `fail-point.<program>` holds a place for the next start of that program alone, and is removed by it |

use std::{
    env, fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// Names the place to arm.
pub const VARIABLE: &str = "SPACE_FAIL_POINT";

/// One place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailPoint(&'static str);

static ARMED: OnceLock<FailPoint> = OnceLock::new();

/// Why nothing could be armed. A test that waits for a place that does not exist would prove nothing, so the
/// daemon refuses to start.
#[derive(Debug, thiserror::Error)]
pub enum ArmError {
    #[error("no fail point is called `{0}`; the subcommand `fail-points` lists them")]
    Unknown(String),
    #[error("cannot take the fail point from {0}: {1}")]
    File(PathBuf, #[source] io::Error),
}

impl FailPoint {
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    pub const fn name(self) -> &'static str {
        self.0
    }

    /// Aborts if this is the place that is armed.
    pub fn pass(self) {
        if ARMED.get() == Some(&self) {
            tracing::error!(fail_point = self.0, "aborting as asked");
            std::process::abort();
        }
    }
}

/// Arms what the environment asks for, out of `all` the places of this program.
pub fn arm(all: &[FailPoint]) -> Result<(), ArmError> {
    let Ok(name) = env::var(VARIABLE) else { return Ok(()) };
    let point = find(&name, all)?;
    tracing::warn!(fail_point = point.0, "armed: this process will abort there");
    ARMED.get_or_init(|| point);
    Ok(())
}

/// What is to be in [`VARIABLE`] of a child that runs `program`.
pub fn for_child(program: &str) -> Result<Option<String>, ArmError> {
    match env::var_os("SPACE_FAIL_POINT_DIR") {
        Some(dir) => take(&Path::new(&dir).join(format!("fail-point.{program}"))),
        None => Ok(None),
    }
}

/// What a daemon's subcommand `fail-points` prints: one name a line.
pub fn list(all: &[FailPoint]) -> String {
    all.iter().flat_map(|point| [point.0, "\n"]).collect()
}

fn find(name: &str, all: &[FailPoint]) -> Result<FailPoint, ArmError> {
    let found = all.iter().copied().find(|point| point.0 == name);
    found.ok_or_else(|| ArmError::Unknown(name.to_owned()))
}

fn take(file: &Path) -> Result<Option<String>, ArmError> {
    let failed = |error| ArmError::File(file.to_owned(), error);
    let name = match fs::read_to_string(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.map_err(failed)?,
    };
    fs::remove_file(file).map_err(failed)?;
    Ok(Some(name.trim().to_owned()))
}

/// Declares a constant for each place, and `ALL` of them in the order of the declaration.
#[macro_export]
macro_rules! fail_points {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: $crate::FailPoint = $crate::FailPoint::new($text);)*

        /// All of them, in the order in which a sandbox's life meets them.
        pub const ALL: &[$crate::FailPoint] = &[$($name),*];
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[FailPoint] = &[FailPoint::new("a.first"), FailPoint::new("a.second")];

    #[test]
    fn an_unknown_name_is_refused() {
        assert!(matches!(find("no.such", ALL), Err(ArmError::Unknown(name)) if name == "no.such"));
        assert_eq!(find("a.second", ALL).unwrap(), ALL[1]);
    }

    #[test]
    fn a_file_is_taken_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("fail-point.some");
        fs::write(&file, "a.first\n").unwrap();
        assert_eq!(take(&file).unwrap().as_deref(), Some("a.first"));
        assert_eq!(take(&file).unwrap(), None);
    }

    #[test]
    fn a_place_that_is_not_armed_is_passed() {
        ALL[0].pass();
    }
}
