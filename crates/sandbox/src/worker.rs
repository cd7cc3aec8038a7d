//! The worker's loop: what noded says, what sandboxes ask of noded, and the end of both.
//!
//! The sessions of a sandbox live in its guest and their output lies in its spool, so a worker that ends loses nothing:
//! its successor takes the spool up, connects anew, and readers resume by sequence number.

use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::OwnedFd,
    sync::Arc,
};

use space_node_proto::worker::{
    Configure, Configured, Connect, Connection, FromWorker, ToWorker, from_worker, to_worker,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, interval_at, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tracing::{info, warn};

use crate::{
    channel::{ChannelError, NodeChannel, Received},
    config::SandboxdConfig,
    limits,
    listener::{accept, listener},
    metrics::Metrics,
    node::NodeRequest,
    sandboxes::{Context, Sandboxes},
    service,
    tls::{Identity, TlsError},
};

#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("the channel to noded failed")]
    Channel(#[from] ChannelError),
    #[error("noded's socket can't be used")]
    Socket(#[source] io::Error),
    #[error("noded's configuration has no listening socket")]
    NoListener,
    #[error("the listening socket can't be used")]
    Listener(#[source] io::Error),
    #[error("the worker's certificate can't be used")]
    Tls(#[from] TlsError),
}

enum Flow {
    Continue,
    Leave,
}

struct Worker {
    channel: NodeChannel,
    context: Context,
    sandboxes: Arc<Sandboxes>,
    identity: Option<Identity>,
    connects: HashMap<u64, oneshot::Sender<Result<OwnedFd, String>>>,
    last_connect: u64,
    outbox: VecDeque<FromWorker>,
}

/// Serves until noded says to leave or goes away.
pub async fn run(socket: OwnedFd, config: SandboxdConfig) -> Result<(), WorkerError> {
    let channel = NodeChannel::new(socket).map_err(WorkerError::Socket)?;
    let (sender, requests) = mpsc::channel(limits::NODE_QUEUE);
    let context = Context::new(&config, sender, Arc::new(Metrics::default()));
    let worker = Worker {
        channel,
        sandboxes: Arc::new(Sandboxes::new(context.clone())),
        context: context.clone(),
        identity: None,
        connects: HashMap::new(),
        last_connect: 0,
        outbox: VecDeque::new(),
    };
    let outcome = worker.serve(requests, &config).await;
    context.stop.cancel();
    context.tasks.close();
    if timeout(limits::DRAIN, context.tasks.wait()).await.is_err() {
        info!("left while clients were still connected");
    }
    context.metrics.log();
    match outcome {
        Err(WorkerError::Channel(ChannelError::Closed)) => {
            info!("noded has gone");
            Ok(())
        }
        outcome => outcome,
    }
}

impl Worker {
    async fn serve(
        mut self,
        mut requests: mpsc::Receiver<NodeRequest>,
        config: &SandboxdConfig,
    ) -> Result<(), WorkerError> {
        let mut buffer = vec![0; limits::DATAGRAM];
        let mut summary = interval_at(Instant::now() + config.summary_interval, config.summary_interval);
        loop {
            let sending = async {
                match self.outbox.front() {
                    Some(message) => self.channel.send(message).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                received = self.channel.receive(&mut buffer) => match self.handle(received?)? {
                    Flow::Continue => {}
                    Flow::Leave => return Ok(()),
                },
                sent = sending => {
                    sent?;
                    self.outbox.pop_front();
                }
                Some(request) = requests.recv(), if self.outbox.len() < limits::NODE_QUEUE => self.forward(request),
                _ = summary.tick() => self.context.metrics.log(),
            }
        }
    }

    fn handle(&mut self, received: Received) -> Result<Flow, WorkerError> {
        let Received { message: ToWorker { kind }, descriptors } = received;
        let mut descriptors = descriptors.into_iter();
        let descriptor = descriptors.next();
        match kind {
            Some(to_worker::Kind::Configure(configure)) => self.configure(&configure, descriptor)?,
            Some(to_worker::Kind::Assign(assign)) => {
                self.sandboxes.assign(assign, descriptor, descriptors.next());
            }
            Some(to_worker::Kind::Connection(connection)) => self.connected(connection, descriptor),
            Some(to_worker::Kind::Release(release)) => self.sandboxes.release(&release.sandbox_id),
            Some(to_worker::Kind::Shutdown(_)) => return Ok(Flow::Leave),
            None => warn!("noded sent a message that this worker doesn't know"),
        }
        Ok(Flow::Continue)
    }

    /// The first time with the listening socket; later a new certificate for the same authority.
    fn configure(&mut self, configure: &Configure, socket: Option<OwnedFd>) -> Result<(), WorkerError> {
        if let Some(identity) = &self.identity {
            identity.replace(configure)?;
            info!("took a new certificate");
            return Ok(());
        }
        let listener = listener(socket.ok_or(WorkerError::NoListener)?).map_err(WorkerError::Listener)?;
        let identity = Identity::new(configure)?;
        let tls = TlsAcceptor::from(Arc::new(identity.server_config(configure)?));
        self.identity = Some(identity);
        let (ready, connections) = mpsc::channel(limits::TLS_HANDSHAKES);
        let context = &self.context;
        let (metrics, stop) = (Arc::clone(&context.metrics), context.stop.clone());
        context.tasks.spawn(accept(listener, tls, ready, metrics, stop.clone()));
        let connections = ReceiverStream::new(connections);
        let serving =
            service::serve(Arc::clone(&self.sandboxes), Arc::clone(&context.metrics), connections, stop);
        context.tasks.spawn(serving);
        self.say(from_worker::Kind::Configured(Configured {}));
        Ok(())
    }

    fn forward(&mut self, request: NodeRequest) {
        match request {
            NodeRequest::Tell(kind) => self.say(kind),
            NodeRequest::Connect { sandbox_id, answer } => {
                // Who has given up waiting is forgotten; an answer that comes all the same closes its socket.
                self.connects.retain(|_id, waiting| !waiting.is_closed());
                self.last_connect += 1;
                let request_id = self.last_connect;
                self.connects.insert(request_id, answer);
                self.say(from_worker::Kind::Connect(Connect { request_id, sandbox_id }));
            }
        }
    }

    fn connected(&mut self, connection: Connection, descriptor: Option<OwnedFd>) {
        let Some(waiting) = self.connects.remove(&connection.request_id) else { return };
        let answer = match descriptor {
            Some(descriptor) if connection.error.is_empty() => Ok(descriptor),
            Some(_) | None => Err(connection.error),
        };
        drop(waiting.send(answer));
    }

    fn say(&mut self, kind: from_worker::Kind) {
        self.outbox.push_back(FromWorker { kind: Some(kind) });
    }
}
