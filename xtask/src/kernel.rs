//! The guest kernel: a pinned source tarball (`kernel_source`), `allnoconfig`, our fragment, one patch.
//!
//! Every line of the fragment must survive `olddefconfig`: an option that the kernel drops without a word
//! (a missing dependency, a typo) is a feature that users find missing.

use std::fs;
use std::process::Command;

use anyhow::{Result, bail};
use camino::{Utf8Path, Utf8PathBuf};

use crate::cache::{self, Inputs};
use crate::kernel_source::{self, Accepted, Source, Tarball};
use crate::{exec, paths};

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
    let source = Source::read(&inputs.join("source.toml"))?;
    if let Some(kernel) = already_built(&source, &inputs)? {
        return Ok(kernel);
    }
    let Tarball { path, known } = kernel_source::tarball(&source)?;
    let entry = cache::entry("guest-kernel", hash(&known, &inputs)?, |dir| build(&path, &inputs, dir))?;
    Ok(kernel(&entry, &known, &source))
}

/// The tarball isn't needed to see that a kernel was built from it.
fn already_built(source: &Source, inputs: &Utf8Path) -> Result<Option<Kernel>> {
    if kernel_source::is_named() {
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
