//! Growing the mounted ext4 root to its drive's size. The host never touches a filesystem that a guest
//! wrote, so the guest does it.
#![expect(unsafe_code, reason = "the ioctls of block devices and ext4 have no safe wrapper")]

use std::{
    fs::File,
    io::{self, Seek, SeekFrom},
    os::fd::AsRawFd,
};

/// `_IOW('f', 16, __u64)`
const EXT4_IOC_RESIZE_FS: libc::Ioctl = 0x4008_6610;

/// Grows the filesystem at `mount_point` to fill `device`. Nothing happens where it does already.
pub(crate) fn grow_ext4(device: &str, mount_point: &str) -> io::Result<()> {
    let device_bytes = File::open(device)?.seek(SeekFrom::End(0))?;
    let root = File::open(mount_point)?;
    let block_bytes = rustix::fs::fstatvfs(&root)?.f_bsize.max(1);
    let blocks: u64 = device_bytes / block_bytes;
    // SAFETY: the kernel reads one u64.
    match unsafe { libc::ioctl(root.as_raw_fd(), EXT4_IOC_RESIZE_FS, &raw const blocks) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
