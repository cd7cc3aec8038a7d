//! What one address may take. All visitors here are one.

use tokio::io::AsyncWriteExt as _;

use crate::kit::{Kit, guest, mark, read_head, within};

#[tokio::test]
async fn an_address_that_sends_too_fast_is_told_when_to_come_again() {
    let kit = Kit::with("address_requests_per_second = 1\naddress_requests_burst = 3", false).await;
    let port = kit.port(guest::mirror().await, true);
    let client = kit.client(port).build().unwrap();
    let mut answers = Vec::new();
    for _ in 0..4 {
        answers.push(client.get(kit.url(port, "/")).send().await.unwrap());
    }
    let refused = answers.pop().unwrap();
    assert!(answers.iter().all(|answer| answer.status() == 200));
    assert_eq!((refused.status().as_u16(), mark(&refused)), (429, "address_limited"));
    assert_eq!(refused.headers()["retry-after"], "1");
}

#[tokio::test]
async fn an_address_with_too_many_connections_is_told_so_and_gets_its_places_back() {
    let kit = Kit::with("address_connections = 2", false).await;
    let port = kit.port(guest::echo().await, true);
    let head = format!("POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: 4\r\n\r\n", port.name());
    let tunnel = guest::program(async |stream| {
        let _held = stream;
        std::future::pending::<()>().await;
    });
    let tunnel = kit.port(tunnel.await, true);
    let (mut first, mut second) = (kit.connect().await, kit.connect().await);
    let connect = format!("CONNECT {}:1 HTTP/1.1\r\nHost: x\r\n\r\n", tunnel.name());
    first.write_all(connect.as_bytes()).await.unwrap();
    assert!(read_head(&mut first).await.starts_with("HTTP/1.1 200 "));
    second.write_all(head.as_bytes()).await.unwrap();
    second.write_all(b"body").await.unwrap();
    assert!(read_head(&mut second).await.starts_with("HTTP/1.1 200 "));
    let third = kit.raw("").await;
    assert!(third.starts_with("HTTP/1.1 429 ") && third.contains("X-Space-Edge: address_limited"), "{third}");
    drop(second);
    // Its place is free when the edge has seen the end, which nothing tells of.
    let head = head.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    within(async {
        loop {
            let answer = kit.raw(&format!("{head}body")).await;
            if answer.starts_with("HTTP/1.1 200 ") {
                break;
            }
            assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
        }
    })
    .await;
    drop(first);
}
