//! The `Ports` service of one worker. A test binds ports of a simulated guest to addresses of this machine
//! ([`super::SimNode::listen`]); on every other port nothing listens.

use std::{pin::Pin, sync::Arc};

use space_node_proto::ports::{
    TunnelOpen, TunnelOpened, TunnelReply, TunnelRequest, ports_server::Ports, tunnel_reply, tunnel_request,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::state::State;

const PIECE: usize = 32 * 1024;

type Reply = Result<TunnelReply, Status>;

pub(super) struct PortService {
    state: Arc<State>,
    stop: CancellationToken,
}

impl PortService {
    pub(super) fn new(state: Arc<State>, stop: CancellationToken) -> Self {
        Self { state, stop }
    }

    async fn connect(&self, open: &TunnelOpen) -> Result<TcpStream, Status> {
        let found =
            self.state.find(&open.sandbox_id).ok_or_else(|| Status::not_found("no such sandbox here"))?;
        if found.generation != open.generation {
            return Err(Status::failed_precondition("another generation"));
        }
        let nothing = || Status::aborted("nothing listens on the port");
        let address = self.state.listener(&open.sandbox_id, open.port).ok_or_else(nothing)?;
        TcpStream::connect(address).await.map_err(|_refused| nothing())
    }
}

#[tonic::async_trait]
impl Ports for PortService {
    type OpenTunnelStream = Pin<Box<dyn Stream<Item = Reply> + Send>>;

    async fn open_tunnel(
        &self,
        request: Request<Streaming<TunnelRequest>>,
    ) -> Result<Response<Self::OpenTunnelStream>, Status> {
        let mut requests = request.into_inner();
        let first = requests.message().await?.and_then(|request| request.part);
        let Some(tunnel_request::Part::Open(open)) = first else {
            return Err(Status::invalid_argument("open comes first"));
        };
        let (from_guest, to_guest) = self.connect(&open).await?.into_split();
        let (sender, replies) = mpsc::channel(1);
        let ends = CancellationToken::new();
        let reading = read(from_guest, sender, ends.clone());
        let writing = write(requests, to_guest, ends);
        let both = async { tokio::join!(reading, writing) };
        tokio::spawn(self.stop.clone().run_until_cancelled_owned(both));
        Ok(Response::new(Box::pin(ReceiverStream::new(replies))))
    }
}

/// From the guest to the client, to the end. A client that has left ends both directions.
async fn read(mut from_guest: OwnedReadHalf, sender: mpsc::Sender<Reply>, ends: CancellationToken) {
    let mut next = Ok(tunnel_reply::Part::Opened(TunnelOpened {}));
    loop {
        let part = match next {
            Ok(part) => part,
            Err(status) => {
                sender.send(Err(status)).await.ok();
                return ends.cancel();
            }
        };
        if sender.send(Ok(TunnelReply { part: Some(part) })).await.is_err() {
            return ends.cancel();
        }
        let mut piece = vec![0; PIECE];
        let read = tokio::select! {
            () = sender.closed() => return ends.cancel(),
            () = ends.cancelled() => return,
            read = from_guest.read(&mut piece) => read,
        };
        next = match read {
            Ok(0) => return,
            Ok(length) => {
                piece.truncate(length);
                Ok(tunnel_reply::Part::Data(piece))
            }
            Err(_broken) => Err(Status::aborted("the connection broke")),
        };
    }
}

/// From the client to the guest, until it finishes. One that leaves without that ends both directions.
async fn write(
    mut requests: Streaming<TunnelRequest>,
    mut to_guest: OwnedWriteHalf,
    ends: CancellationToken,
) {
    loop {
        let next = tokio::select! {
            () = ends.cancelled() => return,
            next = requests.message() => next,
        };
        match next.ok().flatten().and_then(|request| request.part) {
            // A guest that doesn't read any more may still have something to say.
            Some(tunnel_request::Part::Data(data)) => drop(to_guest.write_all(&data).await),
            Some(tunnel_request::Part::Finish(_)) => return drop(to_guest.shutdown().await),
            Some(tunnel_request::Part::Open(_)) | None => return ends.cancel(),
        }
    }
}
