//! The directory that `initdb` makes, kept between test processes.

use std::{
    fs::{self, File},
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::shell::{command, program, run, user};

/// Of everything that tests leave on the machine.
fn base() -> PathBuf {
    std::env::temp_dir().join(format!("space-testkit-{}", nix::unistd::Uid::effective()))
}

/// A fresh data directory inside a directory of its own, both owned by the server's user.
pub(super) fn fresh() -> anyhow::Result<tempfile::TempDir> {
    let base = base();
    fs::create_dir_all(&base).with_context(|| format!("cannot make {}", base.display()))?;
    fs::set_permissions(&base, fs::Permissions::from_mode(0o755))?;
    let template = template(&base)?;
    let dir = tempfile::Builder::new().prefix(&format!("{}-", std::process::id())).tempdir_in(&base)?;
    own(dir.path())?;
    let mut copy = command(Path::new("cp"), false)?;
    copy.arg("--recursive")
        .arg("--reflink=auto")
        .arg("--preserve=mode")
        .arg(&template)
        .arg(dir.path().join("data"));
    run(copy)?;
    Ok(dir)
}

fn template(base: &Path) -> anyhow::Result<PathBuf> {
    // One process makes it while the others wait.
    let lock = File::create(base.join("lock"))?;
    lock.lock().context("cannot lock the template")?;
    sweep(base);
    let version = program("initdb").to_string_lossy().replace('/', "_");
    let template = base.join(format!("template{version}"));
    if template.exists() {
        return Ok(template);
    }
    let dir = tempfile::Builder::new().prefix("initdb-").tempdir_in(base)?;
    own(dir.path())?;
    let made = dir.path().join("data");
    let mut initdb = command(&program("initdb"), false)?;
    initdb.args([
        "--username=postgres",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
        "--no-sync",
        "--pgdata",
    ]);
    initdb.arg(&made);
    run(initdb)?;
    fs::rename(&made, &template)?;
    Ok(template)
}

/// Removes what processes left that are gone.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner =
            name.to_str().and_then(|name| name.split_once('-')).and_then(|(pid, _)| pid.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            // Another sweeper may be faster, and what can't be removed now is tried again by the next.
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}

fn own(path: &Path) -> anyhow::Result<()> {
    if let Some(user) = user()? {
        chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
