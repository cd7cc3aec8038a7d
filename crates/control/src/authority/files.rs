//! Private files: made whole or not at all, readable by the daemon's user alone.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
};

use camino::Utf8Path;

use super::AuthorityError;

pub(super) fn make_private_dir(path: &Utf8Path) -> Result<(), AuthorityError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| AuthorityError::File { path: path.to_owned(), source })
}

/// The file's content; made first if there is none.
pub(super) fn read_or_make(
    path: &Utf8Path,
    make: impl FnOnce() -> Result<Vec<u8>, AuthorityError>,
) -> Result<Vec<u8>, AuthorityError> {
    let failed = |source| AuthorityError::File { path: path.to_owned(), source };
    match fs::read(path) {
        Ok(content) => Ok(content),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let content = make()?;
            write_private(path, &content).map_err(failed)?;
            Ok(content)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Writes a file 0600, replacing another one in one step.
pub(crate) fn write_private(path: &Utf8Path, content: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    let parent = path.parent().filter(|parent| !parent.as_str().is_empty()).unwrap_or(Utf8Path::new("."));
    fs::File::open(parent)?.sync_all()
}
