//! Errors as RFC 9457 has them, with a closed list of stable codes. Each code has its page in `docs/problems`;
//! a test keeps the two in step.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{FieldError, FieldErrors, quotas::QuotaExcess};

/// Body of every answer that is not a success, as `application/problem+json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `/problems/<code>`, relative to the API.
    #[serde(rename = "type")]
    #[schema(example = "/problems/not_found")]
    pub kind: String,
    /// The same for every occurrence of the code.
    pub title: String,
    pub status: u16,
    pub code: ProblemCode,
    /// What happened this time.
    pub detail: String,
    /// The first field at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// All of them, when there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// With `quota_exceeded`: which one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaExcess>,
    /// The `X-Request-Id` of the request; logs carry it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Seconds after which trying again makes sense. Also the header `Retry-After`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u32>,
    /// Where an upload goes on, with `upload_offset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<u64>,
}

impl Problem {
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("/problems/{code}"),
            title: code.title().to_owned(),
            status: code.status(),
            code,
            detail: detail.into(),
            field: None,
            errors: Vec::new(),
            quota: None,
            request_id: None,
            retry_after: None,
            next_offset: None,
        }
    }

    pub fn with_field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    pub fn with_quota(mut self, excess: QuotaExcess) -> Self {
        self.quota = Some(excess);
        self
    }

    pub fn with_request_id(mut self, request_id: impl Into<String>) -> Self {
        self.request_id = Some(request_id.into());
        self
    }

    pub fn with_next_offset(mut self, offset: u64) -> Self {
        self.next_offset = Some(offset);
        self
    }

    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

impl From<FieldErrors> for Problem {
    fn from(errors: FieldErrors) -> Self {
        let mut errors = errors.into_vec();
        let first = errors.first().cloned();
        let (field, detail) = first.map_or((None, String::new()), |error| (Some(error.field), error.detail));
        let detail = field.as_ref().map_or_else(|| detail.clone(), |field| format!("{field}: {detail}"));
        if errors.len() < 2 {
            errors.clear();
        }
        Self { field, errors, ..Self::new(ProblemCode::InvalidField, detail) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.detail, self.code)
    }
}

impl std::error::Error for Problem {}

macro_rules! problem_codes {
    // `tt` for the code: the schema's derive doesn't see through a `literal`, and would name the variant.
    ($($(#[$doc:meta])* $name:ident = $code:tt, $status:literal, $title:literal;)*) => {
        /// Which kind of problem: a closed list, stable for ever.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        pub enum ProblemCode {
            $($(#[$doc])* #[serde(rename = $code)] $name,)*
        }

        impl ProblemCode {
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// The HTTP status it comes with.
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

problem_codes! {
    InvalidRequest = "invalid_request", 400, "The request can't be read";
    UnknownField = "unknown_field", 422, "The request has a field that does not exist";
    InvalidField = "invalid_field", 422, "A field of the request is not as it must be";
    BodyTooLarge = "body_too_large", 413, "The request's body is too large";
    UnsupportedMediaType = "unsupported_media_type", 415, "The request's body is not JSON";
    NotAcceptable = "not_acceptable", 406, "The answer can't be given in the form that was asked for";
    Unauthorized = "unauthorized", 401, "No valid key or token was given";
    Forbidden = "forbidden", 403, "The key may not do this";
    NotFound = "not_found", 404, "There is no such thing";
    MethodNotAllowed = "method_not_allowed", 405, "The method does not exist for this path";
    Conflict = "conflict", 409, "The present state does not allow this";
    QuotaExceeded = "quota_exceeded", 409, "A quota does not allow this";
    IdempotencyKeyReused = "idempotency_key_reused", 422, "The idempotency key was used for another request";
    IdempotencyKeyInUse = "idempotency_key_in_use", 409, "The first request with this idempotency key still runs";
    SandboxNotRunning = "sandbox_not_running", 409, "The sandbox does not run";
    CommandExists = "command_exists", 409, "The command exists with another specification";
    CommandNotRunning = "command_not_running", 409, "The command does not run";
    StdinOffset = "stdin_offset", 409, "Input is missing before this offset";
    StdinClosed = "stdin_closed", 409, "The command's standard input is closed";
    NoTerminal = "no_terminal", 409, "The command has no terminal";
    AgentTooOld = "agent_too_old", 409, "The sandbox's agent is too old for this";
    TooManyCommands = "too_many_commands", 429, "The sandbox has too many commands";
    FileNotFound = "file_not_found", 404, "There is no such file or directory";
    FileExists = "file_exists", 409, "The file exists already";
    FilePermission = "file_permission", 403, "The user inside the sandbox may not do this";
    FileNotADirectory = "file_not_a_directory", 409, "A directory is needed, and it is none";
    FileIsADirectory = "file_is_a_directory", 409, "A file is needed, and it is a directory";
    DirectoryNotEmpty = "directory_not_empty", 409, "The directory is not empty";
    FileNoSpace = "file_no_space", 507, "The sandbox's disk is full";
    FileReadOnly = "file_read_only", 409, "The filesystem is read-only";
    FilePath = "file_path", 422, "The path can't be followed";
    FileType = "file_type", 409, "It is neither a file nor a directory";
    UploadOffset = "upload_offset", 409, "The upload goes on at another offset";
    FileBusy = "file_busy", 409, "Another operation is in the way";
    FileExhausted = "file_exhausted", 429, "Too many file operations in the sandbox";
    FileCrossDevice = "file_cross_device", 409, "The move would leave the filesystem";
    FileRange = "file_range", 416, "The file has no such range";
    FileFailed = "file_failed", 409, "The sandbox's system refused the operation";
    ArchiveMalformed = "archive_malformed", 422, "The body is no tar archive";
    UserNotFound = "user_not_found", 422, "The sandbox has no such user";
    FileUnsupported = "file_unsupported", 501, "The sandbox's agent has no file operations";
    PortsNotConfigured = "ports_not_configured", 501, "Ports are not reachable here";
    NoCapacity = "no_capacity", 503, "No node has room";
    TemplateNotFound = "template_not_found", 422, "There is no such template";
    NodeUnavailable = "node_unavailable", 503, "The sandbox's node does not answer";
    GuestUnavailable = "guest_unavailable", 503, "The sandbox's agent does not answer";
    Timeout = "timeout", 504, "It took too long";
    RateLimited = "rate_limited", 429, "Too many requests";
    CreateFailed = "create_failed", 500, "The sandbox could not be created";
    Internal = "internal", 500, "Something went wrong inside SPACE";
    Unavailable = "unavailable", 503, "SPACE can't answer at the moment";
    ShuttingDown = "shutting_down", 503, "SPACE is shutting down";
}

impl ProblemCode {
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|known| known.code() == code)
    }

    /// Whether the same request may succeed later.
    pub const fn is_transient(self) -> bool {
        matches!(self.status(), 429 | 503 | 504)
    }
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, fs, path::Path};

    fn pages() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/problems")
    }

    /// `edge` has the codes of another list, kept by `space-edge`.
    #[test]
    fn every_code_has_a_page_and_every_page_a_code() {
        let codes: BTreeSet<_> = ProblemCode::ALL.iter().map(|code| format!("{code}.md")).collect();
        let files =
            fs::read_dir(pages()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let files: BTreeSet<_> = files.filter(|name| name != "README.md" && name != "edge").collect();
        assert_eq!(files, codes);
    }

    #[test]
    fn every_page_states_its_code_status_and_title() {
        for code in ProblemCode::ALL {
            let page = fs::read_to_string(pages().join(format!("{code}.md"))).unwrap();
            let head = format!("# {code}\n\n**{} · {}**\n", code.status(), code.title());
            assert!(page.starts_with(&head), "docs/problems/{code}.md must begin with:\n{head}");
            assert!(
                page.contains("\n## What to do\n"),
                "docs/problems/{code}.md says nothing about what to do"
            );
        }
    }

    #[test]
    fn the_index_lists_every_code() {
        let index = fs::read_to_string(pages().join("README.md")).unwrap();
        for code in ProblemCode::ALL {
            let line = format!("| [{code}]({code}.md) | {} | {} |", code.status(), code.title());
            assert!(index.contains(&line), "missing in docs/problems/README.md: {line}");
        }
    }

    #[test]
    fn codes_parse_back() {
        for code in ProblemCode::ALL {
            assert_eq!(ProblemCode::from_code(code.code()), Some(*code));
            assert_eq!(serde_json::to_string(code).unwrap(), format!("\"{code}\""));
        }
    }

    #[test]
    fn one_bad_field_is_told_once() {
        let problem = Problem::from(FieldErrors::one("vcpus", "must be 1"));
        insta::assert_json_snapshot!(problem, @r#"
        {
          "type": "/problems/invalid_field",
          "title": "A field of the request is not as it must be",
          "status": 422,
          "code": "invalid_field",
          "detail": "vcpus: must be 1",
          "field": "vcpus"
        }
        "#);
    }
}
