//! A private PostgreSQL: its own directory, a Unix socket that only its own user can reach, no TCP.

use std::{os::unix::fs::PermissionsExt, process::Stdio, time::Duration};

use anyhow::{Context, bail};
use camino::{Utf8Path, Utf8PathBuf};
use nix::sys::signal::Signal;
use tokio::{io::AsyncWriteExt, process::Command, time::timeout};

use super::{layout::Layout, process::Program, user::Account};

/// Oldest major version that is known to do.
pub(crate) const OLDEST: u32 = 14;
pub(super) const DATABASE: &str = "space";
const INIT_DEADLINE: Duration = Duration::from_mins(5);

/// Where a version's programs lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binaries {
    pub(crate) dir: Utf8PathBuf,
    pub(crate) version: u32,
}

impl Binaries {
    /// The newest there is: in `PATH`, or where distributions put them (Debian and Ubuntu; Red Hat's kind).
    pub(crate) fn find() -> Option<Self> {
        let mut dirs = search_path();
        dirs.extend(below("/usr/lib/postgresql", "bin"));
        dirs.extend(below("/usr", "bin"));
        dirs.into_iter().filter_map(Self::in_dir).max_by_key(|found| found.version)
    }

    /// A running server's data belongs to one version, so a later start must use the same.
    fn find_version(version: u32) -> Option<Self> {
        let mut dirs = search_path();
        dirs.extend(below("/usr/lib/postgresql", "bin"));
        dirs.extend(below("/usr", "bin"));
        dirs.into_iter().filter_map(Self::in_dir).find(|found| found.version == version)
    }

    fn in_dir(dir: Utf8PathBuf) -> Option<Self> {
        if !is_program(&dir.join("initdb")) || !is_program(&dir.join("postgres")) {
            return None;
        }
        let output = std::process::Command::new(dir.join("postgres")).arg("--version").output().ok()?;
        let version = parse_version(&String::from_utf8_lossy(&output.stdout))?;
        (version >= OLDEST).then_some(Self { dir, version })
    }
}

/// `postgres (PostgreSQL) 15.18 (Debian …)`.
fn parse_version(text: &str) -> Option<u32> {
    let number = text.split_once("(PostgreSQL) ")?.1;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// `<dir>/*/<name>`, for the layout of distributions.
fn below(dir: &str, name: &str) -> Vec<Utf8PathBuf> {
    let entries = Utf8Path::new(dir).read_dir_utf8().into_iter().flatten().flatten();
    entries
        .filter(|entry| dir != "/usr" || entry.file_name().starts_with("pgsql-"))
        .map(|entry| entry.path().join(name))
        .collect()
}

fn search_path() -> Vec<Utf8PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').filter(|dir| dir.starts_with('/')).map(Utf8PathBuf::from).collect()
}

fn is_program(path: &Utf8Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// A program of the system, also where a user's `PATH` leaves out the administrator's directories.
pub(crate) fn find_in_path(name: &str) -> Option<Utf8PathBuf> {
    let mut dirs = search_path();
    dirs.extend(["/usr/sbin", "/sbin"].map(Utf8PathBuf::from));
    dirs.into_iter().map(|dir| dir.join(name)).find(|path| is_program(path))
}

/// Makes the database at the first start, and answers how to run it.
pub(super) async fn prepare(layout: &Layout, account: &Account) -> anyhow::Result<Program> {
    let marker = layout.postgres_data().join("PG_VERSION");
    let found = if marker.exists() {
        let text = std::fs::read_to_string(&marker).with_context(|| format!("cannot read {marker}"))?;
        let version: u32 = text.trim().parse().with_context(|| format!("{marker} holds no version"))?;
        Binaries::find_version(version)
            .with_context(|| format!("the database is of PostgreSQL {version}: install that version again"))?
    } else {
        let found = Binaries::find().context("PostgreSQL is not installed")?;
        initialise(&found, layout, account).await?;
        found
    };
    Ok(program(&found, layout, account))
}

/// Made under another name first, so that an interruption leaves nothing half-made behind.
async fn initialise(found: &Binaries, layout: &Layout, account: &Account) -> anyhow::Result<()> {
    let (data, new) = (layout.postgres_data(), layout.postgres().join("data.new"));
    if new.exists() {
        std::fs::remove_dir_all(&new).with_context(|| format!("cannot remove {new}"))?;
    }
    let mut initdb = command(found, "initdb", layout, account);
    initdb.args(["--username", &account.name, "--auth-local=peer", "--auth-host=reject", "--encoding=UTF8"]);
    initdb.args(["--locale=C", "--data-checksums", "--no-instructions", "--no-sync"]);
    initdb.args(["--pgdata", new.as_str()]);
    finish(initdb, "initdb", "").await?;
    let mut single = command(found, "postgres", layout, account);
    single.args(["--single", "-F", "-D", new.as_str(), "postgres"]);
    finish(single, "postgres --single", &format!("CREATE DATABASE {DATABASE};\n")).await?;
    // Once for all of it, rather than a thousand times on the way.
    let written = std::fs::File::open(&new).and_then(|dir| Ok(nix::unistd::syncfs(dir)?));
    written.with_context(|| format!("cannot write {new} out"))?;
    std::fs::rename(&new, &data).with_context(|| format!("cannot rename {new}"))
}

fn program(found: &Binaries, layout: &Layout, account: &Account) -> Program {
    let settings = [
        "listen_addresses=".to_owned(),
        format!("unix_socket_directories={}", layout.postgres_socket_dir()),
        "unix_socket_permissions=0700".to_owned(),
        "max_connections=64".to_owned(),
        "logging_collector=off".to_owned(),
    ];
    let mut arguments = vec!["-D".to_owned(), layout.postgres_data().into_string()];
    arguments.extend(settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]));
    Program {
        name: "postgres",
        path: found.dir.join("postgres"),
        arguments,
        account: Some(account.clone()),
        // Fast shutdown: ends sessions, loses nothing.
        stop: Signal::SIGINT,
        patience: Duration::from_secs(30),
        clear_environment: true,
    }
}

fn command(found: &Binaries, name: &str, layout: &Layout, account: &Account) -> Command {
    let mut command = std::process::Command::new(found.dir.join(name));
    account.apply(&mut command);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C").current_dir(layout.postgres());
    crate::sys::end_with_parent(&mut command, Signal::SIGKILL);
    Command::from(command)
}

async fn finish(mut command: Command, name: &str, input: &str) -> anyhow::Result<()> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).await.with_context(|| format!("cannot write to {name}"))?;
    }
    let output = timeout(INIT_DEADLINE, child.wait_with_output()).await;
    let output = output.with_context(|| format!("{name} does not end"))??;
    if !output.status.success() {
        bail!("{name} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_program_prints_them() {
        assert_eq!(parse_version("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(parse_version("postgres (PostgreSQL) 18beta1\n"), Some(18));
        assert_eq!(parse_version("psql 9"), None);
    }
}
