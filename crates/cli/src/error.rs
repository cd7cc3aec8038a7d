//! What is said when something fails: one clear line, and a hint where there is something to do.

mod edge;

use std::{error::Error, ffi::OsString, fmt};

use serde_json::json;
use space_api::{
    Problem, ProblemCode,
    client::{ClientError, EdgeError},
};

/// Exit code of a failure of SPACE itself.
pub(crate) const FAILURE: u8 = 1;
/// The same for `run`, `exec`, `shell` and `logs`, whose other codes are the command's own.
pub(crate) const RUN_FAILURE: u8 = 125;

/// Which code a failure of SPACE itself has, by the command that was asked for. Known before the arguments
/// are parsed, since they may be what is wrong.
pub(crate) fn own_failure_code(arguments: &[OsString]) -> u8 {
    // The only flags with a value that can come before the command.
    let mut words = arguments.iter().skip(1).map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        match word.as_ref() {
            "--url" | "--key" => drop(words.next()),
            flag if flag.starts_with('-') => {}
            command => {
                return if ["run", "exec", "shell", "logs"].contains(&command) {
                    RUN_FAILURE
                } else {
                    FAILURE
                };
            }
        }
    }
    FAILURE
}

/// Why a command of ours failed.
#[derive(Debug)]
pub(crate) enum CliError {
    Client(ClientError),
    /// An operation failed, or the request was seen to be wrong before it was sent.
    Problem(Box<Problem>),
    /// There is no way to a port.
    Edge(EdgeError),
    Other {
        error: anyhow::Error,
        hint: Option<String>,
    },
}

impl CliError {
    pub(crate) fn hinted(error: anyhow::Error, hint: impl Into<String>) -> Self {
        Self::Other { error, hint: Some(hint.into()) }
    }

    /// Whether the server refused with this code.
    pub(crate) fn is(&self, code: ProblemCode) -> bool {
        self.problem().is_some_and(|problem| problem.code == code)
    }

    fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Client(error) => error.problem(),
            Self::Problem(problem) => Some(problem),
            Self::Edge(_) | Self::Other { .. } => None,
        }
    }

    /// To standard error, for people or as JSON.
    pub(crate) fn report(&self, json: bool) {
        if json {
            eprintln!("{}", json!({ "error": self.to_json() }));
            return;
        }
        eprintln!("space: {self}");
        if let Some(hint) = self.hint() {
            eprintln!("  hint: {hint}");
        }
    }

    pub(crate) fn to_json(&self) -> serde_json::Value {
        if let Self::Edge(EdgeError::Refused { code, detail }) = self {
            return json!({ "code": code, "detail": detail });
        }
        self.problem().map_or_else(|| json!({ "detail": self.to_string() }), |problem| json!(problem))
    }

    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Other { hint, .. } => hint.clone(),
            Self::Edge(error) => edge::hint(error).map(str::to_owned),
            Self::Client(ClientError::Unreachable { .. } | ClientError::StreamLost { .. }) => Some(
                "is it running? `sudo space up` starts one here; --url or SPACE_URL name another".to_owned(),
            ),
            Self::Client(ClientError::Status { .. } | ClientError::Answer { .. }) => {
                Some("does this address belong to a SPACE server of this version?".to_owned())
            }
            Self::Client(ClientError::Deadline { .. }) => {
                Some("the server may still go on with it: look before you try again".to_owned())
            }
            Self::Client(_) | Self::Problem(_) => self.problem().and_then(problem_hint),
        }
    }
}

/// One line: what failed and all that caused it, then the code that pages and scripts know it by.
impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other { error, .. } => write!(f, "{error:#}"),
            Self::Client(ClientError::Problem(problem)) | Self::Problem(problem) => {
                write!(f, "{} ({})", problem.detail, problem.code)
            }
            Self::Edge(EdgeError::Refused { code, detail }) => write!(f, "{detail} ({code})"),
            Self::Client(error) => caused(f, error),
            Self::Edge(error) => caused(f, error),
        }
    }
}

/// Libraries repeat each other's text on the way up; the innermost cause says it best.
fn caused(f: &mut fmt::Formatter<'_>, error: &(dyn Error + 'static)) -> fmt::Result {
    write!(f, "{error}")?;
    let innermost =
        std::iter::successors(error.source(), |cause: &&(dyn Error + 'static)| (*cause).source()).last();
    innermost.map_or(Ok(()), |cause| write!(f, ": {cause}"))
}

fn problem_hint(problem: &Problem) -> Option<String> {
    let fixed = match problem.code {
        ProblemCode::Unauthorized => {
            "give a key with --key or SPACE_API_KEY, or run as the user who started `space up`"
        }
        ProblemCode::Forbidden => "`space key ls` tells what each key may do",
        ProblemCode::NotFound => "`space ls` lists the sandboxes that your key can see",
        ProblemCode::SandboxNotRunning => "`space get` tells its state, and why it ended if it did",
        ProblemCode::TemplateNotFound => "`space template ls` lists what there is",
        ProblemCode::NoCapacity => {
            "delete sandboxes that are not needed (`space rm`), or ask for a smaller one"
        }
        ProblemCode::QuotaExceeded => {
            "`space quota` shows all limits; delete sandboxes that are not needed (`space rm`)"
        }
        ProblemCode::FileNotFound => {
            "`space files ls` shows what there is; relative paths begin at the user's home"
        }
        ProblemCode::FilePermission => "name another user with --user, as root",
        ProblemCode::FileNoSpace => "remove files, or create the sandbox with a larger --disk",
        ProblemCode::DirectoryNotEmpty => "--recursive removes all that it holds",
        ProblemCode::FileUnsupported => "create the sandbox anew: its agent is from before there were files",
        ProblemCode::PortsNotConfigured => {
            "an edge has to be set up, and `ports.base_url` to name its domain"
        }
        ProblemCode::FileExhausted => "try again when other transfers and watches have ended",
        ProblemCode::NodeUnavailable => "the node may be restarting: try again, or see `space node ls`",
        ProblemCode::AgentTooOld => "make a new sandbox: its agent will know this",
        ProblemCode::GuestUnavailable => "the sandbox may be overloaded: try again, or delete it",
        ProblemCode::RateLimited
        | ProblemCode::Unavailable
        | ProblemCode::ShuttingDown
        | ProblemCode::IdempotencyKeyInUse
        | ProblemCode::FileBusy => return Some(later(problem)),
        ProblemCode::Timeout => "it may still happen: look before you try again",
        ProblemCode::CommandNotRunning | ProblemCode::StdinClosed => {
            "`space ps` tells which commands run, and how others ended"
        }
        ProblemCode::TooManyCommands => "`space ps` lists those that run: let some end, or end some",
        ProblemCode::NoTerminal => "`space exec -t` and `space shell` run a command on one",
        ProblemCode::BodyTooLarge => "`space cp` takes files of any size",
        ProblemCode::FileExists => "name another path, or remove it first (`space files rm`)",
        ProblemCode::FileNotADirectory | ProblemCode::FileIsADirectory | ProblemCode::FileType => {
            "`space files ls` shows what is there"
        }
        ProblemCode::FileReadOnly => "name a path on another filesystem, as below /tmp",
        ProblemCode::FileCrossDevice => "copy and remove instead: `space exec SANDBOX -- mv …` does both",
        ProblemCode::UploadOffset => "call it again: the upload goes on where it stands",
        ProblemCode::UserNotFound => "`space exec SANDBOX -- cat /etc/passwd` lists its users",
        ProblemCode::InvalidRequest
        | ProblemCode::UnknownField
        | ProblemCode::UnsupportedMediaType
        | ProblemCode::NotAcceptable
        | ProblemCode::MethodNotAllowed => {
            "this client and the server may be of different versions: compare `space --version`"
        }
        ProblemCode::Internal | ProblemCode::CreateFailed => {
            return problem
                .request_id
                .as_ref()
                .map(|id| format!("the server's log has the cause under {id}"));
        }
        // What `detail` says is what there is to do.
        ProblemCode::InvalidField
        | ProblemCode::Conflict
        | ProblemCode::IdempotencyKeyReused
        | ProblemCode::CommandExists
        | ProblemCode::StdinOffset
        | ProblemCode::FilePath
        | ProblemCode::FileRange
        | ProblemCode::FileFailed
        | ProblemCode::ArchiveMalformed => return None,
    };
    Some(fixed.to_owned())
}

/// When the server will have it again, if it said so.
fn later(problem: &Problem) -> String {
    problem.retry_after.map_or_else(
        || "try again in a moment".to_owned(),
        |seconds| format!("try again in {seconds} s; the server takes no more before"),
    )
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<EdgeError> for CliError {
    fn from(error: EdgeError) -> Self {
        Self::Edge(error)
    }
}

impl From<Problem> for CliError {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

impl From<space_api::FieldErrors> for CliError {
    fn from(errors: space_api::FieldErrors) -> Self {
        Problem::from(errors).into()
    }
}

impl From<anyhow::Error> for CliError {
    fn from(error: anyhow::Error) -> Self {
        Self::Other { error, hint: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(line: &str) -> u8 {
        own_failure_code(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn who_is_too_fast_is_told_when_to_come_again() {
        let hint = |problem: Problem| CliError::from(problem).hint().unwrap();
        let fast = || Problem::new(ProblemCode::RateLimited, "too many requests of this key");
        assert!(hint(fast().with_retry_after(7)).starts_with("try again in 7 s"));
        assert_eq!(hint(fast()), "try again in a moment");
    }

    #[test]
    fn failures_of_run_and_exec_are_told_apart_from_the_commands() {
        assert_eq!((code("space run x"), code("space --json exec x")), (125, 125));
        assert_eq!((code("space --url run ls"), code("space get run"), code("space")), (1, 1, 1));
    }
}
