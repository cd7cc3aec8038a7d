//! Entropy into the kernel's pool, credited, and used at once.
#![expect(unsafe_code, reason = "random(4)'s ioctls have no safe wrapper")]

use std::{fs::OpenOptions, io, os::fd::AsRawFd};

use space_guest_proto::limits::ENTROPY_BYTES;

const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
const RNDRESEEDCRNG: libc::Ioctl = 0x0000_5207;

/// `struct rand_pool_info` of `linux/random.h`, with room for the longest message.
#[repr(C)]
struct PoolInfo {
    entropy_bits: libc::c_int,
    bytes: libc::c_int,
    data: [u8; ENTROPY_BYTES],
}

/// Adds `entropy` (at most [`ENTROPY_BYTES`]; more is cut) and makes the generator take it up now, so that
/// guests restored from one snapshot part ways before the first process runs.
pub(crate) fn add(entropy: &[u8]) -> io::Result<()> {
    let device = OpenOptions::new().write(true).open("/dev/urandom")?;
    let mut info = PoolInfo { entropy_bits: 0, bytes: 0, data: [0; ENTROPY_BYTES] };
    for (to, from) in info.data.iter_mut().zip(entropy) {
        *to = *from;
        info.bytes += 1;
    }
    info.entropy_bits = info.bytes * 8;
    // SAFETY: the kernel reads the two counts and as many bytes of `data` as they say, which is no more than
    // it has.
    if unsafe { libc::ioctl(device.as_raw_fd(), RNDADDENTROPY, &raw const info) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: takes no argument.
    if unsafe { libc::ioctl(device.as_raw_fd(), RNDRESEEDCRNG, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
