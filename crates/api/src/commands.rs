//! Command sessions: made, then attached to. `exec` does both in one call.
//!
//! Attaching starts the command and streams its events (see [`crate::sse`]). Detaching neither stops nor
//! blocks it; any number of readers may attach, now and later, until the sandbox is gone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use space_types::{CommandId, SandboxId};
use utoipa::{IntoParams, ToSchema};

use crate::{Base64Bytes, FieldErrors, Signal, Timestamp, limits, terminal::TerminalSize, validate};

/// Body of `POST /v1/sandboxes/{id}/commands` and `POST /v1/sandboxes/{id}/exec`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateCommand {
    /// Program and arguments; no shell is involved. The program is looked up in `PATH` unless it holds a slash.
    /// At most 40 KiB with `env`; larger input goes to standard input.
    #[schema(min_items = 1, max_items = 256, example = json!(["python3", "-c", "print(6*7)"]))]
    pub argv: Vec<String>,
    /// Variables over those of the sandbox. At most 32 KiB.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Absolute working directory. The user's home when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Name or uid. The template's default user when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// After that many seconds the command's process group gets TERM, and KILL 5 s later. At most 7 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 604_800)]
    pub timeout_seconds: Option<u64>,
    /// Whether standard input can be written to. Otherwise it is empty. A terminal can be in any case.
    #[serde(default)]
    pub stdin: bool,
    /// Runs the command on a terminal of this size in place of pipes. Its output is all on stdout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
}

impl CreateCommand {
    pub fn validate(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::default();
        self.check_argv(&mut errors);
        validate::check_env(&mut errors, &self.env);
        if let Some(cwd) = &self.cwd {
            errors.require(
                cwd.starts_with('/') && cwd.len() <= limits::CWD_BYTES && !cwd.contains('\0'),
                "cwd",
                format!("must be an absolute path of at most {} bytes", limits::CWD_BYTES),
            );
        }
        if let Some(user) = &self.user {
            let valid = (1..=limits::USER_CHARS).contains(&user.len())
                && user.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
            errors.require(valid, "user", "must be a user's name or uid");
        }
        let seconds = 1..=limits::TIMEOUT_SECONDS;
        errors.require(
            self.timeout_seconds.is_none_or(|timeout| seconds.contains(&timeout)),
            "timeout_seconds",
            format!("must be 1 to {}", limits::TIMEOUT_SECONDS),
        );
        if let Some(size) = self.terminal {
            size.check(&mut errors, "terminal.");
        }
        errors.finish()
    }

    fn check_argv(&self, errors: &mut FieldErrors) {
        errors.require(
            (1..=limits::ARGV_ITEMS).contains(&self.argv.len()),
            "argv",
            format!("must have 1 to {} items", limits::ARGV_ITEMS),
        );
        let argv: usize = self.argv.iter().map(|argument| argument.len() + 1).sum();
        errors.require(
            argv + validate::env_bytes(&self.env) <= limits::COMMAND_BYTES,
            "argv",
            format!("at most {} bytes with env; larger input goes to stdin", limits::COMMAND_BYTES),
        );
        if self.argv.first().is_some_and(String::is_empty) {
            errors.add("argv[0]", "must not be empty");
        }
        if let Some(index) = self.argv.iter().position(|argument| argument.contains('\0')) {
            errors.add(format!("argv[{index}]"), "must not hold a NUL");
        }
    }
}

/// A command session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Command {
    pub id: CommandId,
    pub sandbox_id: SandboxId,
    pub argv: Vec<String>,
    /// Names of the variables given with the command. Their values are not shown.
    pub env_names: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    pub stdin: bool,
    /// It runs on a terminal, which had this size at its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
    pub state: CommandState,
    /// Process id inside the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// Of the newest event; 0 before the first.
    pub last_sequence: u64,
    /// By the sandbox's own clock, as the two below.
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exited_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommandState {
    /// Made, and waiting for the first attach.
    Created,
    Running,
    Exited,
}

/// How a command ended: by `code` or by `signal`, never both.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Exit {
    /// Exit code. 126 or 127 with `error` when the program could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Number of the signal that killed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Its time was up.
    #[serde(default)]
    pub timed_out: bool,
    /// Why the program could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Exit {
    /// The exit status as a shell has it: the code, or 128 and the signal.
    pub fn shell_status(&self) -> i32 {
        match (self.code, self.signal) {
            (_, Some(signal)) => 128 + signal,
            (Some(code), None) => code,
            (None, None) => 255,
        }
    }
}

/// Where and with what to attach.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attach {
    /// Relative to the address that the API was reached at; absolute where edges serve streams. The token is not part
    /// of it.
    #[schema(example = "/v1/sandboxes/sbx_…/commands/cmd_…/attach")]
    pub url: String,
    /// Good for this one command: as `Authorization: Bearer` or `?token=`. Whoever has it can read the command's
    /// output and, over its WebSocket (`…/terminal`), write its input, resize and signal it.
    pub token: String,
    pub expires_at: Timestamp,
}

impl std::fmt::Debug for Attach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attach")
            .field("url", &self.url)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// Answer of `POST /v1/sandboxes/{id}/commands`, and the first event of a streaming `exec`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CommandCreated {
    pub command: Command,
    pub attach: Attach,
}

/// Query of `GET …/commands/{id}/attach`.
#[derive(Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AttachQuery {
    /// The attach token, for readers that can't set headers. It appears in no log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Body of `POST …/commands/{id}/stdin`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteStdin {
    /// Of the first byte. Bytes that were taken before are skipped, so a repeated write is harmless;
    /// a hole is refused.
    pub offset: u64,
    /// At most 32 KiB.
    #[serde(default)]
    pub data: Base64Bytes,
    /// Closes standard input after these bytes.
    #[serde(default)]
    pub eof: bool,
}

impl WriteStdin {
    pub fn validate(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::default();
        errors.require(
            self.data.len() <= limits::STDIN_WRITE_BYTES,
            "data",
            format!("at most {} bytes in one write", limits::STDIN_WRITE_BYTES),
        );
        errors.require(self.offset.checked_add(self.data.len() as u64).is_some(), "offset", "too large");
        errors.finish()
    }
}

/// Answer of `POST …/commands/{id}/stdin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StdinWritten {
    /// Where the next write begins. Less than was sent when the command reads slowly: send the rest again.
    pub next_offset: u64,
}

/// Body of `POST …/commands/{id}/signal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalCommand {
    pub signal: Signal,
}

/// Answer of `POST /v1/sandboxes/{id}/exec` with `Accept: application/json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecResult {
    pub command_id: CommandId,
    pub exit: Exit,
    /// The first 1 MiB.
    pub stdout: Base64Bytes,
    /// The first 1 MiB.
    pub stderr: Base64Bytes,
    /// There was more, or some was lost because the command wrote faster than it was read.
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(argv: &[&str]) -> CreateCommand {
        CreateCommand {
            argv: argv.iter().map(|argument| (*argument).to_owned()).collect(),
            ..Default::default()
        }
    }

    fn fields(result: Result<(), FieldErrors>) -> Vec<String> {
        result.err().unwrap_or_default().into_vec().into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn good_commands_pass() {
        let full = CreateCommand {
            env: [("A".into(), "b".into())].into(),
            cwd: Some("/tmp".into()),
            user: Some("1000".into()),
            timeout_seconds: Some(1),
            stdin: true,
            terminal: Some(TerminalSize { rows: 1, columns: 4096 }),
            ..command(&["sh", "-c", ""])
        };
        assert_eq!((full.validate(), command(&["x"]).validate()), (Ok(()), Ok(())));
    }

    #[test]
    fn a_bad_field_is_named() {
        let base = || command(&["x"]);
        let table = [
            (command(&[]), "argv"),
            (command(&[""]), "argv[0]"),
            (command(&["x", "a\0"]), "argv[1]"),
            (command(&vec!["x"; limits::ARGV_ITEMS + 1]), "argv"),
            (command(&[&"x".repeat(limits::COMMAND_BYTES)]), "argv"),
            (
                CreateCommand {
                    env: [("A".into(), "b".repeat(limits::ENV_BYTES / 2))].into(),
                    ..command(&[&"x".repeat(limits::COMMAND_BYTES - limits::ENV_BYTES / 2)])
                },
                "argv",
            ),
            (CreateCommand { env: [(String::new(), String::new())].into(), ..base() }, "env."),
            (CreateCommand { cwd: Some("tmp".into()), ..base() }, "cwd"),
            (CreateCommand { cwd: Some("/a\0".into()), ..base() }, "cwd"),
            (CreateCommand { user: Some(String::new()), ..base() }, "user"),
            (CreateCommand { user: Some("a:b".into()), ..base() }, "user"),
            (CreateCommand { timeout_seconds: Some(0), ..base() }, "timeout_seconds"),
            (CreateCommand { timeout_seconds: Some(u64::MAX), ..base() }, "timeout_seconds"),
            (
                CreateCommand { terminal: Some(TerminalSize { rows: 1, columns: 0 }), ..base() },
                "terminal.columns",
            ),
        ];
        for (request, field) in table {
            assert_eq!(fields(request.validate()), [field], "{request:?}");
        }
    }

    #[test]
    fn stdin_writes_are_bounded() {
        let write = |offset, length| WriteStdin { offset, data: vec![0; length].into(), eof: false };
        assert_eq!(fields(write(0, limits::STDIN_WRITE_BYTES).validate()), [""; 0]);
        assert_eq!(fields(write(0, limits::STDIN_WRITE_BYTES + 1).validate()), ["data"]);
        assert_eq!(fields(write(u64::MAX, 1).validate()), ["offset"]);
    }

    #[test]
    fn exit_statuses_are_those_of_a_shell() {
        let coded = Exit { code: Some(7), ..Exit::default() };
        let killed = Exit { signal: Some(9), ..Exit::default() };
        assert_eq!((coded.shell_status(), killed.shell_status()), (7, 137));
    }
}
