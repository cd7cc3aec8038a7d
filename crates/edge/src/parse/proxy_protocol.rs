//! The PROXY protocol, versions 1 and 2: a proxy's word, in front of a connection's first byte, on whom it is for.
//!
//! Strict, since whoever may say this is believed: one spelling of each number, TCP alone, nothing between the parts. The
//! source is haproxy's `doc/proxy-protocol.txt` (2.1 and 2.2).

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    num::NonZeroUsize,
    str::FromStr,
};

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const WORD: &[u8] = b"PROXY ";
/// Of version 1, its end of line included.
const LINE: usize = 107;
/// Of version 2, behind the first 16 bytes: the addresses, and what proxies add to them.
const REST: usize = 1024;
/// The longest header that is read.
pub const MOST: usize = 16 + REST;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// So many bytes more belong to the header for certain: whoever reads no more of them at a time reads none that does
    /// not.
    More(NonZeroUsize),
    /// All of `bytes` is a header. `None`: the proxy speaks for itself, or does not know for whom.
    Source(Option<IpAddr>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no header of the PROXY protocol")]
pub struct Malformed;

/// What `bytes` say, of which nothing lies behind the header.
pub fn parse(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let begins = |with: &[u8]| bytes.iter().zip(with).all(|(byte, expected)| byte == expected);
    if begins(SIGNATURE) && bytes.len() >= SIGNATURE.len() {
        binary(bytes)
    } else if begins(WORD) && bytes.len() >= SIGNATURE.len() {
        line(bytes)
    } else if begins(SIGNATURE) || begins(WORD) {
        more(bytes, SIGNATURE.len())
    } else {
        Err(Malformed)
    }
}

/// To have `length` of them, which are more than there are.
fn more(bytes: &[u8], length: usize) -> Result<Parsed, Malformed> {
    NonZeroUsize::new(length.saturating_sub(bytes.len())).map(Parsed::More).ok_or(Malformed)
}

/// Version 1: `PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n`.
fn line(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() < LINE { more(bytes, bytes.len() + 1) } else { Err(Malformed) };
    };
    let text = bytes.strip_suffix(b"\r\n").filter(|line| line.len() + 2 == end + 1).ok_or(Malformed)?;
    let text = std::str::from_utf8(text).map_err(|_not_text| Malformed)?;
    let mut words = text.split(' ').skip(1);
    let source = match words.next() {
        // Whatever stands behind it.
        Some("UNKNOWN") => return Ok(Parsed::Source(None)),
        Some("TCP4") => addresses::<Ipv4Addr>(&mut words)?.into(),
        Some("TCP6") => addresses::<Ipv6Addr>(&mut words)?.into(),
        Some(_) | None => return Err(Malformed),
    };
    for _ in ["source", "destination"] {
        words.next().filter(|port| is_port(port)).ok_or(Malformed)?;
    }
    if words.next().is_some() { Err(Malformed) } else { Ok(Parsed::Source(Some(source))) }
}

/// The source, once the destination is one too.
fn addresses<'a, A: FromStr>(words: &mut impl Iterator<Item = &'a str>) -> Result<A, Malformed> {
    let mut address = || words.next().and_then(|word| word.parse().ok()).ok_or(Malformed);
    let source = address()?;
    address()?;
    Ok(source)
}

fn is_port(text: &str) -> bool {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain && text.parse::<u16>().is_ok()
}

/// Version 2: the signature, version and command, family, a length, and as many bytes.
fn binary(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let Some((&[.., command, family, high, low], rest)) = bytes.split_first_chunk::<16>() else {
        return more(bytes, 16);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > REST || rest.len() > length {
        return Err(Malformed);
    }
    if rest.len() < length {
        return more(bytes, 16 + length);
    }
    let source: Option<IpAddr> = match (command, family) {
        (0x20, _) | (0x21, 0x00) => None,
        (0x21, 0x11) => Some(first::<4>(rest, 12)?.into()),
        (0x21, 0x21) => Some(first::<16>(rest, 36)?.into()),
        (_, _) => return Err(Malformed),
    };
    Ok(Parsed::Source(source))
}

/// The source of addresses and ports, which are `length` bytes together.
fn first<const BYTES: usize>(rest: &[u8], length: usize) -> Result<[u8; BYTES], Malformed> {
    rest.first_chunk().filter(|_| rest.len() >= length).copied().ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn source(bytes: &[u8]) -> Result<Option<IpAddr>, Malformed> {
        match parse(bytes)? {
            Parsed::Source(source) => Ok(source),
            Parsed::More(more) => panic!("{more} more of {bytes:?}"),
        }
    }

    fn version2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    #[test]
    fn the_source_is_read_in_either_version() {
        let (four, six): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        assert_eq!(source(b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n"), Ok(Some(four)));
        assert_eq!(source(b"PROXY TCP6 2001:db8::1 ::2 0 65535\r\n"), Ok(Some(six)));
        assert_eq!(source(b"PROXY UNKNOWN whatever\r\n"), Ok(None));
        let rest = [192, 0, 2, 1, 192, 0, 2, 2, 0xdc, 4, 1, 0xbb];
        assert_eq!(source(&version2(0x21, 0x11, &rest)), Ok(Some(four)));
        let more = [&rest[..], &[4, 0, 1, 9]].concat();
        assert_eq!(source(&version2(0x21, 0x11, &more)), Ok(Some(four)), "with what proxies add");
        let IpAddr::V6(address) = six else { panic!("it is one") };
        let rest = [&address.octets()[..], &[0; 20]].concat();
        assert_eq!(source(&version2(0x21, 0x21, &rest)), Ok(Some(six)));
        assert_eq!(source(&version2(0x20, 0x00, &[])), Ok(None), "its own check of our health");
    }

    #[test]
    fn other_spellings_are_no_header() {
        for text in [
            "GET / HTTP/1.1\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\n",
            "PROXY TCP4  192.0.2.1 192.0.2.2 56324 443\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 056324 443\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 65536 443\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +1 443\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 443 \r\n",
            "PROXY TCP4 192.0.2.01 192.0.2.2 1 443\r\n",
            "PROXY TCP4 2001:db8::1 ::2 1 443\r\n",
            "PROXY TCP4 192.0.2.1 elsewhere 1 443\r\n",
            "PROXY UDP4 192.0.2.1 192.0.2.2 1 443\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 443\r\nGET",
        ] {
            assert_eq!(parse(text.as_bytes()), Err(Malformed), "{text:?}");
        }
        assert_eq!(parse(format!("PROXY UNKNOWN {}", "x".repeat(LINE)).as_bytes()), Err(Malformed));
        for (command, family, length) in [
            (0x11, 0x11, 12),
            (0x22, 0x11, 12),
            (0x21, 0x12, 12),
            (0x21, 0x31, 216),
            (0x21, 0x11, 11),
            (0x21, 0x21, 35),
        ] {
            let bytes = version2(command, family, &vec![0; length]);
            assert_eq!(parse(&bytes), Err(Malformed), "{command:x} {family:x} {length}");
        }
        assert_eq!(parse(&version2(0x20, 0, &[0; REST + 1])[..16]), Err(Malformed), "too long");
    }

    proptest! {
        /// Whoever reads as many bytes as were asked for reads the header and nothing behind it.
        #[test]
        fn nothing_behind_the_header_is_asked_for(port in any::<u16>(), behind in "[a-z]{0,40}", tlv in 0_usize..100) {
            let headers = [
                format!("PROXY TCP4 192.0.2.1 192.0.2.2 {port} 443\r\n").into_bytes(),
                version2(0x21, 0x11, &[vec![1; 12], vec![0; tlv]].concat()),
            ];
            for header in headers {
                let sent = [&header[..], behind.as_bytes()].concat();
                let mut read = 0;
                while let Parsed::More(more) = parse(&sent[..read]).unwrap() {
                    read += more.get();
                }
                prop_assert_eq!(read, header.len());
            }
        }

        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(!matches!(parse(&bytes), Ok(Parsed::Source(_))));
            if let Ok(Parsed::More(more)) = parse(&[&SIGNATURE[..], &bytes].concat()) {
                prop_assert!(more.get() <= MOST);
            }
        }
    }
}
