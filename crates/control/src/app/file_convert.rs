//! Files and changes as the API has them. Their texts were chosen inside the sandbox; they go into JSON and nowhere
//! else.

use space_api::{
    Timestamp,
    files::{FileChange, FileChangeKind, FileInfo, FileKind, FileMode, FilePath, WatchEvent},
};
use space_node_proto::files as proto;

pub(super) fn info(found: proto::FileInfo) -> FileInfo {
    let kind = match found.r#type() {
        proto::FileType::Unspecified => FileKind::Unknown,
        proto::FileType::File => FileKind::File,
        proto::FileType::Directory => FileKind::Directory,
        proto::FileType::Symlink => FileKind::Symlink,
        proto::FileType::Fifo => FileKind::Fifo,
        proto::FileType::Socket => FileKind::Socket,
        proto::FileType::BlockDevice => FileKind::BlockDevice,
        proto::FileType::CharacterDevice => FileKind::CharacterDevice,
    };
    let mut info = FileInfo {
        path: String::new(),
        path_base64: None,
        kind,
        mode: FileMode::new(found.mode & 0o7777).unwrap_or(FileMode::NONE),
        uid: found.uid,
        gid: found.gid,
        owner: Some(found.owner).filter(|owner| !owner.is_empty()),
        group: Some(found.group).filter(|group| !group.is_empty()),
        size: found.size,
        allocated: found.allocated,
        modified_at: Timestamp::from_unix_milliseconds(found.modified_ns.div_euclid(1_000_000)),
        link_target: None,
        link_target_base64: None,
        version: format!("{:016x}", found.version),
    };
    info.set_path(&FilePath::from(found.path));
    if !found.link_target.is_empty() {
        info.set_link_target(&FilePath::from(found.link_target));
    }
    info
}

/// `None`: of a kind that does not exist.
pub(super) fn change(told: proto::FileChange) -> Option<WatchEvent> {
    let kind = match told.kind() {
        proto::file_change::Kind::Unspecified => return None,
        proto::file_change::Kind::Lost => return Some(WatchEvent::Lost),
        proto::file_change::Kind::Created => FileChangeKind::Created,
        proto::file_change::Kind::Written => FileChangeKind::Written,
        proto::file_change::Kind::Removed => FileChangeKind::Removed,
        proto::file_change::Kind::Attributes => FileChangeKind::Attributes,
        proto::file_change::Kind::Moved => FileChangeKind::Moved,
    };
    Some(WatchEvent::Change(FileChange::new(kind, &FilePath::from(told.path))))
}
