//! Clients that mean no good, byte by byte: they send slowly, too much, or what is no request; they don't read; they
//! leave half. Others are served all the while.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::kit::{Client, PATIENCE, World};

/// Deadlines that a test can wait for.
async fn impatient() -> World {
    let extra = "[http]\nlisten = '127.0.0.1:0'\nheader_timeout = '300ms'\nrequest_timeout = '600ms'\n";
    World::with(space_testkit::postgres::Database::create().url(), extra).await
}

async fn connect(world: &World) -> TcpStream {
    TcpStream::connect(world.server.http_address()).await.unwrap()
}

/// What comes until the server closes; it has to.
async fn closed(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    // A connection that is closed with something unread is reset.
    timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("it stays open").ok();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends these bytes and no more; what comes back until the server closes.
async fn answer(world: &World, bytes: &[u8]) -> String {
    let mut stream = connect(world).await;
    // It may be refused before it is whole.
    stream.write_all(bytes).await.ok();
    closed(stream).await
}

/// One request of the admin's, closed behind the answer.
fn request(world: &World, method: &str, target: &str, rest: &str) -> String {
    let key = &world.admin.key;
    format!(
        "{method} {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n{rest}"
    )
}

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or("none")
}

#[tokio::test]
async fn headers_that_never_end_close_the_connection_also_when_they_dribble() {
    let world = impatient().await;
    assert_eq!(status(&answer(&world, b"GET /v1/sand").await), "none");
    let mut stream = connect(&world).await;
    stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let dribble = async {
        // Each byte is news, and none is a reason to wait longer.
        while stream.write_all(b"X-Slow: 1\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, dribble).await.expect("it is heard for ever");
}

#[tokio::test]
async fn a_body_that_dribbles_has_a_deadline_wherever_it_goes() {
    let world = impatient().await;
    for path in ["/v1/sandboxes", "/v1/projects", "/v1/templates", "/v1/keys", "/v1/join-tokens"] {
        let rest = "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
        let said = answer(&world, request(&world, "POST", path, rest).as_bytes()).await;
        assert_eq!(status(&said), "504", "{path}: {said}");
    }
    assert_eq!(world.count("sandboxes").await, 0);
}

#[tokio::test]
async fn headers_have_a_limit() {
    let world = impatient().await;
    let long = format!("X-Long: {}\r\n\r\n", "x".repeat(1 << 20));
    let said = answer(&world, request(&world, "GET", "/v1/sandboxes", &long).as_bytes()).await;
    assert!(["431", "none"].contains(&status(&said)), "{said}");
    let many = (0..500).map(|number| format!("X-{number}: 1\r\n")).collect::<Vec<_>>().concat();
    let said =
        answer(&world, request(&world, "GET", "/v1/sandboxes", &format!("{many}\r\n")).as_bytes()).await;
    assert_eq!(status(&said), "431", "{said}");
    let long = request(&world, "GET", &format!("/{}", "x".repeat(1 << 20)), "\r\n");
    let said = answer(&world, long.as_bytes()).await;
    assert!(["414", "431", "none"].contains(&status(&said)), "{said}");
    world.admin.get("/v1/sandboxes").await.expect(200);
}

#[tokio::test]
async fn tricks_with_paths_lead_nowhere() {
    let world = impatient().await;
    let sandbox = "/v1/sandboxes/";
    for (target, due) in [
        ("/v1/%2e%2e/internal", "404"),
        ("/v1/../metrics", "404"),
        ("//v1/sandboxes", "404"),
        ("/v1//sandboxes", "404"),
        ("/v1/sandboxes/%2e%2e", "404"),
        ("/v1/sandboxes/..%2f..%2fetc", "404"),
        ("/v1/sandboxes/%00", "404"),
        ("/v1/sandboxes/%ff%fe", "400"),
        ("/v1/sandboxes/%zz", "404"),
        ("/V1/sandboxes", "404"),
        ("/v1/sandboxes/\u{e9}", "400"),
        ("/v1/sandboxes?limit=%ff", "400"),
        ("/v1/sandboxes?limit=%00", "400"),
        ("/v1/templates/..%2f..%2fsecret", "404"),
    ] {
        let said = answer(&world, request(&world, "GET", target, "\r\n").as_bytes()).await;
        let found = status(&said);
        // Not one of them is an answer, or a fault of ours. Which refusal it is depends on who sees it first.
        assert!(found.starts_with('4'), "{target}: {said}");
        assert!(found == due || ["400", "404", "422"].contains(&found), "{target} is {found}, not {due}");
    }
    assert_eq!(status(&answer(&world, format!("GET {sandbox}\0 HTTP/1.1\r\n\r\n").as_bytes()).await), "400");
    assert_eq!(
        status(&answer(&world, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await),
        "400",
        "a TLS hello"
    );
    assert_eq!(status(&answer(&world, b"\xff\xff\xff\xff\r\n\r\n").await), "400");
}

#[tokio::test]
async fn a_body_that_is_not_utf8_or_too_deep_is_refused() {
    let world = impatient().await;
    let post = |body: Vec<u8>| {
        let request = world.admin.request(Method::POST, "/v1/sandboxes");
        Client::send(request.header("Content-Type", "application/json").body(body))
    };
    post(b"{\"template\": \"\xff\xfe\"}".to_vec()).await.problem(400, "invalid_request");
    post(b"{\"template\": \"\\ud800\"}".to_vec()).await.problem(400, "invalid_request");
    for deep in [b"[".repeat(100_000), br#"{"env":"#.repeat(10_000)] {
        let answer = post(deep).await;
        assert!([400, 422].contains(&answer.status), "{answer:?}");
    }
    assert_eq!(world.count("sandboxes").await, 0);
}

#[tokio::test]
async fn a_compressed_body_is_refused_before_it_is_read() {
    let world = World::start().await;
    let _node = world.node().await;
    let sandbox = world.running().await;
    let file = format!("/v1/sandboxes/{sandbox}/files/content?path=/tmp/x");
    for (method, path) in [(Method::POST, "/v1/sandboxes"), (Method::PUT, &*file)] {
        for encoding in ["gzip", "br", "identity, gzip", "odd"] {
            let request = world.admin.request(method.clone(), path);
            let request =
                request.header("Content-Type", "application/json").header("Content-Encoding", encoding);
            Client::send(request.body("{}")).await.problem(415, "unsupported_media_type");
        }
    }
    let plain = world.admin.request(Method::POST, "/v1/sandboxes").header("Content-Encoding", "identity");
    assert!(Client::send(plain.json(&json!({}))).await.status < 300);
}

/// Whoever closes their half has left, as far as HTTP/1 can tell: nobody would notice the others else, while they wait.
#[tokio::test]
async fn a_client_that_half_closes_has_left_and_half_a_body_does_nothing() {
    let world = impatient().await;
    for rest in ["\r\n", "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{"] {
        let mut stream = connect(&world).await;
        stream.write_all(request(&world, "POST", "/v1/sandboxes", rest).as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let said = closed(stream).await;
        assert!(!status(&said).starts_with('5'), "{said}");
    }
    let half = world.admin.get("/v1/sandboxes").await.expect(200);
    assert!(half["items"].as_array().unwrap().len() <= 1, "half a body was taken for a whole one: {half}");
}

#[tokio::test]
async fn nobody_waits_for_idle_connections_or_readers_that_do_not_read() {
    let world = World::start().await;
    let node = world.node().await;
    let sandbox = world.running().await;
    let mut idle = Vec::new();
    for _ in 0..500 {
        idle.push(connect(&world).await);
    }
    // Output without end, a file without end and the log of events, none of it ever taken.
    for target in [
        "/v1/events".to_owned(),
        format!("/v1/sandboxes/{sandbox}/files/content?path=/sim/endless"),
        format!("/v1/sandboxes/{sandbox}/events"),
    ] {
        let mut stream = connect(&world).await;
        stream.write_all(request(&world, "GET", &target, "\r\n").as_bytes()).await.unwrap();
        stream.readable().await.unwrap();
        idle.push(stream);
    }
    let begun = std::time::Instant::now();
    world.admin.get("/v1/sandboxes").await.expect(200);
    world.admin.post("/v1/sandboxes?wait=30", &json!({})).await.expect(201);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(node.file_bytes() < 16 << 20, "{} bytes for a reader that takes none", node.file_bytes());
}
