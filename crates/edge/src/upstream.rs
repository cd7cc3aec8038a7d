//! The way to a port in a guest: tunnels, and the HTTP connections that are kept over them.
//!
//! A connection belongs to one port of one generation of a sandbox, and is used for that alone.

mod idle;
mod places;
mod sender;

use std::{sync::Arc, time::Duration};

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use space_attach::is_transport;
use space_runtime::tasks::Tasks;
use space_types::PortHost;
use tonic::{Code, Status};

use crate::{EdgeCode, answer::Refusal, config::Limits, routes::Target, tunnel::Tunnel, workers::Workers};
use idle::Idle;
use places::Places;
pub(crate) use places::Taken;
pub(crate) use sender::{Sender, Unsent};

/// Of an answer's head.
const HEAD_BYTES: u32 = 64 * 1024;
const STREAM_WINDOW: u32 = 256 * 1024;
const PING: Duration = Duration::from_secs(20);

/// One port of one generation of a sandbox, and where it is served.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) host: PortHost,
    pub(crate) target: Target,
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The route may be an old one.
    Moved,
    Refused(Refusal),
}

/// How a request is to be carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// HTTP/1.1, over a connection that may have been used before.
    Kept { replayable: bool },
    /// HTTP/1.1, over a new connection: it may become something else.
    Fresh,
    /// HTTP/2 by prior knowledge.
    Http2,
}

/// Something to open at a place.
pub(crate) trait Open: Sync {
    type Opened: Send;

    fn open(
        &self,
        upstream: &Upstream,
        place: &Place,
    ) -> impl Future<Output = Result<Self::Opened, Failure>> + Send;
}

/// A connection on which a request can be sent.
impl Open for Carrier {
    type Opened = Sender;

    async fn open(&self, upstream: &Upstream, place: &Place) -> Result<Sender, Failure> {
        upstream.sender(place, *self).await
    }
}

/// A connection of bytes.
pub(crate) struct RawBytes;

impl Open for RawBytes {
    type Opened = Tunnel;

    async fn open(&self, upstream: &Upstream, place: &Place) -> Result<Tunnel, Failure> {
        upstream.tunnel(place).await
    }
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Upstream {
    workers: Workers,
    deadline: Duration,
    places: Arc<Places>,
    idle: Idle,
    tasks: Tasks,
}

impl Upstream {
    pub(crate) fn new(workers: Workers, limits: Limits, tasks: &Tasks) -> Self {
        Self {
            workers,
            deadline: Duration::from_secs(limits.upstream_seconds),
            places: Arc::new(Places::new(&limits)),
            idle: Idle::start(tasks),
            tasks: tasks.clone(),
        }
    }

    async fn sender(&self, place: &Place, carrier: Carrier) -> Result<Sender, Failure> {
        match carrier {
            Carrier::Kept { replayable } => match self.idle.take(place, replayable) {
                Some(kept) => Ok(Sender::http1(kept, true)),
                None => self.http1(place).await,
            },
            Carrier::Fresh => self.http1(place).await,
            Carrier::Http2 => match self.idle.shared(place) {
                Some(shared) => Ok(Sender::http2(shared, true)),
                None => self.http2(place).await,
            },
        }
    }

    /// Keeps the connection for the next request, when this one's answer has been read to its end.
    pub(crate) fn give_back(&self, place: Place, sender: Sender) {
        if let Some(mut sender) = sender.into_http1() {
            let idle = self.idle.clone();
            self.tasks.spawn_cancellable("answer", async move {
                if sender.ready().await.is_ok() {
                    idle.put(place, sender);
                }
            });
        }
    }

    async fn tunnel(&self, place: &Place) -> Result<Tunnel, Failure> {
        let taken = self.places.take(place, self.deadline).await.map_err(Failure::Refused)?;
        let client = self.workers.ports(&place.target).map_err(|_bad_address| Failure::Moved)?;
        let opened = Tunnel::open(client, place.host, place.target.generation, self.deadline, taken).await;
        opened.map_err(|status| self.failure(place, &status))
    }

    async fn http1(&self, place: &Place) -> Result<Sender, Failure> {
        let tunnel = self.tunnel(place).await?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES as usize);
        let (sender, connection) =
            builder.handshake(TokioIo::new(tunnel)).await.map_err(|error| broken(&error))?;
        self.tasks.spawn("upstream", async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to a guest ended in disorder");
            }
        });
        Ok(Sender::http1(sender, false))
    }

    async fn http2(&self, place: &Place) -> Result<Sender, Failure> {
        let tunnel = self.tunnel(place).await?;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(STREAM_WINDOW * 256)
            .max_header_list_size(HEAD_BYTES);
        let (sender, connection) =
            builder.handshake(TokioIo::new(tunnel)).await.map_err(|error| broken(&error))?;
        self.tasks.spawn("upstream", async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to a guest ended in disorder");
            }
        });
        self.idle.share(place.clone(), sender.clone());
        Ok(Sender::http2(sender, false))
    }

    fn failure(&self, place: &Place, status: &Status) -> Failure {
        tracing::debug!(code = ?status.code(), port = %place.host.label(), "no tunnel");
        let refused = |code, detail: &str| Failure::Refused(Refusal::new(code, detail));
        match status.code() {
            Code::NotFound | Code::FailedPrecondition => Failure::Moved,
            Code::Unavailable | Code::Unknown => {
                // A worker says so of a guest too, and its channel is every other guest's as well.
                if is_transport(status) {
                    self.workers.forget(&place.target);
                }
                Failure::Moved
            }
            Code::Aborted => {
                let detail =
                    format!("Nothing accepts connections on port {} in the sandbox.", place.host.port);
                refused(EdgeCode::PortNotListening, &detail)
            }
            Code::ResourceExhausted => {
                refused(EdgeCode::TooManyConnections, "The sandbox has as many connections as it may have.")
            }
            Code::Unimplemented => {
                refused(EdgeCode::PortUnsupported, "The sandbox's agent is too old to serve ports.")
            }
            Code::Ok
            | Code::Cancelled
            | Code::InvalidArgument
            | Code::DeadlineExceeded
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::OutOfRange
            | Code::Internal
            | Code::DataLoss
            | Code::Unauthenticated => Failure::Refused(unreachable_sandbox()),
        }
    }
}

pub(crate) fn unreachable_sandbox() -> Refusal {
    Refusal::new(EdgeCode::SandboxUnreachable, "The sandbox can't be reached at the moment.")
}

fn broken(error: &hyper::Error) -> Failure {
    tracing::debug!(%error, "a connection to a guest broke at once");
    Failure::Refused(Refusal::new(EdgeCode::PortBadResponse, "The connection to the port broke at once."))
}
