//! A sandbox's disk: a reflink of its template's image inside the jail, grown to its size. No data is copied;
//! the pool is charged for what the guest writes.

use std::io;

use camino::{Utf8Path, Utf8PathBuf};
use rustix::{
    fs::{Gid, Uid, fchown, ftruncate, ioctl_ficlone},
    io::Errno,
};
use space_types::ByteSize;

use super::jail::{JailDir, JailError};

#[derive(Debug, thiserror::Error)]
pub(crate) enum CloneDiskError {
    #[error("cannot open the image {image}")]
    Image {
        image: Utf8PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Jail(#[from] JailError),
    #[error("the image has {image}, more than the disk's {disk}")]
    TooSmall { image: ByteSize, disk: ByteSize },
    #[error("the disk pool is full")]
    NoSpace,
    #[error("cannot reflink the image")]
    Reflink(#[source] io::Error),
    #[error("cannot give the disk its size and owner")]
    Finish(#[source] io::Error),
}

/// Clones `image` to `name` in the jail, `size` large, owned by `uid`. Blocks. On failure the file may be
/// there in part; removing the jail removes it.
pub(crate) fn clone_disk(
    image: &Utf8Path,
    jail: &JailDir,
    name: &str,
    size: ByteSize,
    uid: u32,
) -> Result<(), CloneDiskError> {
    let image_error = |source| CloneDiskError::Image { image: image.to_owned(), source };
    let source = std::fs::File::open(image).map_err(image_error)?;
    let image_size = ByteSize::bytes(source.metadata().map_err(image_error)?.len());
    if image_size > size {
        return Err(CloneDiskError::TooSmall { image: image_size, disk: size });
    }
    let disk = jail.create(name)?;
    ioctl_ficlone(&disk, &source).map_err(|errno| full_or(errno, CloneDiskError::Reflink))?;
    ftruncate(&disk, size.as_bytes()).map_err(|errno| full_or(errno, CloneDiskError::Finish))?;
    fchown(&disk, Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid)))
        .map_err(|errno| full_or(errno, CloneDiskError::Finish))
}

fn full_or(errno: Errno, other: impl FnOnce(io::Error) -> CloneDiskError) -> CloneDiskError {
    if matches!(errno, Errno::NOSPC | Errno::DQUOT) { CloneDiskError::NoSpace } else { other(errno.into()) }
}
