//! The two `ioctl` families that a slot needs: making a persistent TAP device that a VM's user may open, and
//! bringing a link up. Both act on the network namespace of the calling thread.

use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::AsRawFd,
};

nix::ioctl_write_int!(tun_set_iff, b'T', 202);
nix::ioctl_write_int!(tun_set_persist, b'T', 203);
nix::ioctl_write_int!(tun_set_owner, b'T', 204);
nix::ioctl_write_int!(tun_set_group, b'T', 206);

/// Makes the TAP device `name`, kept after this process and openable by `uid` alone.
/// Its flags are those that Firecracker opens it with: no packet information, virtio headers.
pub(crate) fn make_tap(name: &str, uid: u32) -> io::Result<()> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    let mut request = interface_request(name)?;
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = i16::try_from(flags).map_err(io::Error::other)?;
    let pointer = (&raw mut request) as libc::c_ulong;
    let owner = libc::c_ulong::from(uid);
    tun_call(&device, |fd| {
        // SAFETY: `pointer` is to an initialised `ifreq` that outlives the call; TUNSETIFF reads and writes
        // no more than that. The other three take plain integers.
        #[expect(unsafe_code, reason = "TUN ioctls have no safe wrapper")]
        unsafe {
            tun_set_iff(fd, pointer)?;
            tun_set_owner(fd, owner)?;
            tun_set_group(fd, owner)?;
            tun_set_persist(fd, 1)
        }
    })
}

fn tun_call(device: &File, call: impl FnOnce(i32) -> nix::Result<i32>) -> io::Result<()> {
    call(device.as_raw_fd()).map(|_| ()).map_err(io::Error::from)
}

/// Sets `IFF_UP` on the link `name`.
pub(crate) fn bring_up(name: &str) -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut request = interface_request(name)?;
    let up = i16::try_from(libc::IFF_UP).map_err(io::Error::other)?;
    // SAFETY: both calls get a valid socket and an initialised `ifreq` that outlives them, and the union's
    // `ifru_flags` is what SIOCGIFFLAGS fills in.
    #[expect(unsafe_code, reason = "interface flags have no safe wrapper")]
    let answer = unsafe {
        let mut answer = libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request);
        if answer == 0 {
            request.ifr_ifru.ifru_flags |= up;
            answer = libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request);
        }
        answer
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is plain data for which all zeros is a valid value.
    #[expect(unsafe_code, reason = "ifreq has no constructor")]
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte.cast_signed();
    }
    Ok(request)
}
