//! One supervised program: started, watched, started again when it dies, stopped in order.
//!
//! ```text
//!   start ──▶ running ──dies──▶ pause (doubling) ──▶ start
//!               └──────stop────▶ signal ──deadline──▶ KILL
//! ```
//!
//! One task owns each program. Output goes straight into a log file, so that a program never blocks on, or
//! breaks with, its supervisor. The log is cut while the program runs: see [`super::log`].

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, SeekFrom},
    os::unix::{fs::OpenOptionsExt, process::CommandExt},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::Context;
use camino::{Utf8Path, Utf8PathBuf};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::{Child, Command},
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use super::{log::keep_bounded, user::Account};
use crate::sys;

const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Short: while it lasts, the installation has no such program.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Who lived for so long died of something new.
const STABLE: Duration = Duration::from_secs(10);

/// How to run a program.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) path: Utf8PathBuf,
    pub(super) arguments: Vec<String>,
    /// Root where there is none.
    pub(super) account: Option<Account>,
    /// Asks for an orderly end.
    pub(super) stop: Signal,
    /// How long that may take.
    pub(super) patience: Duration,
    pub(super) clear_environment: bool,
}

/// A program under supervision. Dropping it ends the supervision, and the kernel then ends the program.
#[derive(Debug)]
pub(super) struct Supervised {
    pub(super) name: &'static str,
    stop: watch::Sender<bool>,
    deaths: watch::Receiver<u32>,
    log: Utf8PathBuf,
    task: JoinHandle<()>,
}

impl Supervised {
    pub(super) fn start(program: Program, log: Utf8PathBuf) -> anyhow::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let (died, deaths) = watch::channel(0);
        let name = program.name;
        let first = spawn(&program, &log)?;
        let task = tokio::spawn(supervise(program, log.clone(), first, stopped, died));
        Ok(Self { name, stop, deaths, log, task })
    }

    /// Ends once the program has died `count` times. Cancel safe.
    pub(super) async fn died(&mut self, count: u32) {
        // The sender lives as long as the task, which ends only when it is told to.
        if self.deaths.wait_for(|deaths| *deaths >= count).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The end of its log.
    pub(super) fn last_words(&self) -> String {
        tail(&self.log).unwrap_or_default()
    }

    pub(super) fn log(&self) -> &Utf8Path {
        &self.log
    }

    pub(super) async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            eprintln!("space: the supervision of {} broke: {error}", self.name);
        }
    }
}

async fn supervise(
    program: Program,
    log: Utf8PathBuf,
    first: Child,
    mut stopped: watch::Receiver<bool>,
    died: watch::Sender<u32>,
) {
    let mut running = Some(first);
    let mut pause = FIRST_PAUSE;
    loop {
        let begin = Instant::now();
        let end = match running.take() {
            Some(mut child) => tokio::select! {
                status = child.wait() => describe(status),
                () = told(&mut stopped) => return end(&program, child).await,
                never = keep_bounded(&log) => match never {},
            },
            None => "could not be started".to_owned(),
        };
        if begin.elapsed() >= STABLE {
            pause = FIRST_PAUSE;
        }
        eprintln!("space: {} {end}; starting it again in {pause:?} (log: {log})", program.name);
        died.send_modify(|deaths| *deaths += 1);
        tokio::select! {
            () = sleep(pause) => {}
            () = told(&mut stopped) => return,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
        running = match spawn(&program, &log) {
            Ok(child) => Some(child),
            Err(error) => {
                eprintln!("space: {error:#}");
                None
            }
        };
    }
}

/// Ends when the program is to stop, or nobody supervises it any more.
async fn told(stopped: &mut watch::Receiver<bool>) {
    drop(stopped.wait_for(|stop| *stop).await);
}

fn describe(status: std::io::Result<ExitStatus>) -> String {
    status.map_or_else(|error| format!("can't be waited for: {error}"), |status| format!("ended ({status})"))
}

async fn end(program: &Program, mut child: Child) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw);
    if let Some(Err(error)) = pid.map(|pid| kill(pid, program.stop)) {
        eprintln!("space: cannot signal {}: {error}", program.name);
    }
    if timeout(program.patience, child.wait()).await.is_err() {
        eprintln!("space: {} does not stop; killing it", program.name);
        if let Err(error) = child.kill().await {
            eprintln!("space: cannot kill {}: {error}", program.name);
        }
    }
}

fn spawn(program: &Program, log: &Utf8Path) -> anyhow::Result<Child> {
    let out = OpenOptions::new().create(true).append(true).mode(0o600).open(log);
    let out = out.with_context(|| format!("cannot open {log}"))?;
    let mut command = std::process::Command::new(&program.path);
    command.args(&program.arguments).current_dir("/");
    if program.clear_environment {
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C");
    }
    command.envs(space_fail_point::for_child(program.name)?.map(|name| (space_fail_point::VARIABLE, name)));
    for secret in ["SPACE_API_KEY", "SPACE_CREDENTIALS"] {
        command.env_remove(secret);
    }
    // A group of its own: the terminal's Ctrl-C is for the supervisor, which stops things in order.
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).process_group(0);
    if let Some(account) = &program.account {
        account.apply(&mut command);
    }
    sys::end_with_parent(&mut command, program.stop);
    Command::from(command).spawn().with_context(|| format!("cannot start {}", program.path))
}

fn tail(log: &Utf8Path) -> std::io::Result<String> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(4096)))?;
    let mut bytes = Vec::new();
    file.take(4096).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let lines: Vec<_> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(8)..].join("\n"))
}
