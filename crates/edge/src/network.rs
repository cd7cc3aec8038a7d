//! Addresses in configuration: one, or all with a common beginning.

use std::{net::IpAddr, str::FromStr};

use serde::Deserialize;

/// `192.0.2.7`, `10.0.0.0/8`, `2001:db8::/32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Network {
    first: u128,
    mask: u128,
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no address, and no network as 10.0.0.0/8 is one")]
pub struct NetworkError(String);

impl Network {
    pub fn contains(self, address: IpAddr) -> bool {
        number(address) & self.mask == self.first
    }
}

/// Both versions in one line of numbers: an IPv4 address as IPv6 has it.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let error = || NetworkError(text.to_owned());
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_unparsed| error())?;
        let width: u32 = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(width), str::parse).map_err(|_unparsed| error())?;
        let host = width.checked_sub(bits).ok_or_else(error)?;
        let mask = u128::MAX.checked_shl(host).unwrap_or(0);
        let first = number(address);
        if first & mask == first { Ok(Self { first, mask }) } else { Err(error()) }
    }
}

impl TryFrom<String> for Network {
    type Error = NetworkError;

    fn try_from(text: String) -> Result<Self, NetworkError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(network: &str, address: &str) -> bool {
        network.parse::<Network>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn a_network_holds_what_begins_as_it_does() {
        assert!(holds("10.0.0.0/8", "10.255.0.1") && !holds("10.0.0.0/8", "11.0.0.1"));
        assert!(holds("192.0.2.7", "192.0.2.7") && !holds("192.0.2.7", "192.0.2.8"));
        assert!(holds("192.0.2.7", "::ffff:192.0.2.7"), "as a socket of both versions has it");
        assert!(holds("2001:db8::/32", "2001:db8:1::1") && !holds("2001:db8::/32", "2001:db9::"));
        assert!(holds("::/0", "2001:db8::1") && holds("0.0.0.0/0", "192.0.2.1"));
        assert!(!holds("0.0.0.0/0", "2001:db8::1"));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["", "10.0.0.0/33", "10.0.0.1/8", "::/129", "10.0.0.0/", "10.0.0.0/8/8", "example"] {
            text.parse::<Network>().unwrap_err();
        }
    }
}
