//! The guest kernel: a pinned source tarball, `allnoconfig`, our fragment, one patch.
//!
//! Every line of the fragment must survive `olddefconfig`: an option that the kernel drops without a word
//! (a missing dependency, a typo) is a feature that users find missing.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use serde::Deserialize;

use crate::cache::{self, Inputs};
use crate::{apt, exec, paths};

/// `images/guest-kernel/source.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    package: String,
    tarball: Utf8PathBuf,
    licence: String,
    accepted: Vec<Accepted>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Accepted {
    version: String,
    sha256: String,
}

/// A kernel image and where it came from.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) vmlinux: Utf8PathBuf,
    pub(crate) version: String,
    pub(crate) licence: String,
}

/// The guest kernel, built when its inputs changed.
pub(crate) fn ready() -> Result<Kernel> {
    let inputs = paths::images().join("guest-kernel");
    let source_path = inputs.join("source.toml");
    let text = fs::read_to_string(&source_path).with_context(|| format!("no {source_path}"))?;
    let source: Source = toml::from_str(&text).with_context(|| format!("in {source_path}"))?;
    if let Some(kernel) = already_built(&source, &inputs)? {
        return Ok(kernel);
    }
    let (tarball, pinned) = fetch(&source)?;
    let entry = cache::entry("guest-kernel", hash(&pinned, &inputs)?, |dir| build(&tarball, &inputs, dir))?;
    Ok(kernel(&entry, &pinned, &source))
}

/// The tarball isn't needed to see that a kernel was built from it.
fn already_built(source: &Source, inputs: &Utf8Path) -> Result<Option<Kernel>> {
    if std::env::var_os("SPACE_KERNEL_SOURCE").is_some() {
        return Ok(None);
    }
    for pinned in &source.accepted {
        if let Some(entry) = cache::existing("guest-kernel", hash(pinned, inputs)?)? {
            return Ok(Some(kernel(&entry, pinned, source)));
        }
    }
    Ok(None)
}

fn hash(pinned: &Accepted, inputs: &Utf8Path) -> Result<Inputs> {
    Inputs::new("guest-kernel", 1)
        .text(&pinned.sha256)
        .file(&inputs.join("fragment.config"))?
        .file(&inputs.join("vmgenid-fcvmgid.patch"))
}

fn kernel(entry: &Utf8Path, pinned: &Accepted, source: &Source) -> Kernel {
    Kernel {
        vmlinux: entry.join("vmlinux"),
        version: pinned.version.clone(),
        licence: source.licence.clone(),
    }
}

/// A source tarball whose hash is accepted, and which one it is.
fn fetch(source: &Source) -> Result<(Utf8PathBuf, Accepted)> {
    if let Ok(place) = std::env::var("SPACE_KERNEL_SOURCE") {
        let sha256 = std::env::var("SPACE_KERNEL_SOURCE_SHA256")
            .context("SPACE_KERNEL_SOURCE needs SPACE_KERNEL_SOURCE_SHA256 beside it")?;
        let pinned = Accepted { version: "custom".to_owned(), sha256 };
        let tarball = local_copy(&place, &pinned)?;
        let accepted = accepted(&tarball, std::slice::from_ref(&pinned))?;
        return Ok((tarball, accepted));
    }
    let installed = Utf8Path::new("/").join(&source.tarball);
    if installed.is_file()
        && let Ok(pinned) = accepted(&installed, &source.accepted)
    {
        return Ok((installed, pinned));
    }
    let tree = apt::unpacked(&source.package).context(
        "this distribution has no package of the kernel source that we build from; \
         set SPACE_KERNEL_SOURCE and SPACE_KERNEL_SOURCE_SHA256 to a tarball of it",
    )?;
    let tarball = tree.join(&source.tarball);
    let pinned = accepted(&tarball, &source.accepted)?;
    Ok((tarball, pinned))
}

fn local_copy(place: &str, pinned: &Accepted) -> Result<Utf8PathBuf> {
    if !place.contains("://") {
        return Ok(place.into());
    }
    let inputs = Inputs::new("kernel-source", 1).text(place).text(&pinned.sha256);
    let entry = cache::entry("kernel-source", inputs, |dir| {
        exec::logged(
            "downloading the kernel source",
            "kernel-source",
            Command::new("curl")
                .args(["--fail", "--location", "--silent", "--show-error", "--output"])
                .arg(dir.join("source.tar"))
                .arg(place),
        )
    })?;
    Ok(entry.join("source.tar"))
}

fn accepted(tarball: &Utf8Path, list: &[Accepted]) -> Result<Accepted> {
    let sha256 = cache::sha256_file(tarball)?;
    list.iter().find(|pinned| pinned.sha256 == sha256).cloned().with_context(|| {
        format!(
            "{tarball} has the SHA-256 {sha256}, which images/guest-kernel/source.toml doesn't \
                 accept; after a point update of the distribution's package, add it there"
        )
    })
}

fn build(tarball: &Utf8Path, inputs: &Utf8Path, dir: &Utf8Path) -> Result<()> {
    let tree = dir.join("tree");
    let fragment = inputs.join("fragment.config");
    fs::create_dir(&tree)?;
    exec::logged(
        "guest kernel: unpacking the source",
        "kernel-unpack",
        Command::new("tar").args(["--strip-components=1", "-xf"]).arg(tarball).arg("-C").arg(&tree),
    )?;
    exec::output(
        Command::new("patch")
            .args(["-p1", "-i"])
            .arg(inputs.join("vmgenid-fcvmgid.patch"))
            .current_dir(&tree),
    )?;
    exec::output(make(&tree).arg("allnoconfig"))?;
    exec::output(
        Command::new(tree.join("scripts/kconfig/merge_config.sh"))
            .args(["-m", ".config"])
            .arg(&fragment)
            .current_dir(&tree),
    )?;
    exec::output(make(&tree).arg("olddefconfig"))?;
    let wanted = fs::read_to_string(&fragment)?;
    let config = fs::read_to_string(tree.join(".config"))?;
    let dropped = dropped_options(&wanted, &config);
    if !dropped.is_empty() {
        bail!("the kernel drops these lines of {fragment}: {}", dropped.join(", "));
    }
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    exec::logged(
        "guest kernel: compiling (a quarter of an hour on two idle cores)",
        "kernel-build",
        make(&tree).arg(format!("-j{jobs}")).arg("vmlinux"),
    )?;
    exec::output(
        Command::new("strip")
            .args(["--strip-debug", "-o"])
            .arg(dir.join("vmlinux"))
            .arg(tree.join("vmlinux")),
    )?;
    fs::copy(tree.join(".config"), dir.join("config"))?;
    cache::remove_dir(&tree)
}

/// `make` whose output depends on nothing but the source and the compiler.
fn make(tree: &Utf8Path) -> Command {
    let mut command = Command::new("make");
    command
        .arg("-C")
        .arg(tree)
        .env("KBUILD_BUILD_TIMESTAMP", "@1750000000")
        .env("KBUILD_BUILD_USER", "space")
        .env("KBUILD_BUILD_HOST", "space")
        .env_remove("MAKEFLAGS")
        .env_remove("MFLAGS");
    command
}

/// Lines of the fragment that the configuration doesn't have. `=n` is met by the option's absence.
fn dropped_options(fragment: &str, config: &str) -> Vec<String> {
    let has = |line: &str| config.lines().any(|have| have == line);
    fragment
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("CONFIG_"))
        .filter(|line| match line.strip_suffix("=n") {
            Some(name) => has(&format!("{name}=y")) || has(&format!("{name}=m")),
            None => !has(line),
        })
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_the_kernel_dropped_is_named() {
        let dropped = dropped_options("# text\nCONFIG_A=y\nCONFIG_B=y\n", "CONFIG_A=y\n");
        assert_eq!(dropped, ["CONFIG_B=y"]);
    }

    #[test]
    fn an_option_switched_off_must_be_off() {
        assert!(dropped_options("CONFIG_A=n\n", "# CONFIG_A is not set\n").is_empty());
        assert_eq!(dropped_options("CONFIG_A=n\n", "CONFIG_A=y\n"), ["CONFIG_A=n"]);
    }
}
