//! Tunnels through the whole worker: gRPC on one side, a guest that the test plays on the other.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can't go on fails")]

mod support;

use std::time::Duration;

use bytes::BytesMut;
use space_guest_proto::job::{Changes, Done, FailureKind, GuestJobFrame, HostJobFrame, Job, OpenTunnel};
use space_node_proto::{
    attach::{FollowRequest, attach_client::AttachClient},
    files::{Place, StatFileRequest, files_client::FilesClient},
    ports::{
        TunnelFinish, TunnelOpen, TunnelReply, TunnelRequest, ports_client::PortsClient, tunnel_reply,
        tunnel_request::Part,
    },
    worker::from_worker,
};
use support::{
    CONTROL, EDGE, Guest, PATIENCE, Sockets, TestNode,
    job_guest::{JobGuest, data, done, done_with, entries, failed, info, opened},
    soon,
};
use tokio::{io::AsyncWriteExt, sync::mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming, transport::Channel};

const SANDBOX: &str = "sbx_one";

struct Stage {
    node: TestNode,
    guest: Guest,
    ports: PortsClient<Channel>,
}

/// One tunnel as the client sees it.
struct Tunnel {
    requests: mpsc::Sender<TunnelRequest>,
    replies: Streaming<TunnelReply>,
}

impl Stage {
    async fn set() -> Self {
        Self::with_deadline(PATIENCE).await
    }

    async fn with_deadline(deadline: Duration) -> Self {
        let sockets = Sockets::default();
        let guest = Guest::start();
        sockets.insert(SANDBOX, guest.socket.clone());
        let mut node = TestNode::start_with(sockets.dial(), deadline).await;
        node.assign(SANDBOX, 1, None);
        let from_worker::Kind::Ready(_) = node.told().await else { panic!("not ready") };
        let ports = PortsClient::new(node.channel_of(EDGE).await);
        Self { node, guest, ports }
    }

    /// Asks for a tunnel, which the guest answers with `frames`.
    async fn open(&mut self, frames: &[GuestJobFrame]) -> (Result<Tunnel, Status>, JobGuest) {
        let asked =
            open(self.ports.clone(), TunnelOpen { sandbox_id: SANDBOX.to_owned(), generation: 1, port: 80 });
        let play = async {
            let mut job = JobGuest::accept(&mut self.guest).await;
            job.send(frames).await;
            job
        };
        soon(async { tokio::join!(asked, play) }).await
    }

    async fn opened(&mut self) -> (Tunnel, JobGuest) {
        let (tunnel, job) = self.open(&[opened(None)]).await;
        (tunnel.unwrap(), job)
    }
}

async fn open(mut ports: PortsClient<Channel>, open: TunnelOpen) -> Result<Tunnel, Status> {
    let (requests, receiver) = mpsc::channel(1);
    requests.send(TunnelRequest { part: Some(Part::Open(open)) }).await.unwrap();
    let mut replies = ports.open_tunnel(ReceiverStream::new(receiver)).await?.into_inner();
    let first = replies.message().await?.and_then(|reply| reply.part);
    assert!(matches!(first, Some(tunnel_reply::Part::Opened(_))), "{first:?}");
    Ok(Tunnel { requests, replies })
}

impl Tunnel {
    async fn send(&self, data: &[u8]) {
        soon(self.requests.send(TunnelRequest { part: Some(Part::Data(data.to_vec())) })).await.unwrap();
    }

    async fn finish(&self) {
        let finish = TunnelRequest { part: Some(Part::Finish(TunnelFinish {})) };
        soon(self.requests.send(finish)).await.unwrap();
    }

    /// The next data; none at the guest's end.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Status> {
        match soon(self.replies.message()).await?.and_then(|reply| reply.part) {
            Some(tunnel_reply::Part::Data(data)) => Ok(Some(data)),
            Some(tunnel_reply::Part::Opened(_)) => panic!("opened twice"),
            None => Ok(None),
        }
    }
}

async fn expect_data(job: &mut JobGuest, expected: &[u8]) {
    let mut got = Vec::new();
    while got.len() < expected.len() {
        match job.receive().await {
            Some(HostJobFrame::Data(data)) => got.extend(data),
            other => panic!("{other:?}"),
        }
    }
    assert!(got == expected);
}

#[tokio::test]
async fn bytes_go_both_ways_at_once() {
    let mut stage = Stage::set().await;
    let (mut tunnel, mut job) = stage.opened().await;
    assert_eq!(job.job, Job::Tunnel(OpenTunnel { port: 80 }));
    job.send(&[data(b"banner")]).await;
    assert_eq!(tunnel.next().await.unwrap().unwrap(), b"banner");
    let large = vec![7; 64 * 1024];
    tunnel.send(&large).await;
    expect_data(&mut job, &large).await;
    job.send(&[data(b"reply")]).await;
    assert_eq!(tunnel.next().await.unwrap().unwrap(), b"reply");
}

#[tokio::test]
async fn the_client_ends_its_direction_and_still_hears_the_guest() {
    let mut stage = Stage::set().await;
    let (mut tunnel, mut job) = stage.opened().await;
    tunnel.send(b"question").await;
    tunnel.finish().await;
    assert_eq!(job.written().await.unwrap(), b"question");
    job.send(&[data(b"answer"), done(Done::default())]).await;
    assert_eq!(tunnel.next().await.unwrap().unwrap(), b"answer");
    assert_eq!(tunnel.next().await.unwrap(), None);
    job.is_left().await;
}

#[tokio::test]
async fn the_guest_ends_its_direction_and_still_hears_the_client() {
    let mut stage = Stage::set().await;
    let (mut tunnel, mut job) = stage.opened().await;
    job.send(&[data(b"all I say"), done(Done::default())]).await;
    assert_eq!(tunnel.next().await.unwrap().unwrap(), b"all I say");
    assert_eq!(tunnel.next().await.unwrap(), None);
    for _ in 0..8 {
        tunnel.send(b"more").await;
        expect_data(&mut job, b"more").await;
    }
    tunnel.finish().await;
    assert_eq!(job.written().await.unwrap(), b"");
    job.is_left().await;
}

#[tokio::test]
async fn a_client_that_leaves_closes_the_guests_connection() {
    let mut stage = Stage::set().await;
    let (tunnel, mut job) = stage.opened().await;
    drop(tunnel);
    job.is_left().await;
    // Also while it waits for the rest of what the guest says.
    let (tunnel, mut job) = stage.opened().await;
    tunnel.finish().await;
    assert_eq!(job.written().await.unwrap(), b"");
    drop(tunnel);
    job.is_left().await;
    // And while the guest has nothing more to say.
    let (mut tunnel, mut job) = stage.opened().await;
    job.send(&[done(Done::default())]).await;
    assert_eq!(tunnel.next().await.unwrap(), None);
    drop(tunnel);
    job.is_left().await;
}

/// Writes to the guest's end until it stands still for a moment; the bytes that went in.
async fn fill(job: &mut JobGuest) -> usize {
    let mut frame = BytesMut::new();
    data(&vec![1; 60_000]).encode(&mut frame).unwrap();
    let mut sent = 0;
    while let Ok(written) =
        tokio::time::timeout(Duration::from_millis(300), job.stream.write(&frame[sent % frame.len()..])).await
    {
        sent += written.unwrap();
        assert!(sent < 64 << 20, "nothing stops it");
    }
    sent
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_its_guest_and_nobody_else() {
    let mut stage = Stage::set().await;
    let (mut slow, mut slow_job) = stage.opened().await;
    let sent = fill(&mut slow_job).await;
    let (mut other, mut job) = stage.opened().await;
    job.send(&[data(b"here")]).await;
    assert_eq!(other.next().await.unwrap().unwrap(), b"here");
    // Whole frames that went in come out.
    let mut read = 0;
    while read < sent / 60_005 * 60_000 - 60_000 {
        read += slow.next().await.unwrap().unwrap().len();
    }
}

#[tokio::test]
async fn a_guest_that_does_not_read_stops_its_client_and_nobody_else() {
    let mut stage = Stage::set().await;
    let (stalled, _job) = stage.opened().await;
    let piece = TunnelRequest { part: Some(Part::Data(vec![1; 64 * 1024])) };
    let mut sent = 0;
    while tokio::time::timeout(Duration::from_millis(300), stalled.requests.send(piece.clone())).await.is_ok()
    {
        sent += 1;
        assert!(sent < 1024, "nothing stops it");
    }
    let (other, mut job) = stage.opened().await;
    other.send(b"here").await;
    expect_data(&mut job, b"here").await;
}

#[tokio::test]
async fn what_the_guest_refuses_has_a_code() {
    let mut stage = Stage::set().await;
    for (kind, code) in [
        (FailureKind::Refused, Code::Aborted),
        (FailureKind::Exhausted, Code::ResourceExhausted),
        (FailureKind::Unsupported, Code::Unimplemented),
        (FailureKind::NotPersonalised, Code::Unavailable),
    ] {
        let (tunnel, mut job) = stage.open(&[failed(kind)]).await;
        assert_eq!(tunnel.err().unwrap().code(), code, "{kind:?}");
        job.is_left().await;
    }
    let (mut tunnel, mut job) = stage.opened().await;
    job.send(&[failed(FailureKind::Unspecified)]).await;
    assert_eq!(tunnel.next().await.unwrap_err().code(), Code::Aborted);
    let (mut tunnel, job) = stage.opened().await;
    drop(job);
    assert_eq!(tunnel.next().await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn a_guest_that_lies_ends_that_tunnel_alone() {
    let mut stage = Stage::set().await;
    let (mut honest, mut honest_job) = stage.opened().await;
    for lie in [data(b"early"), entries(&["/a"]), done(Done::default())] {
        let (tunnel, mut job) = stage.open(&[lie]).await;
        assert_eq!(tunnel.err().unwrap().code(), Code::Unavailable);
        job.is_left().await;
    }
    let lies = [entries(&["/a"]), opened(None), GuestJobFrame::Changes(Changes::default())];
    for lie in lies {
        let (mut tunnel, mut job) = stage.opened().await;
        job.send(&[lie]).await;
        assert_eq!(tunnel.next().await.unwrap_err().code(), Code::Unavailable);
        job.is_left().await;
    }
    let (mut tunnel, mut job) = stage.opened().await;
    job.stream.write_all(&[0xff; 100]).await.unwrap();
    assert_eq!(tunnel.next().await.unwrap_err().code(), Code::Unavailable);
    let (mut tunnel, mut job_behind) = stage.opened().await;
    job_behind.send(&[done(Done::default()), data(b"behind")]).await;
    assert_eq!(tunnel.next().await.unwrap_err().code(), Code::Unavailable);
    job.is_left().await;
    job_behind.is_left().await;
    honest_job.send(&[data(b"still here")]).await;
    assert_eq!(honest.next().await.unwrap().unwrap(), b"still here");
}

#[tokio::test]
async fn a_guest_that_does_not_answer_is_given_up() {
    let mut stage = Stage::with_deadline(Duration::from_millis(200)).await;
    let (tunnel, mut job) = stage.open(&[]).await;
    assert_eq!(tunnel.err().unwrap().code(), Code::Unavailable);
    job.is_left().await;
}

#[tokio::test]
async fn a_guest_that_has_said_all_and_takes_nothing_is_given_up() {
    let mut stage = Stage::with_deadline(Duration::from_millis(300)).await;
    let (mut tunnel, mut job) = stage.opened().await;
    job.send(&[done(Done::default())]).await;
    assert_eq!(tunnel.next().await.unwrap(), None);
    let data = || TunnelRequest { part: Some(Part::Data(vec![0; 60_000])) };
    soon(async { while tunnel.requests.send(data()).await.is_ok() {} }).await;
}

#[tokio::test]
async fn a_client_that_opens_a_call_and_says_nothing_is_given_up() {
    let mut stage = Stage::with_deadline(Duration::from_millis(200)).await;
    let (_silent, receiver) = mpsc::channel(1);
    let refused = soon(stage.ports.open_tunnel(ReceiverStream::new(receiver))).await.unwrap_err();
    assert_eq!(refused.code(), Code::DeadlineExceeded, "{refused}");
    let mut files = stage.node.files().await;
    let (_silent, receiver) = mpsc::channel(1);
    let refused = soon(files.write_file(ReceiverStream::new(receiver))).await.unwrap_err();
    assert_eq!(refused.code(), Code::DeadlineExceeded, "{refused}");
}

#[tokio::test]
async fn requests_that_can_not_be_are_refused() {
    let mut stage = Stage::set().await;
    let asked = |id: &str, generation, port| TunnelOpen { sandbox_id: id.to_owned(), generation, port };
    for (asked, code) in [
        (asked(SANDBOX, 1, 0), Code::InvalidArgument),
        (asked(SANDBOX, 1, 65_536), Code::InvalidArgument),
        (asked("sbx_two", 1, 80), Code::NotFound),
        (asked(SANDBOX, 2, 80), Code::FailedPrecondition),
    ] {
        assert_eq!(soon(open(stage.ports.clone(), asked)).await.err().unwrap().code(), code);
    }
    let (mut tunnel, mut job) = stage.opened().await;
    tunnel.send(&vec![0; 64 * 1024 + 1]).await;
    assert_eq!(tunnel.next().await.unwrap_err().code(), Code::InvalidArgument);
    job.is_left().await;
    let (mut tunnel, mut job) = stage.opened().await;
    let again = TunnelRequest { part: Some(Part::Open(asked(SANDBOX, 1, 80))) };
    tunnel.requests.send(again).await.unwrap();
    assert_eq!(tunnel.next().await.unwrap_err().code(), Code::InvalidArgument);
    job.is_left().await;
}

#[tokio::test]
async fn a_sandbox_full_of_tunnels_still_takes_file_operations() {
    let mut stage = Stage::set().await;
    let mut tunnels = Vec::new();
    // A few connections, as several edges have: one takes a limited number of calls.
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(PortsClient::new(stage.node.channel_of(EDGE).await));
    }
    for number in 0..space_sandbox::limits::TUNNELS {
        stage.ports = clients[number % clients.len()].clone();
        tunnels.push(stage.opened().await);
    }
    let asked = TunnelOpen { sandbox_id: SANDBOX.to_owned(), generation: 1, port: 80 };
    let refused = soon(open(stage.ports.clone(), asked)).await.err().unwrap();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let mut files = stage.node.files().await;
    let stat = StatFileRequest { place: place(), follow: true };
    let play = async {
        JobGuest::accept(&mut stage.guest).await.send(&[done_with(info("/f"))]).await;
    };
    soon(async { tokio::join!(files.stat_file(stat), play) }).await.0.unwrap();
    // One that ends makes room.
    let (tunnel, mut job) = tunnels.pop().unwrap();
    drop(tunnel);
    job.is_left().await;
    stage.opened().await;
}

#[tokio::test]
async fn an_edge_may_open_tunnels_and_follow_commands_and_no_more() {
    let mut stage = Stage::set().await;
    let mut files = FilesClient::new(stage.node.channel_of(EDGE).await);
    let stat = StatFileRequest { place: place(), follow: true };
    assert_eq!(soon(files.stat_file(stat)).await.unwrap_err().code(), Code::PermissionDenied);
    let mut commands = stage.node.connect(&[EDGE]).await.unwrap();
    let list =
        space_node_proto::commands::ListCommandsRequest { sandbox_id: SANDBOX.to_owned(), generation: 1 };
    assert_eq!(soon(commands.list_commands(list)).await.unwrap_err().code(), Code::PermissionDenied);
    stage.ports = PortsClient::new(stage.node.channel_of(CONTROL).await);
    stage.opened().await;
    // That it is asked at all shows in the generation, which is another one.
    let mut attach = AttachClient::new(stage.node.channel_of(EDGE).await);
    let follow = FollowRequest { sandbox_id: SANDBOX.to_owned(), generation: 9, ..FollowRequest::default() };
    assert_eq!(soon(attach.follow(follow)).await.unwrap_err().code(), Code::FailedPrecondition);
}

#[allow(clippy::unnecessary_wraps, reason = "as the request has it")]
fn place() -> Option<Place> {
    Some(Place { sandbox_id: SANDBOX.to_owned(), generation: 1, user: String::new(), path: b"/f".to_vec() })
}
