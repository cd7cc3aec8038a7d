//! The build cache: directories named by the hash of everything that went into them.
//!
//! An entry is made under a temporary name and renamed when whole, so an entry that exists is complete
//! and an interrupted build leaves only garbage that the next one removes. A lock per entry keeps two
//! runs from building the same thing side by side. Entries are never changed after the rename.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use sha2::{Digest, Sha256};

use crate::paths;

/// Collects the inputs of an entry. Each input is framed by its length, so that no two sequences of
/// inputs hash alike.
#[derive(Clone)]
pub(crate) struct Inputs(Sha256);

impl Inputs {
    /// Starts with the kind of entry and the version of the recipe that makes it: raise the version when
    /// the code that builds changes what comes out.
    pub(crate) fn new(kind: &str, recipe: u32) -> Self {
        Self(Sha256::new()).text(kind).text(&recipe.to_string())
    }

    pub(crate) fn text(mut self, text: &str) -> Self {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
        self
    }

    /// The file's content; its name and times don't count.
    pub(crate) fn file(self, path: &Utf8Path) -> Result<Self> {
        let digest = sha256_file(path)?;
        Ok(self.text(&digest))
    }

    fn finish(self) -> String {
        hex::encode(&self.0.finalize()[..12])
    }
}

/// The entry of `kind` for `inputs`, built by `build` into an empty directory when there is none yet.
pub(crate) fn entry(
    kind: &str,
    inputs: Inputs,
    build: impl FnOnce(&Utf8Path) -> Result<()>,
) -> Result<Utf8PathBuf> {
    let parent = paths::cache()?.join(kind);
    let name = inputs.finish();
    let done = parent.join(&name);
    if done.is_dir() {
        return Ok(done);
    }
    fs::create_dir_all(&parent).with_context(|| format!("cannot make {parent}"))?;
    let lock_path = parent.join(format!(".{name}.lock"));
    let lock = File::create(&lock_path).with_context(|| format!("cannot make {lock_path}"))?;
    lock.lock().with_context(|| format!("cannot lock {lock_path}"))?;
    if done.is_dir() {
        return Ok(done);
    }
    let work = parent.join(format!(".{name}.part"));
    remove_dir(&work)?;
    fs::create_dir(&work).with_context(|| format!("cannot make {work}"))?;
    build(&work)?;
    fs::rename(&work, &done).with_context(|| format!("cannot rename {work} to {done}"))?;
    Ok(done)
}

/// The entry of `kind` for `inputs` if there is one.
pub(crate) fn existing(kind: &str, inputs: Inputs) -> Result<Option<Utf8PathBuf>> {
    let path = paths::cache()?.join(kind).join(inputs.finish());
    Ok(path.is_dir().then_some(path))
}

/// Removes a directory tree that may not exist.
pub(crate) fn remove_dir(path: &Utf8Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot remove {path}")),
    }
}

/// SHA-256 of a file's content in hex.
pub(crate) fn sha256_file(path: &Utf8Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("cannot open {path}"))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer).with_context(|| format!("cannot read {path}"))?;
        if read == 0 {
            return Ok(hex::encode(hash.finalize()));
        }
        hash.update(&buffer[..read]);
    }
}

/// Writes a file that anybody may read, so that nobody ever sees half of it.
pub(crate) fn write_atomic(path: &Utf8Path, content: &[u8]) -> Result<()> {
    write_with_mode(path, content, 0o644)
}

/// The same for a file that holds a secret.
pub(crate) fn write_secret(path: &Utf8Path, content: &[u8]) -> Result<()> {
    write_with_mode(path, content, 0o600)
}

fn write_with_mode(path: &Utf8Path, content: &[u8], mode: u32) -> Result<()> {
    let dir = path.parent().context("a file has a directory")?;
    fs::create_dir_all(dir).with_context(|| format!("cannot make {dir}"))?;
    let mut file = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(mode))
        .tempfile_in(dir)
        .with_context(|| format!("cannot write in {dir}"))?;
    file.write_all(content).with_context(|| format!("cannot write {path}"))?;
    file.persist(path).with_context(|| format!("cannot rename to {path}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_framed_so_that_moving_a_boundary_changes_the_hash() {
        let one = Inputs::new("kind", 1).text("ab").text("c").finish();
        let other = Inputs::new("kind", 1).text("a").text("bc").finish();
        assert_ne!(one, other);
    }

    #[test]
    fn the_same_inputs_give_the_same_name() {
        let name = || Inputs::new("kind", 1).text("ab").finish();
        assert_eq!(name(), name());
    }
}
