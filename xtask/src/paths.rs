//! Where things lie: the repository, what it builds for people to run, and the cache behind it.
//!
//! The cache is outside `target/`, so that a second clone on the same machine finds it warm and
//! `cargo clean` costs minutes instead of an hour. Everything under `target/space/` can be deleted.

use std::env;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};

/// The root of the checkout that this xtask works on: the one that `cargo xtask` was called in. Where it was
/// compiled is no witness, because checkouts may share a target directory.
pub(crate) fn root() -> &'static Utf8Path {
    static ROOT: OnceLock<Utf8PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let manifest =
            env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
        Utf8Path::new(&manifest).parent().unwrap_or(Utf8Path::new("/")).to_owned()
    })
}

/// Inputs of the images, checked in.
pub(crate) fn images() -> Utf8PathBuf {
    root().join("images")
}

/// Cargo's target directory.
pub(crate) fn target() -> Utf8PathBuf {
    match env::var("CARGO_TARGET_DIR") {
        Ok(dir) if !dir.is_empty() => root().join(dir),
        Ok(_) | Err(_) => root().join("target"),
    }
}

/// Everything of ours under the target directory.
pub(crate) fn space() -> Utf8PathBuf {
    target().join("space")
}

/// What `space up --assets` is pointed at.
pub(crate) fn assets() -> Utf8PathBuf {
    space().join("assets")
}

/// Release binaries.
pub(crate) fn bin() -> Utf8PathBuf {
    space().join("bin")
}

/// Logs of builds and runs, kept until the next one.
pub(crate) fn logs() -> Utf8PathBuf {
    space().join("logs")
}

/// The content-keyed cache: `SPACE_CACHE`, else the user's cache directory.
pub(crate) fn cache() -> Result<Utf8PathBuf> {
    if let Some(dir) = non_empty("SPACE_CACHE") {
        return Ok(dir.into());
    }
    if let Some(dir) = non_empty("XDG_CACHE_HOME") {
        return Ok(Utf8PathBuf::from(dir).join("space"));
    }
    let home = non_empty("HOME").context("neither SPACE_CACHE nor HOME is set")?;
    Ok(Utf8PathBuf::from(home).join(".cache/space"))
}

fn non_empty(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
