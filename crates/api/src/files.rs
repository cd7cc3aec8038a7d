//! Files in a running sandbox, under `/v1/sandboxes/{id}/files`.
//!
//! The sandbox's kernel decides what the user may do, and what it says becomes a problem of its own. Contents travel
//! as plain bytes in both directions, of any size; a whole tree as a tar stream.

mod mode;
mod path;
mod query;
mod range;
mod requests;
mod watch;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use mode::{FileMode, NoMode};
pub use path::FilePath;
pub use query::{cursor_of, path_of, percent_encode};
pub use range::ByteRange;
pub use requests::{
    CreateDirectory, FromQuery, ListQuery, MoveFile, PlaceQuery, RemoveQuery, StatQuery, UploadPart,
    WatchQuery, WriteParams, WriteQuery,
};
pub use watch::{FileChange, FileChangeKind, WatchEvent};

use crate::{Base64Bytes, FieldErrors, Timestamp, limits};

/// What a file, a directory or anything else with a path is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileInfo {
    /// Absolute.
    pub path: String,
    /// The exact path, where `path` is not: it isn't UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<Base64Bytes>,
    #[serde(rename = "type")]
    pub kind: FileKind,
    /// Permission bits, in octal.
    pub mode: FileMode,
    pub uid: u32,
    pub gid: u32,
    /// Absent when the sandbox has no name for the uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Bytes.
    pub size: u64,
    /// Bytes on the disk: fewer than `size` where the file has holes.
    pub allocated: u64,
    pub modified_at: Timestamp,
    /// Where a symbolic link points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_target_base64: Option<Base64Bytes>,
    /// Another one whenever the content may be another one. In quotes it is the `ETag` of the content.
    pub version: String,
}

impl FileInfo {
    pub fn exact_path(&self) -> FilePath {
        FilePath::from_json(Some(&self.path), self.path_base64.as_ref()).unwrap_or_default()
    }

    pub fn set_path(&mut self, path: &FilePath) {
        (self.path, self.path_base64) = path.to_json();
    }

    pub fn set_link_target(&mut self, target: &FilePath) {
        let (text, exact) = target.to_json();
        (self.link_target, self.link_target_base64) = (Some(text), exact);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    BlockDevice,
    CharacterDevice,
    #[serde(other)]
    Unknown,
}

/// How far an upload has come that is not complete yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UploadKept {
    /// Bytes that are kept; the next part begins there.
    pub next_offset: u64,
}

/// What an archive put out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArchiveWritten {
    pub entries: u64,
    /// Bytes of file data.
    pub bytes: u64,
}

/// A body that is a file's content or an archive: plain bytes, for the document.
#[derive(Debug)]
pub struct RawBytes;

impl utoipa::PartialSchema for RawBytes {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::schema::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .format(Some(utoipa::openapi::schema::SchemaFormat::KnownFormat(
                utoipa::openapi::schema::KnownFormat::Binary,
            )))
            .build()
            .into()
    }
}

impl ToSchema for RawBytes {}

/// A name or uid.
fn check_user(field: &str, user: Option<&str>, errors: &mut FieldErrors) {
    errors.require(user.is_none_or(is_user), field, "must be a user's name or uid");
}

fn is_user(user: &str) -> bool {
    (1..=limits::USER_CHARS).contains(&user.len())
        && user.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// A user, and a group behind a colon.
fn check_owner(owner: Option<&str>, errors: &mut FieldErrors) {
    let valid = |owner: &str| match owner.split_once(':') {
        Some((user, group)) => is_user(user) && is_user(group),
        None => is_user(owner),
    };
    errors.require(owner.is_none_or(valid), "owner", "must be USER or USER:GROUP, by name or number");
}
