//! Running PostgreSQL's programs as a user that PostgreSQL accepts.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use nix::unistd::{Uid, User};

/// Who runs the server.
pub(super) fn user() -> anyhow::Result<Option<User>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let Some(user) = User::from_name(name)? {
            return Ok(Some(user));
        }
    }
    bail!("running as root, and there is neither a user `postgres` nor `nobody`")
}

/// `program` as that user; killed when the thread that starts it ends, if `bound`.
pub(super) fn command(program: &Path, bound: bool) -> anyhow::Result<Command> {
    let user = user()?;
    if user.is_none() && !bound {
        return Ok(Command::new(program));
    }
    let mut command = Command::new("setpriv");
    if bound {
        command.arg("--pdeathsig=QUIT");
    }
    if let Some(user) = user {
        command
            .args([format!("--reuid={}", user.uid), format!("--regid={}", user.gid)])
            .arg("--clear-groups");
    }
    command.arg(program);
    Ok(command)
}

/// Runs it to its end.
pub(super) fn run(mut command: Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if output.status.success() {
        return Ok(());
    }
    bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr))
}

/// One of PostgreSQL's programs: from `SPACE_POSTGRES_BIN`, where Debian puts them, or the path.
pub(super) fn program(name: &str) -> PathBuf {
    if let Some(dir) = std::env::var_os("SPACE_POSTGRES_BIN") {
        return Path::new(&dir).join(name);
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path())))
        .max_by_key(|(version, _)| *version);
    newest.map_or_else(|| PathBuf::from(name), |(_, path)| path.join("bin").join(name))
}
