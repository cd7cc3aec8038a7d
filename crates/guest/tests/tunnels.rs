//! Tunnels to TCP ports of the guest's loopback.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking"
)]

mod kit;

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
};

use kit::{
    Agent,
    jobs::{self, JobClient},
};
use space_guest_proto::job::{FailureKind, GuestJobFrame};

/// A listener whose one connection is served by `serve`.
fn server(address: &str, serve: impl FnOnce(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind(address).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || serve(listener.accept().unwrap().0));
    port
}

fn collect(client: &mut JobClient) -> (Vec<u8>, Option<FailureKind>) {
    let mut content = Vec::new();
    loop {
        match client.receive() {
            GuestJobFrame::Data(data) => content.extend_from_slice(&data),
            GuestJobFrame::Done(done) => return (content, done.failure.map(|failure| failure.kind())),
            other => panic!("not of a tunnel: {other:?}"),
        }
    }
}

#[test]
fn bytes_go_both_ways_and_each_way_ends_by_itself() {
    let agent = Agent::start();
    let _control = agent.personalised();
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let port = server(address, |mut stream| {
            let mut content = Vec::new();
            // The end of the host's direction comes while the other one is still open.
            stream.read_to_end(&mut content).unwrap();
            stream.write_all(&content).unwrap();
        });
        let mut client = agent.job(jobs::tunnel(port));
        client.opened();
        let content: Vec<u8> = (0..50_000_u32).flat_map(u32::to_le_bytes).collect();
        client.data(&content);
        client.finish();
        assert_eq!(collect(&mut client), (content, None), "{address}");
        assert_eq!(client.next(), None);
    }
}

#[test]
fn the_host_may_go_on_after_the_guest_has_ended_its_direction() {
    let agent = Agent::start();
    let _control = agent.personalised();
    let (sender, receiver) = std::sync::mpsc::channel();
    let port = server("127.0.0.1:0", move |mut stream| {
        stream.write_all(b"greeting").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut content = Vec::new();
        stream.read_to_end(&mut content).unwrap();
        sender.send(content).unwrap();
    });
    let mut client = agent.job(jobs::tunnel(port));
    client.opened();
    assert_eq!(collect(&mut client), (b"greeting".to_vec(), None));
    client.data(b"afterwards");
    client.finish();
    assert_eq!(receiver.recv_timeout(kit::PATIENCE).unwrap(), b"afterwards");
    assert_eq!(client.next(), None);
}

#[test]
fn both_directions_move_at_once_although_neither_side_reads_first() {
    const BYTES: usize = 8 << 20;
    let agent = Agent::start();
    let _control = agent.personalised();
    let port = server("127.0.0.1:0", |mut stream| {
        let mut writing = stream.try_clone().unwrap();
        let writer = thread::spawn(move || {
            writing.write_all(&vec![2; BYTES]).unwrap();
            writing.shutdown(Shutdown::Write).unwrap();
        });
        let mut content = Vec::new();
        stream.read_to_end(&mut content).unwrap();
        assert_eq!(content.len(), BYTES);
        writer.join().unwrap();
    });
    let mut client = agent.job(jobs::tunnel(port));
    client.opened();
    let mut writing = client.stream.try_clone().unwrap();
    let writer = thread::spawn(move || {
        use space_guest_proto::job::HostJobFrame;
        let mut bytes = bytes::BytesMut::new();
        for _ in 0..BYTES / 32_768 {
            HostJobFrame::Data(vec![1; 32_768].into()).encode(&mut bytes).unwrap();
        }
        HostJobFrame::Finish.encode(&mut bytes).unwrap();
        writing.write_all(&bytes).unwrap();
    });
    let (content, failure) = collect(&mut client);
    assert_eq!((content.len(), failure), (BYTES, None));
    writer.join().unwrap();
}

#[test]
fn a_port_that_nobody_listens_on_is_refused() {
    let agent = Agent::start();
    let _control = agent.personalised();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    assert_eq!(agent.job(jobs::tunnel(port)).result(), Err(FailureKind::Refused));
    assert_eq!(agent.job(jobs::tunnel(0)).result(), Err(FailureKind::Invalid));
}

#[test]
fn a_host_that_leaves_closes_the_connection_in_the_guest() {
    let agent = Agent::start();
    let _control = agent.personalised();
    let (sender, receiver) = std::sync::mpsc::channel();
    let port = server("127.0.0.1:0", move |mut stream| {
        let mut content = Vec::new();
        sender.send(stream.read_to_end(&mut content).is_ok()).unwrap();
    });
    let mut client = agent.job(jobs::tunnel(port));
    client.opened();
    drop(client);
    receiver.recv_timeout(kit::PATIENCE).unwrap();
}
