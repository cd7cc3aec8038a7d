//! Behind a proxy that says whom a connection is for.

use tokio::io::AsyncWriteExt as _;

use crate::kit::{Kit, guest, within};

const BELIEVED: &str = "[proxy_protocol]\ntrusted = ['127.0.0.0/8']";

fn request(port: crate::kit::Port) -> String {
    format!("GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", port.name())
}

/// Version 2, TCP over IPv4, from 192.0.2.`last`.
fn binary(last: u8) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend([192, 0, 2, last, 127, 0, 0, 1, 0x80, 0, 0, 80]);
    header
}

#[tokio::test]
async fn a_trusted_proxy_names_the_visitor() {
    let kit = Kit::with_tables("", BELIEVED).await;
    let port = kit.port(guest::mirror().await, true);
    let request = request(port);
    for (header, source) in [
        (b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 80\r\n".to_vec(), "192.0.2.7"),
        (b"PROXY TCP6 2001:db8::7 ::1 4711 80\r\n".to_vec(), "2001:db8::7"),
        (binary(9), "192.0.2.9"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
    ] {
        let seen = kit.bytes(&[&header[..], request.as_bytes()].concat()).await;
        assert!(seen.contains(&format!("x-forwarded-for: {source}\n")), "{source}: {seen}");
    }
}

#[tokio::test]
async fn a_trusted_proxy_that_says_nothing_of_the_kind_is_hung_up_on() {
    let kit = Kit::with_tables("header_seconds = 1", BELIEVED).await;
    let port = kit.port(guest::mirror().await, true);
    for header in ["", "PROXY TCP4 192.0.2.7 127.0.0.1 4711 080\r\n", "PROXY TCP4 192.0.2.7"] {
        assert_eq!(kit.raw(&format!("{header}{}", request(port))).await, "", "{header:?}");
    }
    assert_eq!(kit.raw("PROXY TCP4 192.0").await, "", "not in time");
}

#[tokio::test]
async fn nobody_else_is_believed() {
    let kit = Kit::with_tables("", "[proxy_protocol]\ntrusted = ['192.0.2.0/24']").await;
    let port = kit.port(guest::mirror().await, true);
    let seen = kit.raw(&request(port)).await;
    assert!(seen.contains("x-forwarded-for: 127.0.0.1\n"), "{seen}");
    let refused = kit.raw(&format!("PROXY TCP4 192.0.2.7 127.0.0.1 4711 80\r\n{}", request(port))).await;
    assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");
}

#[tokio::test]
async fn visitors_behind_a_proxy_have_their_places_each() {
    let kit = Kit::with_tables("address_connections = 1", BELIEVED).await;
    let port = kit.port(guest::mirror().await, true);
    let mut first = kit.connect().await;
    first.write_all(&binary(1)).await.unwrap();
    first.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", port.name()).as_bytes()).await.unwrap();
    assert!(within(crate::kit::read_head(&mut first)).await.starts_with("HTTP/1.1 200 "));
    let request = request(port);
    let again = kit.bytes(&[&binary(1)[..], request.as_bytes()].concat()).await;
    assert!(again.starts_with("HTTP/1.1 429 "), "{again}");
    let other = kit.bytes(&[&binary(2)[..], request.as_bytes()].concat()).await;
    assert!(other.starts_with("HTTP/1.1 200 "), "{other}");
}
