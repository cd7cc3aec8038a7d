//! Limits on what requests hold. The guest refuses a request that breaks one with `Invalid`; hosts check
//! first, so that the error names the field. That the refusal is needed at all is because an agent believes
//! no more than it must, not because hosts lie.

use prost::Message;

use crate::{
    job::{Job, OpenJob, Upload, WriteFile},
    limits,
    message::{CommandSpec, PersonaliseRequest, ResizeTerminalRequest, TerminalSize, WriteStdinRequest},
};

/// What is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    #[error("{field} is missing")]
    Missing { field: &'static str },
    #[error("{field} is longer than {limit}")]
    TooLong { field: &'static str, limit: usize },
    #[error("{field} has more than {limit} entries")]
    TooMany { field: &'static str, limit: usize },
    #[error("{field} is above {limit}")]
    TooLarge { field: &'static str, limit: u64 },
    #[error("{field} holds a character that is not allowed")]
    Character { field: &'static str },
    #[error("the specification takes more than {limit} bytes", limit = limits::SPEC_BYTES)]
    SpecTooLong,
}

pub fn command_id(id: &str) -> Result<(), InvalidRequest> {
    identifier("command_id", id, limits::COMMAND_ID_BYTES)
}

/// Something that can also be a file's name.
fn identifier(field: &'static str, id: &str, limit: usize) -> Result<(), InvalidRequest> {
    text(field, id, limit)?;
    if id.is_empty() {
        return Err(InvalidRequest::Missing { field });
    }
    let allowed = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if allowed { Ok(()) } else { Err(InvalidRequest::Character { field }) }
}

pub fn spec(spec: &CommandSpec) -> Result<(), InvalidRequest> {
    if spec.argv.first().is_none_or(String::is_empty) {
        return Err(InvalidRequest::Missing { field: "argv" });
    }
    if spec.argv.len() > limits::ARGUMENTS {
        return Err(InvalidRequest::TooMany { field: "argv", limit: limits::ARGUMENTS });
    }
    for argument in &spec.argv {
        text("argv", argument, limits::SPEC_BYTES)?;
    }
    variables(&spec.env)?;
    text("cwd", &spec.cwd, limits::PATH_BYTES - 1)?;
    text("user", &spec.user, limits::USER_BYTES)?;
    if spec.timeout_ms > limits::TIMEOUT_MS {
        return Err(InvalidRequest::TooLarge { field: "timeout_ms", limit: limits::TIMEOUT_MS });
    }
    if let Some(size) = spec.terminal {
        terminal(size)?;
    }
    if spec.encoded_len() > limits::SPEC_BYTES { Err(InvalidRequest::SpecTooLong) } else { Ok(()) }
}

fn terminal(size: TerminalSize) -> Result<(), InvalidRequest> {
    at_most("terminal.rows", size.rows, limits::TERMINAL_CELLS)?;
    at_most("terminal.columns", size.columns, limits::TERMINAL_CELLS)
}

/// The size that is asked for.
pub fn resize_terminal(request: &ResizeTerminalRequest) -> Result<TerminalSize, InvalidRequest> {
    command_id(&request.command_id)?;
    let size = request.size.ok_or(InvalidRequest::Missing { field: "size" })?;
    terminal(size)?;
    Ok(size)
}

pub fn personalise(request: &PersonaliseRequest) -> Result<(), InvalidRequest> {
    if request.generation == 0 {
        return Err(InvalidRequest::Missing { field: "generation" });
    }
    entropy(&request.entropy, false)?;
    text("hostname", &request.hostname, limits::HOSTNAME_BYTES)?;
    variables(&request.env)?;
    let env_bytes: usize = request.env.iter().map(|(name, value)| name.len() + value.len()).sum();
    if env_bytes > limits::SANDBOX_ENV_BYTES {
        return Err(InvalidRequest::TooLong { field: "env", limit: limits::SANDBOX_ENV_BYTES });
    }
    Ok(())
}

pub fn entropy(bytes: &[u8], needed: bool) -> Result<(), InvalidRequest> {
    if needed && bytes.is_empty() {
        return Err(InvalidRequest::Missing { field: "entropy" });
    }
    if bytes.len() > limits::ENTROPY_BYTES {
        return Err(InvalidRequest::TooLong { field: "entropy", limit: limits::ENTROPY_BYTES });
    }
    Ok(())
}

pub fn write_stdin(request: &WriteStdinRequest) -> Result<(), InvalidRequest> {
    command_id(&request.command_id)?;
    if request.data.len() > limits::DATA_BYTES {
        return Err(InvalidRequest::TooLong { field: "data", limit: limits::DATA_BYTES });
    }
    if request.offset > u64::MAX / 2 {
        return Err(InvalidRequest::TooLarge { field: "offset", limit: u64::MAX / 2 });
    }
    Ok(())
}

/// 1 to 31: the signals every program knows. Real-time signals are libraries' own business.
pub fn signal(signal: i32) -> Result<(), InvalidRequest> {
    match signal {
        1..=31 => Ok(()),
        32.. => Err(InvalidRequest::TooLarge { field: "signal", limit: 31 }),
        _ => Err(InvalidRequest::Missing { field: "signal" }),
    }
}

/// A job, whatever it is.
pub fn job(open: &OpenJob) -> Result<(), InvalidRequest> {
    text("user", &open.user, limits::USER_BYTES)?;
    match open.job.as_ref().ok_or(InvalidRequest::Missing { field: "job" })? {
        Job::Stat(job) => path("path", &job.path),
        Job::List(job) => {
            path("path", &job.path)?;
            at_most("depth", job.depth, limits::LIST_DEPTH)?;
            at_most("limit", job.limit, limits::LIST_ENTRIES)?;
            if job.after.is_empty() { Ok(()) } else { path("after", &job.after) }
        }
        Job::Read(job) => path("path", &job.path),
        Job::Write(job) => write(job),
        Job::MakeDirectory(job) => path("path", &job.path).and_then(|()| mode(job.mode)),
        Job::Move(job) => path("path", &job.from).and_then(|()| path("to", &job.to)),
        Job::Remove(job) => path("path", &job.path),
        Job::Watch(job) => path("path", &job.path),
        Job::ReadArchive(job) => path("path", &job.path),
        Job::WriteArchive(job) => path("path", &job.path),
        Job::Tunnel(job) => at_most("port", job.port, u32::from(u16::MAX)),
    }
}

fn write(job: &WriteFile) -> Result<(), InvalidRequest> {
    path("path", &job.path)?;
    mode(job.mode)?;
    text("owner", &job.owner, 2 * limits::USER_BYTES)?;
    let Some(Upload { id, offset, .. }) = &job.upload else { return Ok(()) };
    identifier("upload", id, limits::UPLOAD_ID_BYTES)?;
    if *offset > u64::MAX / 2 {
        return Err(InvalidRequest::TooLarge { field: "offset", limit: u64::MAX / 2 });
    }
    Ok(())
}

fn path(field: &'static str, path: &[u8]) -> Result<(), InvalidRequest> {
    if path.is_empty() {
        return Err(InvalidRequest::Missing { field });
    }
    if path.len() >= limits::PATH_BYTES {
        return Err(InvalidRequest::TooLong { field, limit: limits::PATH_BYTES - 1 });
    }
    if path.contains(&0) { Err(InvalidRequest::Character { field }) } else { Ok(()) }
}

fn mode(mode: Option<u32>) -> Result<(), InvalidRequest> {
    match mode {
        Some(0o10000..) => Err(InvalidRequest::TooLarge { field: "mode", limit: 0o7777 }),
        Some(_) | None => Ok(()),
    }
}

/// 1 to `limit`.
fn at_most(field: &'static str, number: u32, limit: u32) -> Result<(), InvalidRequest> {
    match number {
        0 => Err(InvalidRequest::Missing { field }),
        number if number > limit => Err(InvalidRequest::TooLarge { field, limit: limit.into() }),
        _ => Ok(()),
    }
}

fn variables(env: &std::collections::BTreeMap<String, String>) -> Result<(), InvalidRequest> {
    const FIELD: &str = "env";
    if env.len() > limits::VARIABLES {
        return Err(InvalidRequest::TooMany { field: FIELD, limit: limits::VARIABLES });
    }
    for (name, value) in env {
        text(FIELD, value, limits::SPEC_BYTES)?;
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(InvalidRequest::Character { field: FIELD });
        }
    }
    Ok(())
}

/// Strings go to the kernel with a NUL at their end, so none may hold one.
fn text(field: &'static str, text: &str, limit: usize) -> Result<(), InvalidRequest> {
    if text.len() > limit {
        return Err(InvalidRequest::TooLong { field, limit });
    }
    if text.contains('\0') { Err(InvalidRequest::Character { field }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec_of(argv: &[&str]) -> CommandSpec {
        CommandSpec { argv: argv.iter().map(|text| (*text).to_owned()).collect(), ..CommandSpec::default() }
    }

    #[test]
    fn a_plain_command_is_valid() {
        assert_eq!(spec(&spec_of(&["/bin/sh", "-c", "exit 3"])), Ok(()));
    }

    #[test]
    fn what_the_kernel_could_not_take_is_refused_with_the_field() {
        assert_eq!(spec(&spec_of(&[])), Err(InvalidRequest::Missing { field: "argv" }));
        assert_eq!(spec(&spec_of(&["a\0b"])), Err(InvalidRequest::Character { field: "argv" }));
        let mut named = spec_of(&["true"]);
        named.env.insert("A=B".to_owned(), String::new());
        assert_eq!(spec(&named), Err(InvalidRequest::Character { field: "env" }));
        assert_eq!(
            spec(&spec_of(&["x".repeat(limits::SPEC_BYTES).as_str()])),
            Err(InvalidRequest::SpecTooLong)
        );
    }

    #[test]
    fn command_ids_can_be_file_names() {
        assert_eq!(command_id("cmd_0192ab-X"), Ok(()));
        for id in ["", ".", "a/b", "ä", &"x".repeat(65)] {
            assert!(command_id(id).is_err(), "{id}");
        }
    }

    #[test]
    fn jobs_name_the_field_that_is_out_of_range() {
        use bytes::Bytes;

        use crate::job::{ListDirectory, StatFile};

        let check = |of| job(&OpenJob { job: Some(of), ..OpenJob::default() });
        let stat =
            |path: &[u8]| check(Job::Stat(StatFile { path: Bytes::copy_from_slice(path), follow: false }));
        assert_eq!(stat(b"caf\xe9"), Ok(()), "names need not be UTF-8");
        assert_eq!(stat(b""), Err(InvalidRequest::Missing { field: "path" }));
        assert_eq!(stat(b"a\0"), Err(InvalidRequest::Character { field: "path" }));
        assert!(stat(&[b'x'; limits::PATH_BYTES - 1]).is_ok() && stat(&[b'x'; limits::PATH_BYTES]).is_err());
        let list = |depth, limit| {
            let path = Bytes::from_static(b"/");
            check(Job::List(ListDirectory { path, depth, limit, after: Bytes::new() }))
        };
        assert_eq!(list(1, 1), Ok(()));
        assert_eq!(list(0, 1), Err(InvalidRequest::Missing { field: "depth" }));
        assert_eq!(list(1, 1001), Err(InvalidRequest::TooLarge { field: "limit", limit: 1000 }));
        assert_eq!(job(&OpenJob::default()), Err(InvalidRequest::Missing { field: "job" }));
    }

    #[test]
    fn a_terminal_has_a_size_within_the_limits() {
        let sized = |rows, columns| {
            let terminal = Some(TerminalSize { rows, columns });
            spec(&CommandSpec { terminal, ..spec_of(&["sh"]) })
        };
        assert_eq!((sized(1, 1), sized(4096, 4096)), (Ok(()), Ok(())));
        assert_eq!(sized(0, 80), Err(InvalidRequest::Missing { field: "terminal.rows" }));
        assert_eq!(sized(24, 4097), Err(InvalidRequest::TooLarge { field: "terminal.columns", limit: 4096 }));
        let resize = |size| resize_terminal(&ResizeTerminalRequest { command_id: "c".into(), size });
        let size = TerminalSize { rows: 24, columns: 80 };
        assert_eq!(resize(Some(size)), Ok(size));
        assert_eq!(resize(None), Err(InvalidRequest::Missing { field: "size" }));
        assert!(resize(Some(TerminalSize::default())).is_err());
    }

    #[test]
    fn only_the_classic_signals_pass() {
        assert!([1, 9, 31].into_iter().all(|number| signal(number).is_ok()));
        assert!([-1, 0, 32].into_iter().all(|number| signal(number).is_err()));
    }
}
