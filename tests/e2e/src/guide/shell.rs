//! One bash for a whole guide, in a directory of its own, which is its home as well.
//!
//! A command is given to `eval`, so that what it sets stays set, with nothing to read: the shell's own input is the
//! commands to come. Behind it the shell prints a mark and the exit status. Both outputs are one, as on a terminal.

use std::{
    process::{Command as Plain, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

/// Begins the line behind a command's output: a character that no program of ours prints.
const MARK: u8 = 0x1e;

/// What a command came to.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) output: String,
    pub(super) status: i32,
}

#[derive(Debug)]
pub(super) struct Shell {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _home: TempDir,
}

impl Shell {
    /// With `variables`, and of this process's own `PATH` alone.
    pub(super) fn start(variables: &[(&str, &str)]) -> Result<Self> {
        let home = tempfile::tempdir().context("cannot make a directory")?;
        let mut process = Command::new("bash")
            .args([
                "--noprofile",
                "--norc",
                "-c",
                "exec 2>&1; while IFS= read -rd '' line; do eval \"$line\"; done",
            ])
            .current_dir(home.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home.path())
            .env("LANG", "C.UTF-8")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("cannot start bash")?;
        let input = process.stdin.take().context("bash has an input")?;
        let output = process.stdout.take().context("bash has an output")?;
        Ok(Self { process, input, output: BufReader::new(output), _home: home })
    }

    /// Runs one command to its end. After a failure the shell is of no more use.
    pub(super) async fn run(&mut self, command: &str, deadline: Duration) -> Result<Ran> {
        ensure!(!command.contains('\0'), "a command with a NUL");
        let line = format!("eval {} </dev/null; printf '\\n\\036%d\\n' $?\0", quoted(command));
        self.input.write_all(line.as_bytes()).await.context("the shell has ended")?;
        let mut seen = Vec::new();
        let ended = timeout(deadline, read(&mut self.output, &mut seen)).await;
        let output = String::from_utf8_lossy(&seen).into_owned();
        match ended {
            Ok(Ok(status)) => Ok(Ran { output, status }),
            Ok(Err(error)) => Err(error.context(output)),
            Err(_) => bail!("not done after {deadline:?}; so far it said:\n{output}"),
        }
    }
}

impl Drop for Shell {
    /// With all that it started.
    fn drop(&mut self) {
        let Some(pid) = self.process.id() else { return };
        let killed = Plain::new("kill").args(["-KILL", "--", &format!("-{pid}")]).status();
        if !killed.is_ok_and(|status| status.success()) {
            eprintln!("the shell {pid} was not ended");
        }
    }
}

/// Up to the mark, which is not part of what was `seen`; answers the exit status behind it.
async fn read(output: &mut BufReader<ChildStdout>, seen: &mut Vec<u8>) -> Result<i32> {
    loop {
        let begin = seen.len();
        let length = output.read_until(b'\n', seen).await?;
        ensure!(length > 0, "the shell ended");
        if seen[begin] == MARK {
            let line = seen.split_off(begin);
            let status = str::from_utf8(&line[1..])?.trim().parse()?;
            // The one before the mark is ours.
            seen.pop();
            return Ok(status);
        }
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    async fn ran(command: &str) -> (String, i32) {
        let mut shell = Shell::start(&[]).unwrap();
        let ran = shell.run(command, PATIENCE).await.unwrap();
        (ran.output, ran.status)
    }

    #[tokio::test]
    async fn both_outputs_come_as_they_were_written() {
        assert_eq!(ran("echo a; echo b >&2; printf c").await, ("a\nb\nc".to_owned(), 0));
        assert_eq!(ran("true").await, (String::new(), 0));
        assert_eq!(ran("(exit 3)").await, (String::new(), 3));
    }

    #[tokio::test]
    async fn a_command_that_reads_gets_nothing_and_leaves_the_next_one_alone() {
        let mut shell = Shell::start(&[]).unwrap();
        assert_eq!(shell.run("cat; read x", PATIENCE).await.unwrap().status, 1);
        assert_eq!(shell.run("echo on", PATIENCE).await.unwrap().output, "on\n");
    }

    #[tokio::test]
    async fn quotes_and_lines_reach_the_shell_as_they_are() {
        assert_eq!(ran("cat <<'END'\nit's $HOME\nEND").await.0, "it's $HOME\n");
        let (output, status) = ran("echo 'a").await;
        assert!(status != 0 && output.contains("unexpected EOF"), "{output}");
    }

    #[tokio::test]
    async fn only_what_was_given_is_in_its_environment() {
        assert_eq!(
            ran("echo \"${CARGO_MANIFEST_DIR-none}\"; [ \"$PWD\" = \"$HOME\" ]").await,
            ("none\n".to_owned(), 0)
        );
    }

    #[tokio::test]
    async fn a_shell_that_ends_itself_is_told() {
        let mut shell = Shell::start(&[]).unwrap();
        let error = shell.run("echo bye; exit 0", PATIENCE).await.unwrap_err();
        assert!(format!("{error:#}").contains("bye"), "{error:#}");
    }
}
