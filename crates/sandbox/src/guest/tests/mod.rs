//! Owner tasks against scripted guests. The test plays noded and the guest; the owner is the real one.

#![allow(
    clippy::cast_possible_truncation,
    clippy::large_stack_arrays,
    clippy::wildcard_enum_match_arm,
    reason = "a frame that a script did not expect fails the test; numbers are small"
)]

mod agent;
mod boot;
mod lies;
mod resume;
mod spooling;
mod terminal;

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    time::Duration,
};

use bytes::BytesMut;
use space_guest_proto::{
    GuestFrame, HostFrame, PROTOCOL_MAX, PROTOCOL_MIN, Reply, Request,
    message::{
        AttachCommandReply, Command, CommandState, GetCommandReply, GetCommandRequest, Hello,
        PersonaliseReply, Role,
    },
};
use space_node_proto::worker::{UnreadyReason, from_worker};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::mpsc,
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Assignment, GuestClient, Owner, Setup};
use crate::{
    metrics::Metrics,
    node::{NodeHandle, NodeRequest},
    spool::tests::SMALL,
};

const GENERATION: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(20);

/// What is waited for comes, or the test fails.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("nothing happened in time")
}

/// One sandbox: its owner runs, noded and Firecracker are played.
struct Bench {
    client: GuestClient,
    metrics: Arc<Metrics>,
    told: mpsc::UnboundedReceiver<from_worker::Kind>,
    connections: mpsc::UnboundedReceiver<UnixStream>,
    /// Whether noded connects at all.
    reachable: Arc<AtomicBool>,
    spool: Arc<tempfile::TempDir>,
    _stop: DropGuard,
}

impl Bench {
    fn new(fresh: bool, boot_deadline: Duration) -> Self {
        Self::on(Arc::new(tempfile::tempdir().unwrap()), fresh, boot_deadline)
    }

    /// With the spools in that directory.
    fn on(spool: Arc<tempfile::TempDir>, fresh: bool, boot_deadline: Duration) -> Self {
        let (requests, asked) = mpsc::channel(8);
        let (tell, told) = mpsc::unbounded_channel();
        let (connect, connections) = mpsc::unbounded_channel();
        let reachable = Arc::new(AtomicBool::new(true));
        tokio::spawn(play_node(asked, tell, connect, Arc::clone(&reachable)));
        let metrics = Arc::new(Metrics::default());
        let env = BTreeMap::from([("LANG".to_owned(), "C.UTF-8".to_owned())]);
        let (owner, client) = Owner::new(Setup {
            assignment: Assignment { hostname: "box".to_owned(), env, fresh },
            node: NodeHandle { requests, sandbox_id: "sbx_test".to_owned(), generation: GENERATION },
            metrics: Arc::clone(&metrics),
            boot_deadline,
            request_deadline: PATIENCE,
            spool: Some(std::fs::File::open(spool.path()).unwrap().into()),
            spool_limits: SMALL,
        });
        let stop = CancellationToken::new();
        tokio::spawn(owner.run(stop.clone()));
        Self { client, metrics, told, connections, reachable, spool, _stop: stop.drop_guard() }
    }

    /// A guest that has been greeted and personalised.
    async fn booted() -> (Self, FakeGuest) {
        let mut bench = Self::new(true, PATIENCE);
        let mut guest = bench.accept().await;
        guest.greet().await;
        assert!(matches!(bench.told().await, from_worker::Kind::Ready(_)));
        (bench, guest)
    }

    /// The next connection that the owner asks for, untouched.
    async fn raw_connection(&mut self) -> UnixStream {
        soon(self.connections.recv()).await.unwrap()
    }

    /// The next connection, handshake done.
    async fn accept(&mut self) -> FakeGuest {
        let mut guest = FakeGuest { stream: self.raw_connection().await, incoming: BytesMut::new() };
        let mut line = [0; 13];
        soon(guest.stream.read_exact(&mut line)).await.unwrap();
        assert_eq!(&line, b"CONNECT 1024\n");
        guest.write(b"OK 1073741824\n").await;
        guest
    }

    async fn told(&mut self) -> from_worker::Kind {
        soon(self.told.recv()).await.unwrap()
    }

    async fn unready(&mut self) -> UnreadyReason {
        loop {
            if let from_worker::Kind::Unready(unready) = self.told().await {
                assert_eq!(unready.generation, GENERATION);
                return unready.reason();
            }
        }
    }

    /// Asks for a command, and answers for the guest.
    async fn answers(&self, guest: &mut FakeGuest) -> bool {
        let ask = self.client.call(GetCommandRequest { command_id: "c".to_owned() });
        let answer = async {
            let (id, _request) = guest.request().await;
            guest.send(&GuestFrame::reply(id, GetCommandReply { command: Some(running("c")) })).await;
        };
        let (reply, ()) = soon(async { tokio::join!(ask, answer) }).await;
        matches!(reply, Ok(Reply::GetCommand(_)))
    }
}

async fn play_node(
    mut asked: mpsc::Receiver<NodeRequest>,
    tell: mpsc::UnboundedSender<from_worker::Kind>,
    connect: mpsc::UnboundedSender<UnixStream>,
    reachable: Arc<AtomicBool>,
) {
    while let Some(request) = asked.recv().await {
        match request {
            NodeRequest::Tell(kind) => drop(tell.send(kind)),
            NodeRequest::Connect { answer, .. } if reachable.load(Ordering::Relaxed) => {
                let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
                theirs.set_nonblocking(true).unwrap();
                drop(connect.send(UnixStream::from_std(theirs).unwrap()));
                drop(answer.send(Ok(OwnedFd::from(ours))));
            }
            NodeRequest::Connect { answer, .. } => drop(answer.send(Err("no socket".to_owned()))),
        }
    }
}

/// The guest's end of one connection.
struct FakeGuest {
    stream: UnixStream,
    incoming: BytesMut,
}

impl FakeGuest {
    async fn receive(&mut self) -> Option<HostFrame> {
        loop {
            if let Some(frame) = HostFrame::decode(&mut self.incoming).unwrap() {
                return Some(frame);
            }
            match self.stream.read_buf(&mut self.incoming).await {
                Ok(0) | Err(_) => return None,
                Ok(_more) => {}
            }
        }
    }

    async fn request(&mut self) -> (u32, Request) {
        loop {
            match soon(self.receive()).await.expect("the owner closed the connection") {
                HostFrame::Request { id, request } => return (id, request),
                HostFrame::Credit { .. } | HostFrame::NoticeTaken | HostFrame::Detach { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Writes as far as the owner reads: it closes on a lie, and the rest of the lie has nobody to hear it.
    async fn write(&mut self, bytes: &[u8]) {
        drop(soon(self.stream.write_all(bytes)).await);
    }

    async fn send(&mut self, frame: &GuestFrame) {
        self.write(&encoded(frame)).await;
    }

    /// Hello for hello, and a reply to being personalised.
    async fn greet(&mut self) {
        self.greet_as(hello()).await;
    }

    async fn greet_as(&mut self, hello: Hello) {
        let Some(HostFrame::Hello(_)) = soon(self.receive()).await else { panic!("no hello") };
        self.send(&GuestFrame::Hello(hello)).await;
        let (id, Request::Personalise(settings)) = self.request().await else { panic!("not personalised") };
        assert_eq!((settings.entropy.len(), settings.hostname.as_str()), (64, "box"));
        self.send(&GuestFrame::reply(id, PersonaliseReply::default())).await;
    }

    /// Hello for hello on a later connection.
    async fn greet_again(&mut self) {
        let Some(HostFrame::Hello(_)) = soon(self.receive()).await else { panic!("no hello") };
        self.send(&GuestFrame::Hello(Hello { generation: GENERATION, ..hello() })).await;
    }

    async fn accept_attach(&mut self) -> u32 {
        let (id, Request::AttachCommand(_)) = self.request().await else { panic!("no attach") };
        self.send(&GuestFrame::reply(id, AttachCommandReply { command: Some(running("c")) })).await;
        id
    }
}

fn encoded(frame: &GuestFrame) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    frame.encode(&mut bytes).unwrap();
    bytes.to_vec()
}

fn hello() -> Hello {
    Hello {
        protocol_min: PROTOCOL_MIN,
        protocol_max: PROTOCOL_MAX,
        role: Role::Guest.into(),
        version: "1.2.3".to_owned(),
        ..Hello::default()
    }
}

fn running(id: &str) -> Command {
    Command { command_id: id.to_owned(), state: CommandState::Running.into(), pid: 7, ..Command::default() }
}
