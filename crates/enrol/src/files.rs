//! Small files that nobody else may read, and that are whole or not there.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
};

use camino::Utf8Path;

/// Writes `directory/name`, 0600. It is on disk when this returns.
pub fn write_private(directory: &Utf8Path, name: &str, content: &str) -> io::Result<()> {
    let temporary = directory.join(format!(".{name}"));
    let mut options = File::options();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, directory.join(name))?;
    File::open(directory)?.sync_all()
}

/// `None`: there is no such file.
pub(crate) fn read(directory: &Utf8Path, name: &str) -> io::Result<Option<String>> {
    match fs::read_to_string(directory.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}
