//! Between what clients and what guests call a file. What comes from a guest has been checked (see `job::check`);
//! here its texts are made printable.

use space_guest_proto::{
    InvalidRequest,
    job::{Change, ChangeKind, FileInfo as GuestInfo, FileType as GuestType, Job, OpenJob},
    validate,
};
use space_node_proto::files::{FileChange, FileInfo, FileType, Place, file_change::Kind};
use tonic::Status;

use super::status;
use crate::{guest::printable, limits};

/// A request that any agent takes: the user, and the job.
pub(super) fn checked(user: String, job: Job) -> Result<(String, Job), Status> {
    let open = OpenJob { user, job: Some(job), ..OpenJob::default() };
    validate::job(&open).map_err(|error| status::invalid(&error))?;
    let OpenJob { user, job, .. } = open;
    Ok((user, job.ok_or_else(|| missing("job"))?))
}

pub(super) fn place(place: Option<Place>) -> Result<Place, Status> {
    place.ok_or_else(|| missing("place"))
}

pub(super) fn missing(field: &'static str) -> Status {
    status::invalid(&InvalidRequest::Missing { field })
}

pub(super) fn info(info: GuestInfo) -> FileInfo {
    let file_type = match info.file_type() {
        GuestType::Unspecified => FileType::Unspecified,
        GuestType::File => FileType::File,
        GuestType::Directory => FileType::Directory,
        GuestType::Symlink => FileType::Symlink,
        GuestType::Fifo => FileType::Fifo,
        GuestType::Socket => FileType::Socket,
        GuestType::BlockDevice => FileType::BlockDevice,
        GuestType::CharacterDevice => FileType::CharacterDevice,
    };
    FileInfo {
        path: info.path.into(),
        r#type: file_type.into(),
        mode: info.mode,
        uid: info.uid,
        gid: info.gid,
        owner: printable(&info.owner, limits::TEXT),
        group: printable(&info.group, limits::TEXT),
        size: info.size,
        allocated: info.allocated,
        modified_ns: info.modified_ns,
        link_target: info.link_target.into(),
        version: info.version,
    }
}

pub(super) fn change(change: Change) -> FileChange {
    let kind = match change.kind() {
        ChangeKind::Unspecified => Kind::Unspecified,
        ChangeKind::Created => Kind::Created,
        ChangeKind::Written => Kind::Written,
        ChangeKind::Removed => Kind::Removed,
        ChangeKind::Attributes => Kind::Attributes,
        ChangeKind::Moved => Kind::Moved,
        ChangeKind::Lost => Kind::Lost,
    };
    FileChange { kind: kind.into(), path: change.path.into() }
}
