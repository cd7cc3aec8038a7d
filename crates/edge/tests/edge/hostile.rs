//! Visitors that mean harm, and crowds.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::kit::{Kit, guest, within};

#[tokio::test]
async fn what_two_readers_could_read_differently_is_refused() {
    let kit = Kit::new().await;
    let port = kit.port(guest::mirror().await, true);
    let name = port.name();
    let other = format!("80-{}.ports.example", space_types::SandboxId::new().label());
    for head in [
        format!("POST / HTTP/1.1\r\nHost: {name}\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        format!("POST / HTTP/1.1\r\nHost: {name}\r\nContent-Length: +1\r\n\r\na"),
        format!("POST / HTTP/1.1\r\nHost: {name}\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {name}\r\nHost: {other}\r\n\r\n"),
        format!("GET http://{other}/ HTTP/1.1\r\nHost: {name}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost : {name}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {name}\r\n folded: 1\r\n\r\n"),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
    ] {
        let head = head.replacen("\r\n", "\r\nConnection: close\r\n", 1);
        let answer = kit.raw(&head).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{head:?}: {answer}");
    }
}

#[tokio::test]
async fn a_length_beside_chunks_counts_for_nothing_and_ends_the_connection() {
    let kit = Kit::new().await;
    let port = kit.port(guest::echo().await, true);
    let name = port.name();
    let smuggled = format!("GET /smuggled HTTP/1.1\r\nHost: {name}\r\n\r\n");
    for fields in
        ["Content-Length: 6\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 6"]
    {
        let answer =
            kit.raw(&format!("POST / HTTP/1.1\r\nHost: {name}\r\n{fields}\r\n\r\n0\r\n\r\n{smuggled}")).await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    }
}

#[tokio::test]
async fn those_who_say_nothing_or_say_it_slowly_are_cut_off() {
    let kit = Kit::with("header_seconds = 1", false).await;
    for said in ["", "P", "GET / HTTP/1.1\r\nHost: ", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let begun = Instant::now();
        kit.raw(said).await;
        assert!(begun.elapsed() >= Duration::from_millis(900), "{said:?} was given its time");
    }
}

/// Sends a byte every now and then until the edge has closed; how long that took.
async fn drip(mut stream: tokio::net::TcpStream) -> Duration {
    let begun = Instant::now();
    within(async {
        let mut answer = [0; 1024];
        loop {
            tokio::select! {
                count = stream.read(&mut answer) => if count.unwrap_or(0) == 0 { return },
                () = tokio::time::sleep(Duration::from_millis(100)) => drop(stream.write_all(b"x").await),
            }
        }
    })
    .await;
    begun.elapsed()
}

#[tokio::test]
async fn a_head_that_drips_has_no_more_time_than_any() {
    let kit = Kit::with("header_seconds = 1", false).await;
    let port = kit.port(guest::echo().await, true);
    let head = format!("GET / HTTP/1.1\r\nHost: {}\r\nX: ", port.name());
    let mut first = kit.connect().await;
    first.write_all(head.as_bytes()).await.unwrap();
    // Nor has the second one of a connection.
    let mut second = kit.connect().await;
    second.write_all(format!("{head}\r\n\r\n{head}").as_bytes()).await.unwrap();
    for elapsed in within(futures::future::join_all([drip(first), drip(second)])).await {
        assert!((Duration::from_millis(900)..Duration::from_secs(5)).contains(&elapsed), "{elapsed:?}");
    }
}

#[tokio::test]
async fn a_handshake_that_drips_has_no_more_time_either() {
    let kit = Kit::with("header_seconds = 1", true).await;
    let mut stream = kit.connect().await;
    // A record of a handshake, and of 16,000 bytes.
    stream.write_all(&[22, 3, 1, 0x3e, 0x80, 1]).await.unwrap();
    let elapsed = drip(stream).await;
    assert!((Duration::from_millis(900)..Duration::from_secs(5)).contains(&elapsed), "{elapsed:?}");
}

#[tokio::test]
async fn a_body_may_take_longer_than_a_head() {
    let kit = Kit::with("header_seconds = 1", false).await;
    let port = kit.port(guest::echo().await, true);
    let mut stream = kit.connect().await;
    let head =
        format!("POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: 4\r\nConnection: close\r\n\r\n", port.name());
    stream.write_all(head.as_bytes()).await.unwrap();
    for byte in b"slow" {
        tokio::time::sleep(Duration::from_millis(500)).await;
        stream.write_all(&[*byte]).await.unwrap();
    }
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("slow"), "{answer}");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_no_whole_one() {
    let kit = Kit::new().await;
    let (sender, mut seen) = tokio::sync::mpsc::channel(1);
    let program = guest::http(move |request| {
        let sender = sender.clone();
        async move {
            let whole = http_body_util::BodyExt::collect(request.into_body()).await.is_ok();
            sender.send(whole).await.unwrap();
            guest::text("")
        }
    });
    let port = kit.port(program.await, true);
    let mut stream = kit.connect().await;
    let head = format!("POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: 10\r\n\r\nhalf", port.name());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(within(seen.recv()).await, Some(false));
}

#[tokio::test]
async fn more_fields_than_a_head_may_have_are_refused() {
    let kit = Kit::new().await;
    let port = kit.port(guest::mirror().await, true);
    let many = "X: 1\r\n".repeat(200);
    let answer = kit.raw(&format!("GET / HTTP/1.1\r\nHost: {}\r\n{many}\r\n", port.name())).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let kit = Kit::new().await;
    let port = kit.port(guest::mirror().await, true);
    let long = "x".repeat(80 * 1024);
    let answer = kit.raw(&format!("GET / HTTP/1.1\r\nHost: {}\r\nX: {long}\r\n\r\n", port.name())).await;
    assert!(answer.starts_with("HTTP/1.1 431 ") || answer.is_empty(), "{answer}");
}

#[tokio::test]
async fn a_reader_that_stands_still_stalls_nobody_else() {
    let kit = Kit::new().await;
    let flood = guest::program(async |mut stream| {
        drop(stream.read(&mut [0; 1024]).await);
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await);
        let noise = vec![0; 65_536];
        while stream.write_all(&noise).await.is_ok() {}
    });
    let (flood, quick) = (kit.port(flood.await, true), kit.port(guest::mirror().await, true));
    let mut standing = Vec::new();
    for _ in 0..20 {
        let mut stream = kit.connect().await;
        stream
            .write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", flood.name()).as_bytes())
            .await
            .unwrap();
        within(stream.read_exact(&mut vec![0; 100_000])).await.unwrap();
        standing.push(stream);
    }
    for _ in 0..5 {
        assert_eq!(kit.get(quick, "/", &[]).await.status(), 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_come_at_once() {
    let kit = Kit::new().await;
    let port = kit.port(guest::mirror().await, true);
    let head = format!("GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", port.name());
    let asked = (0..500).map(|_| kit.raw(&head));
    for answer in within(futures::future::join_all(asked)).await {
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

#[tokio::test]
async fn limits_are_said_clearly() {
    let kit = Kit::with("connections = 2\ntunnels_per_port = 1\nupstream_seconds = 3", false).await;
    let port = kit.port(
        guest::program(async |stream| {
            let _held = stream;
            std::future::pending::<()>().await;
        })
        .await,
        true,
    );
    let head = format!("CONNECT {}:1 HTTP/1.1\r\nHost: x\r\n\r\n", port.name());
    let mut first = kit.connect().await;
    first.write_all(head.as_bytes()).await.unwrap();
    assert!(crate::kit::read_head(&mut first).await.starts_with("HTTP/1.1 200 "));
    let mut second = kit.connect().await;
    second.write_all(head.as_bytes()).await.unwrap();
    let answer = crate::kit::read_head(&mut second).await;
    assert!(answer.contains("x-space-edge: too_many_connections"), "{answer}");
    let third = kit.raw("").await;
    assert!(third.contains("X-Space-Edge: too_many_connections"), "{third}");
}
