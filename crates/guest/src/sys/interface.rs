//! Network interfaces by the old ioctls: two interfaces and one route are less code this way than by netlink.
#![expect(unsafe_code, reason = "netdevice(7)'s ioctls have no safe wrapper")]

use std::{
    io,
    net::Ipv4Addr,
    os::fd::{AsRawFd, OwnedFd},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

// `linux/sockios.h`, `linux/if.h` and `linux/socket.h`. The types of libc's constants differ between C libraries.
const SIOCADDRT: libc::Ioctl = 0x890b;
const SIOCGIFFLAGS: libc::Ioctl = 0x8913;
const SIOCSIFFLAGS: libc::Ioctl = 0x8914;
const SIOCSIFADDR: libc::Ioctl = 0x8916;
const SIOCSIFNETMASK: libc::Ioctl = 0x891c;
const IFF_UP: libc::c_short = 1;
const AF_INET: libc::sa_family_t = 2;

/// A socket to configure interfaces through.
pub(crate) struct Interfaces(OwnedFd);

impl Interfaces {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?))
    }

    pub(crate) fn set_address(&self, name: &str, address: Ipv4Addr, mask: Ipv4Addr) -> io::Result<()> {
        let mut request = named(name);
        request.ifr_ifru.ifru_addr = socket_address(address);
        self.control(SIOCSIFADDR, &raw mut request)?;
        request.ifr_ifru.ifru_netmask = socket_address(mask);
        self.control(SIOCSIFNETMASK, &raw mut request)
    }

    pub(crate) fn set_up(&self, name: &str) -> io::Result<()> {
        let mut request = named(name);
        self.control(SIOCGIFFLAGS, &raw mut request)?;
        // SAFETY: SIOCGIFFLAGS has just filled this member of the union.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        request.ifr_ifru.ifru_flags = flags | IFF_UP;
        self.control(SIOCSIFFLAGS, &raw mut request)
    }

    pub(crate) fn add_default_route(&self, gateway: Ipv4Addr) -> io::Result<()> {
        // SAFETY: all-zero is a valid rtentry: no device name, no metric.
        let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
        route.rt_dst = socket_address(Ipv4Addr::UNSPECIFIED);
        route.rt_genmask = socket_address(Ipv4Addr::UNSPECIFIED);
        route.rt_gateway = socket_address(gateway);
        route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
        self.control(SIOCADDRT, &raw mut route)
    }

    fn control<T>(&self, request: libc::Ioctl, argument: *mut T) -> io::Result<()> {
        // SAFETY: every caller passes a live structure of the type that its request takes.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn named(name: &str) -> libc::ifreq {
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays 0.
    let room = libc::IFNAMSIZ - 1;
    for (to, from) in request.ifr_name.iter_mut().take(room).zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    // SAFETY: all-zero is a valid sockaddr.
    let mut generic: libc::sockaddr = unsafe { std::mem::zeroed() };
    generic.sa_family = AF_INET;
    // A sockaddr_in: two bytes of port, then the address.
    for (to, from) in generic.sa_data.iter_mut().skip(2).zip(address.octets()) {
        *to = from.cast_signed();
    }
    generic
}
