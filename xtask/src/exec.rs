//! Running other programs: with their output in a log, a progress line, and a deadline where one is due.

use std::fs::{self, File};
use std::io::{IsTerminal, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::paths;

/// Runs `command` to its end with all output in `logs/<name>.log`, showing `what` and the time it takes.
/// Fails with the end of the log when the command does.
pub(crate) fn logged(what: &str, name: &str, command: &mut Command) -> Result<()> {
    let log = open_log(name)?;
    run_logged(what, name, command.stdout(log.try_clone()?).stderr(log))
}

/// Like [`logged`], with what the command prints in `output` and only its complaints in the log.
pub(crate) fn logged_to(what: &str, name: &str, command: &mut Command, output: File) -> Result<()> {
    let log = open_log(name)?;
    run_logged(what, name, command.stdout(output).stderr(log))
}

fn run_logged(what: &str, name: &str, command: &mut Command) -> Result<()> {
    let log_path = log_path(name);
    command.stdin(Stdio::null());
    let started = Instant::now();
    let bar = spinner(what);
    let status = command.status().with_context(|| format!("cannot run {}", shown(command)));
    bar.finish_and_clear();
    let status = status?;
    if !status.success() {
        eprintln!("{}", tail(&log_path, 40));
        bail!("{what}: {} ended with {status} (log: {log_path})", shown(command));
    }
    eprintln!("{what}: done in {}", seconds(started.elapsed()));
    Ok(())
}

/// Runs `command` with its output going where ours goes.
pub(crate) fn passed_through(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", shown(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", shown(command));
    }
    Ok(())
}

/// Runs `command` and returns what it printed, without the last newline.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {}", shown(command)))?;
    if !output.status.success() {
        bail!(
            "{} ended with {}: {}",
            shown(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let text = String::from_utf8(output.stdout).context("output that isn't UTF-8")?;
    Ok(text.trim_end().to_owned())
}

/// Waits until `child` ends or `limit` passes; `None` means that it still runs.
pub(crate) fn wait_for(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    if let Some(status) = child.try_wait()? {
        return Ok(Some(status));
    }
    let pid = Pid::from_child(child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("cannot open a pidfd")?;
    readable(&pidfd, limit)?;
    Ok(child.try_wait()?)
}

/// Waits up to `limit` for a descriptor to become readable; a signal ends the wait early.
pub(crate) fn readable(descriptor: &impl AsFd, limit: Duration) -> Result<bool> {
    let limit = Timespec::try_from(limit).context("a deadline too far away")?;
    let mut set = [PollFd::new(descriptor, PollFlags::IN)];
    match poll(&mut set, Some(&limit)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error).context("cannot poll"),
    }
}

/// Whether `program` is on the path.
pub(crate) fn found(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|dir| dir.join(program).is_file())
}

/// Whether cargo has the subcommand `tool`.
pub(crate) fn found_cargo_tool(tool: &str) -> bool {
    let name = format!("cargo-{tool}");
    let home = std::env::var("CARGO_HOME")
        .map(Utf8PathBuf::from)
        .or_else(|_| std::env::var("HOME").map(|home| Utf8PathBuf::from(home).join(".cargo")));
    found(&name) || home.is_ok_and(|home| home.join("bin").join(&name).is_file())
}

/// A line that says what is going on and for how long. Without a terminal it is printed once.
pub(crate) fn spinner(what: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        eprintln!("{what} …");
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner().with_message(what.to_owned());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// A duration as people read it: `0.8 s`, `12 s`, `7 minutes`.
pub(crate) fn seconds(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds < 10.0 => format!("{seconds:.1} s"),
        seconds if seconds < 100.0 => format!("{seconds:.0} s"),
        _ => HumanDuration(duration).to_string(),
    }
}

/// The last `lines` lines of a log.
pub(crate) fn tail(path: &Utf8Path, lines: usize) -> String {
    const WINDOW: u64 = 64 * 1024;
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(WINDOW)))?;
        let mut bytes = Vec::new();
        file.take(WINDOW).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

fn log_path(name: &str) -> Utf8PathBuf {
    paths::logs().join(format!("{name}.log"))
}

fn open_log(name: &str) -> Result<File> {
    let path = log_path(name);
    fs::create_dir_all(paths::logs()).with_context(|| format!("cannot make {}", paths::logs()))?;
    File::create(&path).with_context(|| format!("cannot make {path}"))
}

fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args().take(6) {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}
