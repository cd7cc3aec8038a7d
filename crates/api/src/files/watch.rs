//! A watch's events: `watching` first, then `change`, or `lost` where more happened than could be told.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::FilePath;
use crate::{Base64Bytes, sse::StreamError};

/// Something happened to what has this path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileChange {
    pub kind: FileChangeKind,
    /// Absolute.
    pub path: String,
    /// The exact path, where `path` isn't UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<Base64Bytes>,
}

impl FileChange {
    pub fn new(kind: FileChangeKind, path: &FilePath) -> Self {
        let (path, path_base64) = path.to_json();
        Self { kind, path, path_base64 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    Created,
    Written,
    /// Also what a move leaves behind.
    Removed,
    /// Mode, owner or times.
    Attributes,
    /// Moved to this path, from another one.
    Moved,
    #[serde(other)]
    Unknown,
}

/// One event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// From now on no change is missed.
    Watching,
    Change(FileChange),
    /// Some changes are missing here; look again. The watch goes on.
    Lost,
    /// The last event of a watch that ended early.
    Error(StreamError),
}

impl WatchEvent {
    /// `event:` on the wire.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Watching => "watching",
            Self::Change(_) => "change",
            Self::Lost => "lost",
            Self::Error(_) => "error",
        }
    }

    /// `data:` on the wire, one line.
    pub fn data(&self) -> serde_json::Result<String> {
        match self {
            Self::Watching | Self::Lost => Ok("{}".to_owned()),
            Self::Change(change) => serde_json::to_string(change),
            Self::Error(error) => serde_json::to_string(error),
        }
    }

    /// `None`: a name that this version doesn't know.
    pub fn parse(name: &str, data: &str) -> serde_json::Result<Option<Self>> {
        Ok(Some(match name {
            "watching" => Self::Watching,
            "change" => Self::Change(serde_json::from_str(data)?),
            "lost" => Self::Lost,
            "error" => Self::Error(serde_json::from_str(data)?),
            _ => return Ok(None),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_the_wire() {
        let change = FileChange::new(FileChangeKind::Moved, &FilePath::from(b"/\xff"));
        for event in [WatchEvent::Watching, WatchEvent::Change(change), WatchEvent::Lost] {
            assert_eq!(WatchEvent::parse(event.name(), &event.data().unwrap()).unwrap(), Some(event));
        }
        assert_eq!(WatchEvent::parse("later", "{}").unwrap(), None);
    }
}
