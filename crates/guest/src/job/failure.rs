//! Errors of jobs, and the one table from the kernel's to the protocol's.

use std::fmt::Display;

use rustix::io::Errno;
use space_guest_proto::{
    job::{Done, Failure, FailureKind},
    limits,
};

#[derive(Debug)]
pub(super) enum JobError {
    /// The host closed the connection: the job is cancelled, and nobody is there to be told.
    Gone,
    Failed {
        kind: FailureKind,
        text: String,
    },
    /// See `Upload.offset`.
    Offset {
        next: u64,
    },
}

impl JobError {
    pub(super) fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self::Failed { kind, text: text.into() }
    }

    /// `what` failed with `error`.
    pub(super) fn of(error: Errno, what: impl Display) -> Self {
        Self::new(kind(error), format!("{what}: {error}"))
    }

    /// For `map_err`: `path`, shown as well as it can be, failed.
    pub(super) fn at(path: &[u8]) -> impl Fn(Errno) -> Self + use<'_> {
        move |error| Self::of(error, String::from_utf8_lossy(path))
    }

    pub(super) fn into_done(self) -> Done {
        let (kind, text, next_offset) = match self {
            Self::Gone => (FailureKind::Unspecified, String::new(), 0),
            Self::Failed { kind, text } => (kind, text, 0),
            Self::Offset { next } => {
                (FailureKind::Offset, format!("the upload goes on at offset {next}"), next)
            }
        };
        let failure = Failure { kind: kind.into(), message: cut(&text) };
        Done { failure: Some(failure), next_offset, ..Done::default() }
    }
}

/// The end tells more than the beginning: what was wrong stands behind the path.
fn cut(text: &str) -> String {
    let excess = text.len().saturating_sub(limits::TEXT_BYTES);
    let start = (excess..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    text.get(start..).unwrap_or_default().to_owned()
}

pub(super) fn kind(error: Errno) -> FailureKind {
    match error {
        Errno::NOENT => FailureKind::NotFound,
        Errno::EXIST => FailureKind::AlreadyExists,
        Errno::ACCESS | Errno::PERM => FailureKind::Permission,
        Errno::NOTDIR => FailureKind::NotADirectory,
        Errno::ISDIR => FailureKind::IsADirectory,
        Errno::NOTEMPTY => FailureKind::NotEmpty,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => FailureKind::NoSpace,
        Errno::ROFS => FailureKind::ReadOnly,
        Errno::LOOP | Errno::NAMETOOLONG => FailureKind::Path,
        // Opening a socket, or a device without a driver.
        Errno::NXIO | Errno::NODEV | Errno::OPNOTSUPP => FailureKind::Type,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS => FailureKind::Exhausted,
        Errno::XDEV => FailureKind::CrossDevice,
        Errno::INVAL => FailureKind::Invalid,
        Errno::CONNREFUSED | Errno::TIMEDOUT => FailureKind::Refused,
        Errno::BUSY | Errno::TXTBSY | Errno::AGAIN => FailureKind::Busy,
        _ => FailureKind::Unspecified,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_kernel_have_the_protocols_kinds() {
        let table = [
            (Errno::NOENT, FailureKind::NotFound),
            (Errno::EXIST, FailureKind::AlreadyExists),
            (Errno::ACCESS, FailureKind::Permission),
            (Errno::PERM, FailureKind::Permission),
            (Errno::NOTDIR, FailureKind::NotADirectory),
            (Errno::ISDIR, FailureKind::IsADirectory),
            (Errno::NOTEMPTY, FailureKind::NotEmpty),
            (Errno::NOSPC, FailureKind::NoSpace),
            (Errno::DQUOT, FailureKind::NoSpace),
            (Errno::ROFS, FailureKind::ReadOnly),
            (Errno::LOOP, FailureKind::Path),
            (Errno::NAMETOOLONG, FailureKind::Path),
            (Errno::NXIO, FailureKind::Type),
            (Errno::MFILE, FailureKind::Exhausted),
            (Errno::XDEV, FailureKind::CrossDevice),
            (Errno::INVAL, FailureKind::Invalid),
            (Errno::CONNREFUSED, FailureKind::Refused),
            (Errno::BUSY, FailureKind::Busy),
            (Errno::IO, FailureKind::Unspecified),
        ];
        for (error, expected) in table {
            assert_eq!(kind(error), expected, "{error:?}");
        }
    }

    #[test]
    fn a_text_that_is_too_long_keeps_its_end() {
        let done = JobError::at("ä".repeat(4000).as_bytes())(Errno::NAMETOOLONG).into_done();
        let message = done.failure.unwrap().message;
        assert!(message.len() <= limits::TEXT_BYTES && message.contains("long"), "{message}");
    }
}
