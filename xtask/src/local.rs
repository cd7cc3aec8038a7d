//! SPACE right on this machine: `space up` in the background, as root, found again by process id and start time.
//!
//! Its data is not below the checkout: the database and the control plane have users of their own, and those can't
//! pass through anybody's closed home directory.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};

use crate::process::Process;
use crate::setup::sudo;
use crate::{cache, exec, kvm, paths};

const UP_DEADLINE: Duration = Duration::from_mins(3);
/// `space up` gives each of its programs time to stop in order; together they have less than this.
const STOP_DEADLINE: Duration = Duration::from_mins(2);

/// What an earlier run left up.
#[derive(Debug, Serialize, Deserialize)]
struct Running {
    #[serde(flatten)]
    process: Process,
    port: u16,
    data: Utf8PathBuf,
}

/// Fails where SPACE's own users could not reach `data`.
pub(crate) fn require_passable(data: &Utf8Path) -> Result<()> {
    let mode = |dir: &Utf8Path| fs::metadata(dir).ok().map(|meta| meta.permissions().mode());
    match kvm::closed_ancestor(data, mode) {
        Some(dir) => bail!(
            "SPACE can't keep its data in {data}: the users that it runs as may not pass {dir}. \
             Name another directory with SPACE_DATA, such as one below /var/lib or /srv, or `chmod o+x {dir}`"
        ),
        None => Ok(()),
    }
}

/// Starts SPACE, or finds it up, and answers the admin key.
pub(crate) fn up(port: u16, data: &Utf8Path) -> Result<String> {
    let running = match find()? {
        Some(running) if (running.port, running.data.as_path()) != (port, data) => bail!(
            "SPACE is up already, on port {} with its data in {}; `make stop` ends it",
            running.port,
            running.data
        ),
        Some(running) => running,
        None => start(port, data)?,
    };
    wait_until_up(&running)?;
    // The key is for root, or for whoever called sudo.
    exec::output(sudo("cat".into()).arg(data.join("admin.key")))
}

/// Stops what is up and waits for its end. Answers whether there was anything.
pub(crate) fn stop() -> Result<bool> {
    let Some(running) = find()? else {
        return Ok(false);
    };
    let process = running.process;
    let asked = exec::output(sudo("kill".into()).arg(process.pid.to_string()));
    if process.lives() {
        asked?;
    }
    let bar = exec::spinner("waiting for SPACE to stop");
    let until = Instant::now() + STOP_DEADLINE;
    while !process.wait_for_end(until.saturating_duration_since(Instant::now()))? {
        if Instant::now() >= until {
            bail!("`space up` (process {}) does not stop:\n{}", process.pid, exec::tail(&log(), 30));
        }
    }
    bar.finish_and_clear();
    fs::remove_file(record()).with_context(|| format!("cannot remove {}", record()))?;
    Ok(true)
}

fn record() -> Utf8PathBuf {
    paths::space().join("run/up.json")
}

fn log() -> Utf8PathBuf {
    paths::space().join("run/up.log")
}

fn find() -> Result<Option<Running>> {
    let Ok(text) = fs::read(record()) else {
        return Ok(None);
    };
    let running: Running =
        serde_json::from_slice(&text).with_context(|| format!("cannot read {}", record()))?;
    Ok(running.process.lives().then_some(running))
}

fn start(port: u16, data: &Utf8Path) -> Result<Running> {
    if TcpStream::connect(("127.0.0.1", port)).is_ok() {
        bail!(
            "another program listens on port {port}, perhaps an emulated host, which `make stop` ends, or a `space up` \
             that was started by hand: stop it, or `cargo xtask run --port` takes another one"
        );
    }
    if !rustix::process::geteuid().is_root() {
        // Asked for now, while we are in the terminal's foreground.
        exec::passed_through(Command::new("sudo").arg("--validate"))?;
    }
    let dir = paths::space().join("run");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {dir}"))?;
    let output = fs::File::create(log()).with_context(|| format!("cannot make {}", log()))?;
    let child = sudo(&paths::bin().join("space"))
        .args(["up", "--data", data.as_str(), "--assets", paths::assets().as_str()])
        .args(["--listen", &format!("127.0.0.1:{port}")])
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0)
        .spawn()
        .context("cannot start `space up`")?;
    let process = Process::of(child.id()).with_context(|| exec::tail(&log(), 30)).context("`space up`")?;
    let running = Running { process, port, data: data.to_owned() };
    cache::write_atomic(&record(), &serde_json::to_vec_pretty(&running)?)?;
    Ok(running)
}

fn wait_until_up(running: &Running) -> Result<()> {
    let bar = exec::spinner("starting SPACE");
    let deadline = Instant::now() + UP_DEADLINE;
    while !fs::read_to_string(log()).unwrap_or_default().contains("SPACE is up") {
        // The log is a file and tells nobody when it grows; this wait ends early when the server does.
        if running.process.wait_for_end(Duration::from_millis(200))? {
            bail!("`space up` ended:\n{}", exec::tail(&log(), 30));
        }
        if Instant::now() > deadline {
            bail!("`space up` does not get ready:\n{}", exec::tail(&log(), 30));
        }
    }
    bar.finish_and_clear();
    Ok(())
}
