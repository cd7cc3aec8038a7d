//! Where the daemons are run from.
//!
//! They change their user before they are executed. A directory that is closed to others, such as a checkout in
//! somebody's home, can't be run from then; the programs are copied beside the data instead.

use std::{fs, os::unix::fs::PermissionsExt};

use anyhow::Context;
use camino::{Utf8Path, Utf8PathBuf};

use super::layout::{Layout, unreachable_ancestor};
use crate::assets;

const NAMES: [&str; 4] = ["space-controld", "space-edged", "space-noded", "space-sandboxd"];

/// A directory that holds all of them and that every user can reach.
pub(super) fn ensure(layout: &Layout) -> anyhow::Result<Utf8PathBuf> {
    let built = assets::program_dir()?;
    for name in NAMES {
        let path = built.join(name);
        fs::metadata(&path).with_context(|| format!("{path} is missing: it belongs beside `space`"))?;
    }
    if unreachable_ancestor(&built.join(NAMES[0])).is_none() {
        return Ok(built);
    }
    let programs = layout.programs();
    fs::create_dir_all(&programs).with_context(|| format!("cannot make {programs}"))?;
    fs::set_permissions(&programs, fs::Permissions::from_mode(0o755))?;
    NAMES.iter().try_for_each(|name| install(&built.join(name), &programs.join(name)))?;
    Ok(programs)
}

/// Replaced in one step: an older one may still be running.
fn install(from: &Utf8Path, to: &Utf8Path) -> anyhow::Result<()> {
    let new = to.with_extension("new");
    let installed = || -> std::io::Result<()> {
        fs::copy(from, &new)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
        fs::rename(&new, to)
    };
    installed().with_context(|| format!("cannot copy {from} to {to}"))
}
