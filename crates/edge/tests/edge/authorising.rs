//! Who gets in, and what those who don't are told.

use space_types::PortClaims;
use tokio::io::AsyncWriteExt as _;

use crate::kit::{FAR_END, Kit, guest, mark, read_head};

#[tokio::test]
async fn a_token_opens_a_port_as_header_as_cookie_and_by_link_and_goes_no_further() {
    let kit = Kit::new().await;
    let port = kit.port(guest::mirror().await, false);
    let token = kit.token(port);
    let cookie = format!("a=1; space_port={token}; b=2");
    for (name, value) in [("x-space-port-token", token.as_str()), ("cookie", cookie.as_str())] {
        let response = kit.get(port, "/x?y=1", &[(name, value)]).await;
        assert_eq!(response.status(), 200, "{name}");
        let seen = response.text().await.unwrap();
        assert!(seen.starts_with("GET /x?y=1\n"), "{seen}");
        assert!(!seen.contains("space_port"), "{seen}");
        assert_eq!(seen.contains("cookie: a=1; b=2\n"), name == "cookie", "{seen}");
    }
    let both =
        kit.get(port, &format!("/x?space_port_token={token}&y=1"), &[("x-space-port-token", &token)]).await;
    assert_eq!(both.status(), 303);
}

#[tokio::test]
async fn a_signed_link_becomes_a_cookie_and_stays_on_its_host() {
    let kit = Kit::new().await;
    let port = kit.port(guest::mirror().await, false);
    let token = kit.token(port);
    for (path, target) in [("/a?b=1&", "/a?b=1"), ("//evil.example/?", "/.//evil.example/")] {
        let response = kit.get(port, &format!("{path}space_port_token={token}"), &[]).await;
        assert_eq!(response.status(), 303);
        let field = |name: &str| response.headers()[name].to_str().unwrap();
        assert_eq!(field("location"), target);
        assert_eq!(field("referrer-policy"), "no-referrer");
        assert_eq!(field("cache-control"), "no-store");
        let cookie = field("set-cookie");
        assert!(cookie.starts_with(&format!("space_port={token}; Path=/; Max-Age=")), "{cookie}");
        assert!(cookie.ends_with("; HttpOnly; SameSite=Lax"), "{cookie}");
        let pair = cookie.split(';').next().unwrap().to_owned();
        assert_eq!(kit.get(port, "/", &[("cookie", &pair)]).await.status(), 200);
    }
}

#[tokio::test]
async fn over_tls_the_cookie_is_for_this_host_alone() {
    let kit = Kit::with("", true).await;
    let port = kit.port(guest::mirror().await, false);
    let root = reqwest::Certificate::from_pem(kit.authority.pem.as_bytes()).unwrap();
    let client = kit.client(port).tls_certs_only([root]).build().unwrap();
    let link = kit.url(port, &format!("/?space_port_token={}", kit.token(port)));
    let response = client.get(link).send().await.unwrap();
    assert_eq!(response.version(), http::Version::HTTP_2, "by ALPN");
    let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.starts_with("__Host-space_port=") && cookie.ends_with("; Secure"), "{cookie}");
    let pair = cookie.split(';').next().unwrap();
    let seen = client.get(kit.url(port, "/")).header("cookie", pair).send().await.unwrap();
    let seen = seen.text().await.unwrap();
    assert!(seen.contains("x-forwarded-proto: https\n") && !seen.contains("__Host-"), "{seen}");
}

#[tokio::test]
async fn the_page_of_another_sandbox_has_no_use_for_a_visitors_cookie() {
    let kit = Kit::new().await;
    let program = guest::mirror().await;
    let (port, other) = (kit.port(program, false), kit.port(program, true));
    let cookie = format!("space_port={}", kit.token(port));
    let of = |page: &str| format!("http://{page}:{}", kit.address.port());
    let (own, foreign) = (of(&port.name()), of(&other.name()));
    let websocket = [("connection", "upgrade"), ("upgrade", "websocket")];
    for (origin, status) in [(own.as_str(), 200), (foreign.as_str(), 401), ("null", 401)] {
        let headers = [("cookie", cookie.as_str()), ("origin", origin)];
        assert_eq!(kit.get(port, "/", &headers).await.status(), status, "{origin}");
        let headers = [headers.as_slice(), &websocket].concat();
        assert_eq!(kit.get(port, "/", &headers).await.status(), status, "{origin}");
        // What was put into a header was put there on purpose.
        let headers = [("x-space-port-token", cookie.split_once('=').unwrap().1), ("origin", origin)];
        assert_eq!(kit.get(port, "/", &headers).await.status(), 200, "{origin}");
    }
    let framed = [("cookie", cookie.as_str()), ("sec-fetch-site", "same-site"), ("sec-fetch-dest", "iframe")];
    assert_eq!(kit.get(port, "/", &framed).await.status(), 401);
}

/// A guest's server that logs what it is asked learns no token of its own by that.
#[tokio::test]
async fn the_address_of_a_link_is_told_to_no_guest() {
    let kit = Kit::new().await;
    let port = kit.port(guest::mirror().await, true);
    let link = kit.url(port, &format!("/?space_port_token={}", kit.token(port)));
    let seen = kit.get(port, "/", &[("referer", &link)]).await.text().await.unwrap();
    assert!(!seen.contains("space_port_token"), "{seen}");
    let seen = kit.get(port, "/", &[("referer", "http://elsewhere/")]).await.text().await.unwrap();
    assert!(seen.contains("referer: http://elsewhere/\n"), "{seen}");
}

#[tokio::test]
async fn every_wrong_token_is_answered_alike_and_like_no_sandbox() {
    let kit = Kit::new().await;
    let port = kit.port(guest::mirror().await, false);
    let other = kit.port(guest::mirror().await, false);
    kit.control.set(port.0, kit.route(false, 3));
    let sign = |epoch, expires_at| kit.sign(PortClaims { host: port.0, epoch, expires_at });
    assert_eq!(kit.get(port, "/", &[("x-space-port-token", &sign(3, FAR_END))]).await.status(), 200);
    let good = sign(3, FAR_END);
    let forged = format!("{}AAAA", &good[..good.len() - 4]);
    let mut bodies = Vec::new();
    for token in ["", "nonsense", &forged, &sign(2, FAR_END), &sign(3, 1), &kit.token(other)] {
        let response =
            kit.get(port, &format!("/?space_port_token={token}"), &[("x-space-port-token", token)]).await;
        assert_eq!((response.status().as_u16(), mark(&response)), (401, "port_unauthorized"), "{token}");
        bodies.push(response.text().await.unwrap());
    }
    let mut nowhere = port;
    nowhere.0.sandbox_id = space_types::SandboxId::new();
    let unknown = kit.get(nowhere, "/", &[]).await;
    assert_eq!(unknown.status(), 401);
    bodies.push(unknown.text().await.unwrap());
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
}

#[tokio::test]
async fn a_stopped_sandbox_is_named_so_to_those_who_may_know() {
    let kit = Kit::new().await;
    let port = kit.port(guest::mirror().await, false);
    let token = kit.token(port);
    let stopped = space_node_proto::edge::ResolvePortReply {
        state: "paused".to_owned(),
        route: None,
        ..kit.route(false, 1)
    };
    kit.control.set(port.0, stopped);
    assert_eq!(kit.get(port, "/", &[]).await.status(), 401);
    let response = kit.get(port, "/", &[("x-space-port-token", &token), ("accept", "text/html")]).await;
    assert_eq!((response.status().as_u16(), mark(&response)), (503, "port_sandbox_not_running"));
    assert_eq!(response.headers()["content-type"], "text/html; charset=utf-8");
    assert!(response.text().await.unwrap().contains("The sandbox is paused."));
}

#[tokio::test]
async fn connect_takes_a_bearer_token_and_refuses_without() {
    let kit = Kit::new().await;
    let port = kit.port(guest::mirror().await, false);
    let head = format!("CONNECT {}:1 HTTP/1.1\r\nHost: proxy\r\n", port.name());
    let refused = kit.raw(&format!("{head}Connection: close\r\n\r\n")).await;
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    let mut stream = kit.connect().await;
    let bearer = format!("{head}Proxy-Authorization: Bearer {}\r\n\r\n", kit.token(port));
    stream.write_all(bearer.as_bytes()).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_host_under_no_port_name_is_unknown() {
    let kit = Kit::new().await;
    for host in ["ports.example", "x.ports.example", "127.0.0.1"] {
        let answer = kit.raw(&format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await;
        assert!(
            answer.starts_with("HTTP/1.1 404 ") && answer.contains("x-space-edge: port_unknown"),
            "{answer}"
        );
    }
}
