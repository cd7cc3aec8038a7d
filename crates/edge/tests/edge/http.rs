//! Requests and answers on their way through.

use std::sync::atomic::Ordering;

use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use sha2::{Digest as _, Sha256};

use crate::kit::{Kit, guest, mark, within};

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| u8::try_from((index * index / 7 + index) % 251).unwrap()).collect()
}

#[tokio::test]
async fn large_bodies_go_both_ways_unchanged() {
    let kit = Kit::new().await;
    let port = kit.port(guest::echo().await, true);
    let body = noise(4 << 20);
    for builder in [kit.client(port).http1_only(), kit.client(port).http2_prior_knowledge()] {
        let client = builder.build().unwrap();
        let response = client.post(kit.url(port, "/")).body(body.clone()).send().await.unwrap();
        let back = response.bytes().await.unwrap();
        assert_eq!(Sha256::digest(&back), Sha256::digest(&body));
    }
}

#[tokio::test]
async fn each_piece_of_a_stream_arrives_as_it_is_sent() {
    let kit = Kit::new().await;
    let (program, pieces) = guest::pieces().await;
    let port = kit.port(program, true);
    let (mut response, ()) = within(async {
        tokio::join!(kit.get(port, "/", &[]), async { pieces.send("data: 1\n\n").await.unwrap() })
    })
    .await;
    for piece in ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"] {
        if piece != "data: 1\n\n" {
            pieces.send(piece).await.unwrap();
        }
        assert_eq!(within(response.chunk()).await.unwrap().unwrap(), piece);
    }
}

#[tokio::test]
async fn grpc_goes_as_http2_with_its_trailers() {
    let kit = Kit::new().await;
    let port = kit.port(guest::trailing().await, true);
    let stream = TokioIo::new(kit.connect().await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..2 {
        let request = http::Request::post(format!("http://{}/service/Method", port.name()))
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .body(Full::new(bytes::Bytes::from_static(b"message")))
            .unwrap();
        let response = within(sender.send_request(request)).await.unwrap();
        let collected = within(response.into_body().collect()).await.unwrap();
        assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(collected.to_bytes(), "message");
    }
    assert_eq!(kit.worker.opened.load(Ordering::Relaxed), 1, "the connection is shared");
}

#[tokio::test]
async fn a_connection_to_the_guest_is_used_again() {
    let kit = Kit::new().await;
    let port = kit.port(guest::mirror().await, true);
    let client = kit.client(port).build().unwrap();
    for _ in 0..5 {
        let seen = client.get(kit.url(port, "/")).send().await.unwrap().text().await.unwrap();
        assert!(seen.contains("x-forwarded-for: 127.0.0.1\n"), "{seen}");
    }
    assert!(kit.worker.opened.load(Ordering::Relaxed) < 5);
}

#[tokio::test]
async fn a_guest_plants_no_cookie_for_others_and_does_not_speak_for_the_edge() {
    let kit = Kit::new().await;
    let program = guest::http(async |_request| {
        let mut response = guest::text("x");
        for cookie in [
            "a=1",
            "b=1; Domain=ports.example",
            "space_port=x",
            "=__Host-space_port=x",
            "c=1; domain=.example",
        ] {
            response.headers_mut().append("set-cookie", cookie.parse().unwrap());
        }
        response.headers_mut().insert("x-space-edge", "port_unknown".parse().unwrap());
        response.headers_mut().insert("alt-svc", "h2=\"evil:443\"".parse().unwrap());
        response
    });
    let port = kit.port(program.await, true);
    let response = kit.get(port, "/", &[]).await;
    let cookies: Vec<_> = response.headers().get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["a=1"]);
    assert_eq!(mark(&response), "");
    assert!(!response.headers().contains_key("alt-svc"));
}

#[tokio::test]
async fn nothing_that_listens_is_a_bad_gateway() {
    let kit = Kit::new().await;
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let port = kit.port(free, true);
    let response = kit.get(port, "/", &[]).await;
    assert_eq!((response.status().as_u16(), mark(&response)), (502, "port_not_listening"));
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let problem: serde_json::Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!(problem["code"], "port_not_listening");
}

#[tokio::test]
async fn what_is_no_http_is_a_bad_response() {
    let kit = Kit::new().await;
    let port = kit.port(guest::program(async |stream| drop(stream)).await, true);
    let response = kit.get(port, "/", &[]).await;
    assert_eq!((response.status().as_u16(), mark(&response)), (502, "port_bad_response"));
}
