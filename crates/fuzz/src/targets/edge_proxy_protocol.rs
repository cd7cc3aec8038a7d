//! A proxy's header in front of a connection, with whatever comes behind it.
//!
//! - Whoever reads as much as is asked for reads the header, at most so much of it, and nothing behind it.
//! - What is read of an address is spelled in one way: written again, it is the header that was read.

use std::net::IpAddr;

use space_edge::parse::proxy_protocol::{MOST, Parsed, parse};

pub(crate) fn run(bytes: &[u8]) {
    let mut read = 0;
    let source = loop {
        match parse(&bytes[..read]) {
            Err(_malformed) => return,
            Ok(Parsed::Source(source)) => break source,
            Ok(Parsed::More(more)) => read += more.get(),
        }
        assert!(read <= MOST, "{read} bytes");
        if read > bytes.len() {
            return;
        }
    };
    let header = &bytes[..read];
    for length in 0..read {
        assert!(matches!(parse(&header[..length]), Ok(Parsed::More(_))), "{length} of {header:?}");
    }
    match source {
        Some(source) if header.starts_with(b"PROXY ") => is_spelled_so(header, source),
        Some(IpAddr::V4(source)) => assert_eq!(header[16..20], source.octets()),
        Some(IpAddr::V6(source)) => assert_eq!(header[16..32], source.octets()),
        None => {}
    }
}

fn is_spelled_so(header: &[u8], source: IpAddr) {
    let text = std::str::from_utf8(header).unwrap_or_else(|error| panic!("{header:?}: {error}"));
    let words: Vec<&str> = text.trim_end().split(' ').collect();
    let [_, family, first, second, ports @ ..] = words.as_slice() else { panic!("{text:?}") };
    assert_eq!(*family, if source.is_ipv4() { "TCP4" } else { "TCP6" });
    assert_eq!(first.parse(), Ok(source));
    let ports: Vec<u16> =
        ports.iter().map(|port| port.parse().unwrap_or_else(|_| panic!("{text:?}"))).collect();
    let [from, to] = ports.as_slice() else { panic!("{text:?}") };
    assert_eq!(text, format!("PROXY {family} {first} {second} {from} {to}\r\n"));
}
