//! Images on this node: templates by digest, and the boot files that every VM shares.

mod boot_files;
mod store;

pub(crate) use boot_files::{BootFiles, BootFilesError, check_pinned};
pub(crate) use store::{ImageError, ImageStore};
