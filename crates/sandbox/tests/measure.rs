//! How long an `exec` of `/bin/true` takes by way of the worker, beside the same question to the agent directly. It
//! prints; it judges nothing. `cargo nextest run -p space-sandbox --run-ignored only --no-capture measure`

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can't go on fails")]

mod support;

use std::time::{Duration, Instant};

use bytes::BytesMut;
use space_guest_proto::{
    GuestFrame, HostFrame, PROTOCOL_MAX, PROTOCOL_MIN,
    message::{AttachCommandRequest as GuestAttach, CommandSpec as GuestSpec, Hello, Role},
};
use space_node_proto::{
    commands::{AttachCommandRequest, CommandSpec, GetCommandRequest},
    worker::from_worker,
};
use support::{CONTROL, Guest, Sockets, TestNode, soon};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

const ROUNDS: u32 = 300;

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |percent: usize| times[times.len() * percent / 100];
    println!("{what}: p50 {:?}, p90 {:?}", at(50), at(90));
}

#[tokio::test]
#[ignore = "prints times and asserts nothing"]
async fn round_trips_are_measured() {
    let sockets = Sockets::default();
    let guest = Guest::start();
    sockets.insert("sbx_one", guest.socket.clone());
    let mut node = TestNode::start(sockets.dial()).await;
    node.assign("sbx_one", 1, None);
    assert!(matches!(node.told().await, from_worker::Kind::Ready(_)));
    let mut client = node.connect(&[CONTROL]).await.unwrap();

    let mut execs = Vec::new();
    let mut gets = Vec::new();
    for round in 0..ROUNDS {
        let command_id = format!("cmd_{round}");
        let spec = CommandSpec {
            argv: vec!["/bin/true".to_owned()],
            user: "root".to_owned(),
            cwd: "/".to_owned(),
            ..CommandSpec::default()
        };
        let begun = Instant::now();
        let request = AttachCommandRequest {
            sandbox_id: "sbx_one".to_owned(),
            generation: 1,
            command_id: command_id.clone(),
            after_sequence: 0,
            create: Some(spec),
        };
        let mut stream = soon(client.attach_command(request)).await.unwrap().into_inner();
        while soon(stream.message()).await.unwrap().is_some() {}
        execs.push(begun.elapsed());
        let begun = Instant::now();
        let get = GetCommandRequest { sandbox_id: "sbx_one".to_owned(), generation: 1, command_id };
        soon(client.get_command(get)).await.unwrap();
        gets.push(begun.elapsed());
    }
    let direct = directly(&guest).await;
    report("exec by way of the worker", execs);
    report("exec with the agent directly", direct);
    report("get by way of the worker", gets);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|line| line.starts_with("VmRSS")).unwrap());
}

async fn directly(guest: &Guest) -> Vec<Duration> {
    let mut stream = UnixStream::connect(&guest.socket).await.unwrap();
    stream.write_all(b"CONNECT 1024\n").await.unwrap();
    let mut line = [0; 14];
    stream.read_exact(&mut line).await.unwrap();
    let hello = Hello {
        protocol_min: PROTOCOL_MIN,
        protocol_max: PROTOCOL_MAX,
        role: Role::Host.into(),
        ..Hello::default()
    };
    let mut outgoing = BytesMut::new();
    HostFrame::Hello(hello).encode(&mut outgoing).unwrap();
    let mut incoming = BytesMut::new();
    let mut times = Vec::new();
    for id in 1..=ROUNDS {
        let begun = Instant::now();
        let spec = GuestSpec {
            argv: vec!["/bin/true".to_owned()],
            user: "root".to_owned(),
            cwd: "/".to_owned(),
            ..GuestSpec::default()
        };
        let request = GuestAttach {
            command_id: format!("direct_{id}"),
            after_sequence: 0,
            credit: 1 << 20,
            create: Some(spec),
        };
        HostFrame::request(id, space_guest_proto::Request::AttachCommand(request))
            .encode(&mut outgoing)
            .unwrap();
        stream.write_all_buf(&mut outgoing).await.unwrap();
        loop {
            match GuestFrame::decode(&mut incoming).unwrap() {
                Some(GuestFrame::End { .. }) => break,
                Some(_) => {}
                None => assert!(stream.read_buf(&mut incoming).await.unwrap() > 0),
            }
        }
        times.push(begun.elapsed());
    }
    times
}
