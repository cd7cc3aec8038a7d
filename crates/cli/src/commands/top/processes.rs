//! The processes of one sandbox, by a small command inside it. Its answer is the guest's: every field is parsed, and
//! texts are made printable, before anything is shown or counted.

use std::time::Duration;

use serde::Serialize;
use space_api::{
    client::{Client, ClientError},
    commands::{CreateCommand, ExecResult},
};
use space_types::SandboxId;

use crate::{args::GlobalArgs, error::CliError, output};

/// POSIX shell, for templates without procps.
const SCRIPT: &str = include_str!("processes.sh");
/// For all of it, inside the sandbox and on the way.
const DEADLINE: Duration = Duration::from_secs(10);
/// Processes that people are shown; programs get all.
const SHOWN: usize = 25;
/// Characters of a command line that people are shown.
const WIDTH: usize = 80;
/// Characters of what the command says about its failure.
const COMPLAINT: usize = 200;

#[derive(Debug, Serialize)]
struct Listing {
    sandbox_id: SandboxId,
    /// Busiest first.
    processes: Vec<Process>,
    /// There were more than one answer holds.
    truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Process {
    pid: u32,
    user: String,
    /// Of one processor, since the process started.
    cpu_percent: f64,
    memory_kib: u64,
    command: String,
}

pub(super) async fn run(client: &Client, global: &GlobalArgs, sandbox: SandboxId) -> Result<u8, CliError> {
    let body = CreateCommand {
        argv: ["/bin/sh", "-c", SCRIPT].map(str::to_owned).to_vec(),
        timeout_seconds: Some(DEADLINE.as_secs()),
        ..CreateCommand::default()
    };
    let answer = tokio::time::timeout(DEADLINE, client.command_run(sandbox, &body)).await;
    let result = answer.map_err(|_elapsed| ClientError::Deadline { after: DEADLINE })??;
    let seen =
        Listing { sandbox_id: sandbox, processes: parse(&result)?, truncated: result.stdout_truncated };
    if global.json {
        output::json(&seen)?;
    } else {
        output::line(&render(&seen));
    }
    Ok(0)
}

fn parse(result: &ExecResult) -> Result<Vec<Process>, CliError> {
    let text = String::from_utf8_lossy(result.stdout.as_ref());
    let mut lines = text.lines();
    let own = lines.next().and_then(|line| line.trim().parse::<u32>().ok());
    let mut processes: Vec<_> = lines.filter_map(|line| process(line, own)).collect();
    if processes.is_empty() {
        let said = String::from_utf8_lossy(result.stderr.as_ref());
        let said = output::cut(&output::plain(said.trim()), COMPLAINT);
        return Err(CliError::hinted(
            anyhow::anyhow!("the sandbox does not list its processes: {said}"),
            "it takes /bin/sh and /proc, and procps for more than names",
        ));
    }
    processes.sort_by(|a, b| b.cpu_percent.total_cmp(&a.cpu_percent).then_with(|| a.pid.cmp(&b.pid)));
    Ok(processes)
}

/// `None`: no line of the script's, or about the script itself.
fn process(line: &str, own: Option<u32>) -> Option<Process> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.trim_start().split_once(' ')?;
        rest = after;
        Some(word)
    };
    let (pid, parent): (u32, u32) = (word()?.parse().ok()?, word()?.parse().ok()?);
    let user = output::plain(word()?);
    let cpu_percent = word()?.parse().ok().filter(|percent: &f64| percent.is_finite() && *percent >= 0.0)?;
    let memory_kib = word()?.parse().ok()?;
    let ours = own.is_some_and(|own| own == pid || own == parent);
    let command = output::plain(rest.trim());
    (!ours).then_some(Process { pid, user, cpu_percent, memory_kib, command })
}

fn render(seen: &Listing) -> String {
    let rows: Vec<_> = seen.processes.iter().take(SHOWN).map(row).collect();
    let rest = match (seen.processes.len().saturating_sub(SHOWN), seen.truncated) {
        (0, false) => String::new(),
        (more, false) => format!("\n… and {more} more: --json lists them"),
        (_, true) => "\n… and more than one answer holds".to_owned(),
    };
    output::table(["PID", "USER", "%CPU", "MEMORY", "COMMAND"], &rows) + &rest
}

fn row(process: &Process) -> [String; 5] {
    [
        process.pid.to_string(),
        process.user.clone(),
        format!("{:.1}", process.cpu_percent),
        format!("{} MiB", process.memory_kib / 1024),
        output::cut(&process.command, WIDTH),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn answer(stdout: &str) -> ExecResult {
        ExecResult {
            command_id: space_types::CommandId::new(),
            exit: space_api::commands::Exit { code: Some(0), ..Default::default() },
            stdout: stdout.as_bytes().to_vec().into(),
            stderr: b"sh: \x1b[2Jno".to_vec().into(),
            stdout_truncated: false,
            stderr_truncated: false,
        }
    }

    #[test]
    fn the_busiest_come_first_and_the_look_itself_is_left_out() {
        let text = "9\n 1 0 root 0.5 2048 init\n 9 1 root 99.0 1 sh\n10 9 root 50 1 ps\n7 1 a 12.3 99 x  y\n";
        let shown: Vec<_> = parse(&answer(text)).unwrap().into_iter().map(|p| (p.pid, p.command)).collect();
        assert_eq!(shown, [(7, "x  y".to_owned()), (1, "init".to_owned())]);
    }

    #[test]
    fn a_guest_cannot_drive_the_terminal_or_break_the_table() {
        let hostile = "1\nx\n2 1 r NaN 1 a\n3 1 r 1e999 1 a\n4 1 r -1 1 a\n4294967296 1 r 1 1 a\n\
                       5 0 a\u{1b}b 1 1 c\u{1b}[2J\u{202e}d\n6 0\n";
        let shown = parse(&answer(hostile)).unwrap();
        let shown: Vec<_> = shown.into_iter().map(|p| (p.pid, p.user, p.command)).collect();
        assert_eq!(shown, [(5, "a\u{fffd}b".to_owned(), "c\u{fffd}[2J\u{fffd}d".to_owned())]);
        let error = parse(&answer("nothing\n")).unwrap_err().to_string();
        assert!(error.ends_with("sh: \u{fffd}[2Jno"), "{error}");
    }

    /// The script itself, here: with what this machine has, and with nothing but the shell's own.
    #[test]
    fn both_ways_find_this_process() {
        for path in ["/usr/bin:/bin", "/nonexistent"] {
            let mut child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
            let output = Command::new("/bin/sh").args(["-c", SCRIPT]).env("PATH", path).output().unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let found = parse(&answer(&text)).unwrap();
            let sleep = found.iter().find(|process| process.pid == child.id());
            assert!(sleep.is_some_and(|sleep| sleep.command.contains("sleep")), "{path}: {text}");
        }
    }
}
