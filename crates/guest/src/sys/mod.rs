//! The kernel's calls that rustix has no safe form of. All `unsafe` of this crate is in here, behind
//! functions that can be called in any way without harm; the exception, [`process::fork`], says what its
//! callers rely on.

pub(crate) mod entropy;
pub(crate) mod interface;
pub(crate) mod process;
pub(crate) mod receive;
pub(crate) mod resize;
pub(crate) mod signals;
pub(crate) mod vsock;
