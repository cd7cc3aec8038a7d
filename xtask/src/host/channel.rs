//! Commands inside the host, over ssh on a loopback port.
//!
//! One connection is opened at the start and every command rides on it: about 90 ms each instead of 1.5 s.
//! The host's key is pinned. Output streams and the exit code comes through.

use std::fs;
use std::io::{BufReader, prelude::*};
use std::os::unix::fs::DirBuilderExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use camino::Utf8PathBuf;

use super::machine::Machine;
use super::watch::{Health, Watch};
use crate::exec;

/// How a command inside the host ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Code(i32),
    TimedOut,
    /// The host itself was lost; the command is not to blame.
    HostLost(String),
}

/// How often a running command's host is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What coreutils' `timeout` answers when it had to end the command.
const TIMEOUT_CODE: i32 = 124;

impl Machine {
    /// An ssh command to this host, to be completed with the remote shell line.
    pub(crate) fn ssh(&self) -> Result<Command> {
        let mut command = Command::new("ssh");
        command
            .args(["-F", "none", "-T", "-q", "-p", &self.ssh_port.to_string()])
            .args(["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"])
            // A packet a second. QEMU's emulated SVM can lose the timer interrupt that should end a nested
            // guest's turn; the whole host then stands still until any other interrupt comes.
            .args(["-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=600"])
            .args(["-o", "ConnectTimeout=60", "-o", "SendEnv=SPACE_TEST_* RUST_LOG RUST_BACKTRACE"])
            .arg("-o")
            .arg(format!("UserKnownHostsFile={}", self.dir().join("known_hosts")))
            .arg("-o")
            .arg(format!("ControlPath={}", self.control_path()?))
            .arg("-i")
            .arg(&self.key)
            .args(["-o", "IdentitiesOnly=yes", "root@127.0.0.1"]);
        Ok(command)
    }

    /// Opens the connection that the others ride on. It keeps none of our descriptors: an ssh that forks
    /// into the background would hold a caller's pipe open for ever.
    pub(super) fn open_channel(&self) -> Result<()> {
        let null = || Stdio::null();
        let status = self
            .ssh()?
            .args(["-M", "-N", "-f"])
            .stdin(null())
            .stdout(null())
            .stderr(null())
            .status()
            .context("cannot run ssh; `cargo xtask setup` installs it")?;
        if !status.success() {
            bail!("the host's sshd refuses us ({status})");
        }
        Ok(())
    }

    /// Runs a shell line inside, streaming its output, until it ends, `limit` passes or the host is lost.
    pub(crate) fn run(&self, line: &str, limit: Option<Duration>, stdin: Stdio) -> Result<Ended> {
        let mut command = self.ssh()?;
        command.arg(with_limit(line, limit)).stdin(stdin);
        self.supervise(&mut command, limit)
    }

    /// Like [`Machine::run`], handing each line of standard output to `each`.
    pub(crate) fn run_lines(
        &self,
        line: &str,
        limit: Option<Duration>,
        mut each: impl FnMut(&str),
    ) -> Result<Ended> {
        let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
        let mut command = self.ssh()?;
        command.arg(with_limit(line, limit)).stdin(Stdio::null()).stdout(writer);
        std::thread::scope(|scope| {
            let supervisor = scope.spawn(move || {
                let ended = self.supervise(&mut command, limit);
                // The command holds our end of the pipe; without this the reader below never ends.
                drop(command);
                ended
            });
            for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
                each(String::from_utf8_lossy(&line).trim_end_matches('\r'));
            }
            match supervisor.join() {
                Ok(ended) => ended,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Runs a short shell line inside and returns what it printed; fails when it does.
    pub(crate) fn output(&self, line: &str) -> Result<String> {
        self.output_within(line, Duration::from_mins(2))
    }

    /// The same, for what may take longer.
    pub(crate) fn output_within(&self, line: &str, limit: Duration) -> Result<String> {
        let ssh = self.ssh()?;
        // The limit is kept inside; the outer one is for a host that hangs.
        let mut command = Command::new("timeout");
        command
            .arg((limit + Duration::from_secs(30)).as_secs().to_string())
            .arg(ssh.get_program())
            .args(ssh.get_args())
            .arg(with_limit(line, Some(limit)));
        exec::output(&mut command)
    }

    /// Waits for an ssh child while watching the host.
    pub(crate) fn supervise(&self, command: &mut Command, limit: Option<Duration>) -> Result<Ended> {
        let mut child = command.spawn().context("cannot run ssh")?;
        let watch = Watch::new(self);
        // The limit is kept inside; this one is for an inside that can't.
        let deadline = limit.map(|limit| Instant::now() + limit + Duration::from_mins(1));
        loop {
            if let Some(status) = exec::wait_for(&mut child, LOOK)? {
                return Ok(match (status.code(), watch.look()) {
                    (Some(255) | None, Health::Lost(reason)) => Ended::HostLost(reason),
                    (Some(TIMEOUT_CODE), _) if limit.is_some() => Ended::TimedOut,
                    (code, _) => Ended::Code(code.unwrap_or(255)),
                });
            }
            let lost = match watch.look() {
                Health::Lost(reason) => Some(Ended::HostLost(reason)),
                Health::Alive if deadline.is_some_and(|at| Instant::now() > at) => Some(Ended::TimedOut),
                Health::Alive => None,
            };
            if let Some(ended) = lost {
                child.kill().context("cannot end ssh")?;
                child.wait()?;
                return Ok(ended);
            }
        }
    }

    /// Powers the host off in order; pulls the plug when that takes too long.
    pub(crate) fn stop(&self) -> Result<()> {
        let asked = self.output_within("space-host-poweroff", Duration::from_secs(30));
        let clean = asked.is_ok() && self.wait_for_end(Duration::from_mins(1))?;
        if !clean {
            eprintln!("host {}: did not power off, killed", self.name);
            self.kill()?;
        }
        let mut exit = self.ssh()?;
        exit.args(["-O", "exit"]).stdout(Stdio::null()).stderr(Stdio::null());
        // The master connection usually died with the host.
        exit.status().context("cannot run ssh")?;
        fs::remove_file(self.dir().join("host.json")).context("cannot forget the host")?;
        Ok(())
    }

    /// Unix socket names are short, so the socket isn't in the host's own directory.
    fn control_path(&self) -> Result<Utf8PathBuf> {
        let uid = rustix::process::getuid().as_raw();
        let temp = std::env::temp_dir();
        let temp = Utf8PathBuf::from_path_buf(temp).ok().context("TMPDIR isn't UTF-8")?;
        let dir = temp.join(format!("space-hosts-{uid}"));
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .with_context(|| format!("cannot make {dir}"))?;
        let path = dir.join(format!("{}-{}", self.name, self.process.pid));
        if path.as_str().len() > 80 {
            bail!("{path} is too long for a socket; set TMPDIR to something shorter");
        }
        Ok(path)
    }
}

/// The limit is enforced inside, so that nothing goes on running there.
fn with_limit(line: &str, limit: Option<Duration>) -> String {
    match limit {
        Some(limit) => {
            format!("exec timeout --kill-after=10 {} sh -c {}", limit.as_secs().max(1), quoted(line))
        }
        None => line.to_owned(),
    }
}

/// One word for a POSIX shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        assert_eq!(quoted("a-b/c"), "a-b/c");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
