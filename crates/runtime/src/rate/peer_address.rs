//! Whom requests are counted for: an IPv4 address, or the /64 of an IPv6 address, which one customer of a provider has
//! for itself and can fill with addresses at will.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The other end of the connection, as the socket has it. What a header says of it is anybody's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerAddress(IpAddr);

impl PeerAddress {
    pub fn new(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(IpAddr::V4(address)),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self(IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)))
            }
        }
    }
}

/// Of a request that came over no socket: all of them together.
impl Default for PeerAddress {
    fn default() -> Self {
        Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> PeerAddress {
        PeerAddress::new(address.parse().unwrap())
    }

    #[test]
    fn a_network_of_64_bits_is_one_peer_and_an_address_in_either_form_too() {
        assert_eq!(peer("2001:db8:1:2::1"), peer("2001:db8:1:2:ffff::9"));
        assert_ne!(peer("2001:db8:1:2::1"), peer("2001:db8:1:3::1"));
        assert_eq!(peer("192.0.2.1"), peer("::ffff:192.0.2.1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
    }
}
