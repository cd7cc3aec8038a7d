//! A worker whose guests are this machine: a tunnel leads to the same port of its loopback.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use space_node_proto::{
    attach::attach_server::AttachServer,
    ports::{TunnelOpened, TunnelReply, TunnelRequest, ports_server, tunnel_reply, tunnel_request::Part},
};
use space_types::{NodeId, TenantId};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::Runtime,
    sync::{mpsc, oneshot, watch},
};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming, transport::Server};

use super::{
    authority::Authority,
    printer::{Printer, Progress},
};

pub(crate) const GENERATION: u64 = 7;

pub(crate) struct Worker {
    serving: Mutex<(SocketAddr, Option<Runtime>)>,
    authority: Authority,
    name: String,
    pub(crate) opened: Arc<AtomicUsize>,
    pub(crate) progress: watch::Sender<Progress>,
}

impl Worker {
    pub(crate) async fn start(authority: &Authority, tenant: TenantId, node: NodeId) -> Arc<Self> {
        let name = format!("worker.{}.{}.space.internal", tenant.label(), node.label());
        let (opened, progress) = (Arc::default(), watch::Sender::default());
        let serving = Mutex::new(serve(authority, &name, &opened, &progress).await);
        Arc::new(Self { serving, authority: authority.clone(), name, opened, progress })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.serving.lock().unwrap().0
    }

    /// At another address; its connections break.
    pub(crate) async fn restart(&self) {
        let serving = serve(&self.authority, &self.name, &self.opened, &self.progress).await;
        let (_, old) = std::mem::replace(&mut *self.serving.lock().unwrap(), serving);
        old.unwrap().shutdown_background();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(runtime) = self.serving.lock().unwrap().1.take() {
            runtime.shutdown_background();
        }
    }
}

/// On a runtime of its own, with which every one of its connections ends.
async fn serve(
    authority: &Authority,
    name: &str,
    opened: &Arc<AtomicUsize>,
    progress: &watch::Sender<Progress>,
) -> (SocketAddr, Option<Runtime>) {
    let ports = ports_server::PortsServer::new(Tunnels(Arc::clone(opened)));
    let attach = AttachServer::new(Printer(progress.subscribe()));
    let mut server = Server::builder().tls_config(authority.mutual(name, false)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (sender, bound) = oneshot::channel();
    runtime.spawn(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        sender.send(listener.local_addr().unwrap()).unwrap();
        let server = server.add_service(ports).add_service(attach);
        server.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
    });
    (bound.await.unwrap(), Some(runtime))
}

struct Tunnels(Arc<AtomicUsize>);

#[tonic::async_trait]
impl ports_server::Ports for Tunnels {
    type OpenTunnelStream = ReceiverStream<Result<TunnelReply, Status>>;

    async fn open_tunnel(
        &self,
        call: Request<Streaming<TunnelRequest>>,
    ) -> Result<Response<Self::OpenTunnelStream>, Status> {
        let mut requests = call.into_inner();
        let Some(Part::Open(open)) = requests.message().await?.and_then(|request| request.part) else {
            return Err(Status::invalid_argument("open comes first"));
        };
        if open.generation != GENERATION {
            return Err(Status::failed_precondition("another generation"));
        }
        self.0.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(open.port).unwrap();
        let stream = TcpStream::connect(("127.0.0.1", port)).await;
        let (read, write) = stream.map_err(|_refused| Status::aborted("nothing listens"))?.into_split();
        let (replies, sent) = mpsc::channel(1);
        let opened = TunnelReply { part: Some(tunnel_reply::Part::Opened(TunnelOpened {})) };
        replies.send(Ok(opened)).await.unwrap();
        tokio::spawn(inwards(requests, write));
        tokio::spawn(outwards(read, replies));
        Ok(Response::new(ReceiverStream::new(sent)))
    }
}

async fn inwards(mut requests: Streaming<TunnelRequest>, mut write: OwnedWriteHalf) {
    while let Ok(Some(request)) = requests.message().await {
        let done = match request.part {
            Some(Part::Data(data)) => write.write_all(&data).await,
            Some(Part::Finish(_)) => write.shutdown().await,
            Some(Part::Open(_)) | None => return,
        };
        if done.is_err() {
            return;
        }
    }
}

async fn outwards(mut read: OwnedReadHalf, replies: mpsc::Sender<Result<TunnelReply, Status>>) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = tokio::select! {
            count = read.read(&mut buffer) => count.unwrap_or(0),
            () = replies.closed() => return,
        };
        let part = Some(tunnel_reply::Part::Data(buffer[..count].to_vec()));
        if count == 0 || replies.send(Ok(TunnelReply { part })).await.is_err() {
            return;
        }
    }
}
